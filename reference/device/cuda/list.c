/* Which GPUs there are.  Nothing is created on them: a CUDA context takes hundreds of megabytes on
 * every GPU that is asked for its free memory through the runtime, in every rank that asks, so the
 * free memory comes from the driver's management library (NVML). */
#include "reference/device/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int mp_cuda_count(int *count, struct mp_error *error) {
    int driver = 0, runtime = 0;
    cudaError_t status = cudaDriverGetVersion(&driver);
    if (status == cudaSuccess)
        status = cudaRuntimeGetVersion(&runtime);
    if (status == cudaSuccess && driver == 0)
        return mp_fail(error, MP_ENOTFOUND,
                       "there is no NVIDIA driver here (libcuda.so.1): install it, or use the cpu "
                       "device");
    /* Drivers run what was built with any toolkit of their own major release. */
    if (status == cudaErrorInsufficientDriver ||
        (status == cudaSuccess && driver / 1000 < runtime / 1000))
        return mp_fail(error, MP_EVERSION,
                       "the NVIDIA driver is for CUDA %d.%d, older than this build's CUDA %d.%d: "
                       "install a newer driver, or build moeperf with CUDA %d",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10,
                       driver / 1000);
    if (status == cudaSuccess)
        status = cudaGetDeviceCount(count);
    if (status == cudaErrorNoDevice || (status == cudaSuccess && *count == 0)) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        cudaGetLastError();
        if (visible)
            return mp_fail(error, MP_ENOTFOUND,
                           "there is no GPU to be seen: CUDA_VISIBLE_DEVICES is \"%s\"", visible);
        return mp_fail(error, MP_ENOTFOUND,
                       "there is no GPU on this host: use one that has, or the cpu device");
    }
    if (status == cudaSuccess)
        return MP_OK;
    cudaGetLastError();
    return mp_fail(error, MP_EDEVICE, "counting GPUs: %s (%s)", cudaGetErrorString(status),
                   cudaGetErrorName(status));
}

/* ---- free memory ---- */

/* NVML's interface, as far as it is used: its header is not part of every toolkit. */
struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_uuid)(const char *uuid, void **device);
    int (*memory)(void *device, struct nvml_memory *memory);
};

/* False where there is no such library or it does not work. */
static bool open_nvml(struct nvml *nvml) {
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library)
        return false;
    *(void **)&nvml->init = dlsym(nvml->library, "nvmlInit_v2");
    *(void **)&nvml->shutdown = dlsym(nvml->library, "nvmlShutdown");
    *(void **)&nvml->by_uuid = dlsym(nvml->library, "nvmlDeviceGetHandleByUUID");
    *(void **)&nvml->memory = dlsym(nvml->library, "nvmlDeviceGetMemoryInfo");
    if (nvml->init && nvml->shutdown && nvml->by_uuid && nvml->memory && nvml->init() == 0)
        return true;
    dlclose(nvml->library);
    return false;
}

static void close_nvml(struct nvml *nvml) {
    nvml->shutdown();
    dlclose(nvml->library);
}

/* "GPU-2b5e9c1a-...": 16 bytes in groups of 4, 2, 2, 2 and 6. */
static void write_uuid(const unsigned char uuid[16], char text[64]) {
    int length = snprintf(text, 64, "GPU");
    for (int i = 0; i < 16; i++)
        length += snprintf(text + length, 64 - (size_t)length, "%s%02x",
                           i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

/* -1 where it can't be known. */
static int64_t free_memory(const struct nvml *nvml, const unsigned char uuid[16]) {
    char text[64];
    void *device = NULL;
    struct nvml_memory memory;
    write_uuid(uuid, text);
    if (nvml->by_uuid(text, &device) != 0 || nvml->memory(device, &memory) != 0)
        return -1;
    return (int64_t)memory.free;
}

int mp_cuda_list(struct mp_cuda_gpu gpus[], int limit, int *count, struct mp_error *error) {
    int there = 0;
    int code = MP_OK;
    MP_TRY(mp_cuda_count(&there, error));
    struct nvml nvml;
    bool has_nvml = open_nvml(&nvml);
    for (int i = 0; i < there && i < limit && !code; i++) {
        struct cudaDeviceProp properties;
        cudaError_t status = cudaGetDeviceProperties(&properties, i);
        if (status != cudaSuccess) {
            cudaGetLastError();
            code = mp_fail(error, MP_EDEVICE, "properties of GPU %d: %s (%s)", i,
                           cudaGetErrorString(status), cudaGetErrorName(status));
            break;
        }
        struct mp_cuda_gpu *gpu = &gpus[i];
        snprintf(gpu->name, sizeof gpu->name, "%s", properties.name);
        memcpy(gpu->uuid, &properties.uuid, sizeof gpu->uuid);
        gpu->capability = 10 * properties.major + properties.minor;
        gpu->processors = properties.multiProcessorCount;
        gpu->memory = (int64_t)properties.totalGlobalMem;
        gpu->free_memory = has_nvml ? free_memory(&nvml, gpu->uuid) : -1;
    }
    if (has_nvml)
        close_nvml(&nvml);
    if (!code)
        *count = there;
    return code;
}
