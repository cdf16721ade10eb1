// The devices that compute the model.
#pragma once

#include <string>

// The names of the devices, "CUDA0, CPU"; loads the modules of a portable build.
std::string backend_name();

// The CPU that the products are compiled for: "native" (the machine that compiled them), or, in a portable build,
// the module that was chosen at start: "haswell", "zen4", … Empty without a CPU backend.
std::string cpu_variant();
