/* What moeperf doctor says of the collectors of GPU work. */
#include "harness/cli/doctor_gpu.h"

#include <dlfcn.h>
#include <stdio.h>

#include "harness/record/devices.h"
#include "harness/suite/paths.h"

bool cli_doctor_cupti(char *detail, size_t size) {
    char path[MP_PATH_SIZE];
    struct mp_error error = {0};
    if (*MOEPERF_CUPTI_OFF) {
        snprintf(detail, size, "no records of GPU work: %s", MOEPERF_CUPTI_OFF);
        return false;
    }
    if (mp_devices_library("cupti", path, &error)) {
        snprintf(detail, size, "no records of GPU work: %s", error.text);
        return false;
    }
    /* Stays, as do the libraries it loads: some keep memory until the program ends. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        snprintf(detail, size, "no records of GPU work: %s", dlerror());
        return false;
    }
    dlclose(library);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*initialise)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    int status = initialise ? initialise(0) : -1;
    if (!initialise)
        snprintf(detail, size, "no records of GPU work: no CUDA driver here (libcuda.so.1)");
    else if (status)
        snprintf(detail, size, "no records of GPU work: the CUDA driver says %d (no GPU?)", status);
    else
        snprintf(detail, size, "CUPTI records GPU work: %.400s", path);
    return status == 0;
}

bool cli_doctor_nccl(char *detail, size_t size) {
    char path[MP_PATH_SIZE];
    struct mp_error error = {0};
    bool found = !mp_devices_library("nccl", path, &error);
    if (found)
        snprintf(detail, size, "plug-in for NCCL 2.28 and newer: %.400s", path);
    else
        snprintf(detail, size, "no records of NCCL's collectives: %s", error.text);
    return found;
}
