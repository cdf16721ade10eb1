// Compiled with the flags of all other files, which it reports. It holds constants only, so that cpu_check.cpp
// can read them on any CPU. AMX is absent: compilers never use it by themselves, and ggml asks the system.
#include "util/cpu_features.h"

#define TEXT_OF(x)        #x
#define IS_DEFINED(macro) (TEXT_OF(macro)[0] == '1') // an undefined macro stays its own name

enum { eax, ebx, ecx, edx };

static const unsigned none   = 0;
static const unsigned avx    = 0x06; // registers xmm, ymm
static const unsigned avx512 = 0xe6; // and masks, zmm

// clang-format off
const cpu_feature cpu_features[] = {
    {"sse3",             IS_DEFINED(__SSE3__),             1,          0, ecx,  0, none  },
    {"ssse3",            IS_DEFINED(__SSSE3__),            1,          0, ecx,  9, none  },
    {"fma",              IS_DEFINED(__FMA__),              1,          0, ecx, 12, avx   },
    {"sse4_1",           IS_DEFINED(__SSE4_1__),           1,          0, ecx, 19, none  },
    {"sse4_2",           IS_DEFINED(__SSE4_2__),           1,          0, ecx, 20, none  },
    {"movbe",            IS_DEFINED(__MOVBE__),            1,          0, ecx, 22, none  },
    {"popcnt",           IS_DEFINED(__POPCNT__),           1,          0, ecx, 23, none  },
    {"avx",              IS_DEFINED(__AVX__),              1,          0, ecx, 28, avx   },
    {"f16c",             IS_DEFINED(__F16C__),             1,          0, ecx, 29, avx   },
    {"bmi1",             IS_DEFINED(__BMI__),              7,          0, ebx,  3, none  },
    {"avx2",             IS_DEFINED(__AVX2__),             7,          0, ebx,  5, avx   },
    {"bmi2",             IS_DEFINED(__BMI2__),             7,          0, ebx,  8, none  },
    {"avx512f",          IS_DEFINED(__AVX512F__),          7,          0, ebx, 16, avx512},
    {"avx512dq",         IS_DEFINED(__AVX512DQ__),         7,          0, ebx, 17, avx512},
    {"adx",              IS_DEFINED(__ADX__),              7,          0, ebx, 19, none  },
    {"avx512ifma",       IS_DEFINED(__AVX512IFMA__),       7,          0, ebx, 21, avx512},
    {"avx512cd",         IS_DEFINED(__AVX512CD__),         7,          0, ebx, 28, avx512},
    {"avx512bw",         IS_DEFINED(__AVX512BW__),         7,          0, ebx, 30, avx512},
    {"avx512vl",         IS_DEFINED(__AVX512VL__),         7,          0, ebx, 31, avx512},
    {"avx512_vbmi",      IS_DEFINED(__AVX512VBMI__),       7,          0, ecx,  1, avx512},
    {"avx512_vbmi2",     IS_DEFINED(__AVX512VBMI2__),      7,          0, ecx,  6, avx512},
    {"gfni",             IS_DEFINED(__GFNI__),             7,          0, ecx,  8, none  },
    {"avx512_vnni",      IS_DEFINED(__AVX512VNNI__),       7,          0, ecx, 11, avx512},
    {"avx512_bitalg",    IS_DEFINED(__AVX512BITALG__),     7,          0, ecx, 12, avx512},
    {"avx512_vpopcntdq", IS_DEFINED(__AVX512VPOPCNTDQ__),  7,          0, ecx, 14, avx512},
    {"avx512_fp16",      IS_DEFINED(__AVX512FP16__),       7,          0, edx, 23, avx512},
    {"avx_vnni",         IS_DEFINED(__AVXVNNI__),          7,          1, eax,  4, avx   },
    {"avx512_bf16",      IS_DEFINED(__AVX512BF16__),       7,          1, eax,  5, avx512},
    {"avx_ifma",         IS_DEFINED(__AVXIFMA__),          7,          1, eax, 23, avx   },
    {"avx_vnni_int8",    IS_DEFINED(__AVXVNNIINT8__),      7,          1, edx,  4, avx   },
    {"avx_ne_convert",   IS_DEFINED(__AVXNECONVERT__),     7,          1, edx,  5, avx   },
    {"abm",              IS_DEFINED(__LZCNT__),            0x80000001, 0, ecx,  5, none  },
    {"sse4a",            IS_DEFINED(__SSE4A__),            0x80000001, 0, ecx,  6, none  },
    {"xop",              IS_DEFINED(__XOP__),              0x80000001, 0, ecx, 11, avx   },
    {"fma4",             IS_DEFINED(__FMA4__),             0x80000001, 0, ecx, 16, avx   },
    {"tbm",              IS_DEFINED(__TBM__),              0x80000001, 0, ecx, 21, none  },
};
// clang-format on

const int n_cpu_features = sizeof(cpu_features) / sizeof(cpu_features[0]);
