// To link the CUDA module where no driver is: the functions of libcuda that it calls. The driver's own library is
// loaded where the module runs; this one never is, since it has another file name than the soname that is noted.

int cuDeviceGet(void) { return 999; } // CUDA_ERROR_UNKNOWN, as all of them
int cuDeviceGetAttribute(void) { return 999; }
int cuGetErrorString(void) { return 999; }
int cuMemAddressFree(void) { return 999; }
int cuMemAddressReserve(void) { return 999; }
int cuMemCreate(void) { return 999; }
int cuMemGetAllocationGranularity(void) { return 999; }
int cuMemMap(void) { return 999; }
int cuMemRelease(void) { return 999; }
int cuMemSetAccess(void) { return 999; }
int cuMemUnmap(void) { return 999; }
