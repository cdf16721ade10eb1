// Memory that large commands have freed: glibc keeps freed pages that lie between blocks in use.

#pragma once

// Returns freed memory to the system if there is much of it. It takes about 0.1 s a gigabyte, so it is called when no
// sequence runs.
void return_freed_memory();
