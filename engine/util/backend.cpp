#include "util/backend.h"

#include "ggml-backend.h"

#include <dlfcn.h>

std::string backend_name() {
    std::string names;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        names += (names.empty() ? "" : ", ") + std::string(ggml_backend_dev_name(ggml_backend_dev_get(i)));
    }
    return names;
}

// A module is a file "libggml-cpu-VARIANT.so"; in any other build this code is part of the program itself.
std::string cpu_variant() {
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!device) {
        return "";
    }
    void * function =
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads");
    Dl_info info = {};
    if (!function || !dladdr(function, &info) || !info.dli_fname) {
        return "native";
    }
    const std::string path  = info.dli_fname;
    const std::string stem  = "libggml-cpu-";
    const size_t      begin = path.rfind(stem);
    if (begin == std::string::npos) {
        return "native";
    }
    const size_t from = begin + stem.size();
    return path.substr(from, path.find('.', from) - from);
}
