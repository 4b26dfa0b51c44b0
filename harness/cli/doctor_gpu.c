/* What moeperf doctor says of GPUs and of the collectors of their work. */
#include "harness/cli/doctor_gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "harness/suite/paths.h"
#include "reference/comm/nccl/library.h"
#include "reference/device/device.h"

bool cli_doctor_cuda(char *detail, size_t size) {
    enum { MOST = 16 };
    struct mp_cuda_gpu gpus[MOST];
    struct mp_error error = {0};
    int count = 0, alike = 1;
    if (mp_device_cuda_list(gpus, MOST, &count, &error)) {
        snprintf(detail, size, "no training on GPUs: %s", error.text);
        return false;
    }
    if (count == 0) {
        snprintf(detail, size, "no training on GPUs: there is none here");
        return false;
    }
    int known = count < MOST ? count : MOST;
    while (alike < known && !strcmp(gpus[alike].name, gpus[0].name))
        alike++;
    snprintf(detail, size, "device cuda: %d x %s, %.1f GiB each%s", alike, gpus[0].name,
             (double)gpus[0].memory / (1 << 30),
             alike < known ? "; others are of another type, and the slowest sets the pace" : "");
    return true;
}

bool cli_doctor_nccl_transport(char *detail, size_t size) {
    struct mp_nccl_library library;
    struct mp_error error = {0};
    bool found = !mp_nccl_load(&library, &error);
    if (found)
        snprintf(detail, size, "NCCL %d.%d.%d between GPUs", library.version / 10000,
                 library.version / 100 % 100, library.version % 100);
    else
        snprintf(detail, size, "no transport nccl: %s", error.text);
    return found;
}

bool cli_doctor_cupti(char *detail, size_t size) {
    char path[MP_PATH_SIZE];
    struct mp_error error = {0};
    if (*MOEPERF_CUPTI_OFF) {
        snprintf(detail, size, "no records of GPU work: %s", MOEPERF_CUPTI_OFF);
        return false;
    }
    if (mp_path_library("libmoeperf-cupti.so", path, &error)) {
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
    bool found = !mp_path_library("libmoeperf-nccl.so", path, &error);
    if (found)
        snprintf(detail, size, "plug-in for NCCL 2.28 and newer: %.400s", path);
    else
        snprintf(detail, size, "no records of NCCL's collectives: %s", error.text);
    return found;
}
