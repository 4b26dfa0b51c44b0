/* Loading the cuda back end, which is a library apart so that programs also run where there is no
 * CUDA. */
#include "reference/device/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 4096 };

/* Signatures are those of mp_cuda_open and mp_cuda_list in cuda/cuda.h, which needs CUDA's headers
 * and can't be read here. */
struct library {
    int (*open)(const struct mp_cuda_settings *settings, const struct mp_device_limits *limits,
                struct mp_device **device, struct mp_error *error);
    int (*list)(struct mp_cuda_gpu gpus[], int limit, int *count, struct mp_error *error);
};

/* Where the library is: what the environment names, else beside the running program, else where it
 * is installed. */
static int find_library(char path[PATH_SIZE], struct mp_error *error) {
    static const char *const names[] = {"libmoeperf-cuda.so", "../lib/libmoeperf-cuda.so"};
    const char *given = getenv("MOEPERF_CUDA_LIBRARY");
    if (given && *given) {
        snprintf(path, PATH_SIZE, "%s", given);
        return MP_OK;
    }
    ssize_t length = readlink("/proc/self/exe", path, PATH_SIZE - 64);
    char *slash = length > 0 ? memrchr(path, '/', (size_t)length) : NULL;
    for (int i = 0; slash && i < 2; i++) {
        snprintf(slash + 1, 64, "%s", names[i]);
        if (access(path, R_OK) == 0)
            return MP_OK;
    }
    if (*MOEPERF_CUDA_OFF)
        return mp_fail(error, MP_ENOTFOUND, "this build of moeperf has no cuda device: %s",
                       MOEPERF_CUDA_OFF);
    return mp_fail(error, MP_ENOTFOUND,
                   "libmoeperf-cuda.so is neither beside the program nor in ../lib: install all of "
                   "moeperf, or name the library in MOEPERF_CUDA_LIBRARY");
}

/* The library stays loaded: asking again finds the same one.  dlopen counts, and counts only. */
static int load(struct library *library, struct mp_error *error) {
    char path[PATH_SIZE];
    MP_TRY(find_library(path, error));
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        const char *why = dlerror();
        bool lacks_another = why && strstr(why, "cannot open shared object file") &&
                             strncmp(why, path, strlen(path)) != 0;
        return mp_fail(error, MP_ENOTFOUND, "loading the cuda device %s: %s%s", path,
                       why ? why : "no reason given",
                       lacks_another ? "; install the CUDA toolkit, or add its lib64 folder to "
                                       "LD_LIBRARY_PATH"
                                     : "");
    }
    *(void **)&library->open = dlsym(handle, "mp_cuda_open");
    *(void **)&library->list = dlsym(handle, "mp_cuda_list");
    if (!library->open || !library->list)
        return mp_fail(error, MP_ENOTFOUND, "%s is no cuda device of moeperf: it has no %s", path,
                       library->open ? "mp_cuda_list" : "mp_cuda_open");
    return MP_OK;
}

int mp_device_cuda_create(const struct mp_cuda_settings *settings,
                          const struct mp_device_limits *limits, struct mp_device **device,
                          struct mp_error *error) {
    struct library library;
    int code = load(&library, error);
    if (code)
        return settings->rank < 0 ? code : mp_error_prefix(error, "rank %d", settings->rank);
    return library.open(settings, limits, device, error);
}

int mp_device_cuda_list(struct mp_cuda_gpu gpus[], int limit, int *count, struct mp_error *error) {
    struct library library;
    MP_TRY(load(&library, error));
    return library.list(gpus, limit, count, error);
}
