// Memory that large commands have left: glibc keeps freed pages that lie between pieces in use.

#pragma once

// Returns freed memory to the system if there is much of it. A gigabyte takes about 0.1 s, so: when nothing runs.
void return_freed_memory();
