/* Launching: what the runtime checks, then the kernel is queued with its arguments. */
#include "internal.h"

#include <stdlib.h>

struct launch {
    struct double_grid grid;
    int (*astray)(const void *arguments);
    void (*release)(void *arguments);
    cudaError_t fault; /* what becomes of it instead, if anything */
};

static void run_launch(void *context) {
    struct launch *launch = context;
    int astray = launch->astray(launch->grid.arguments);
    char name[512];
    if (launch->fault) {
        cuda_double_fault(launch->fault, "a launch that was to fail");
    } else if (astray) {
        double_name_kernel(launch->grid.kernel, name, sizeof name);
        cuda_double_fault(cudaErrorIllegalAddress,
                          "kernel %s: parameter %d points to memory that is neither the device's "
                          "nor page-locked",
                          name, astray);
    } else {
        double_run_grid(&launch->grid);
    }
}

static void release_launch(void *context) {
    struct launch *launch = context;
    launch->release(launch->grid.arguments);
    free(launch);
}

static bool shape_is_possible(const cudaLaunchConfig_t *config) {
    const dim3 *blocks = &config->gridDim, *threads = &config->blockDim;
    return blocks->x - 1 < INT32_MAX && threads->x - 1 < 1024 && blocks->y == 1 && blocks->z == 1 &&
           threads->y == 1 && threads->z == 1;
}

static bool stays(cudaError_t error) {
    return error == cudaErrorLaunchFailure || error == cudaErrorIllegalAddress ||
           error == cudaErrorMisalignedAddress || error == cudaErrorLaunchTimeout ||
           error == cudaErrorECCUncorrectable;
}

/* Locked. */
static cudaError_t queue_launch(const cudaLaunchConfig_t *config, struct launch *launch) {
    struct double_state *s = &double_state;
    if (!config || !launch->grid.kernel)
        return config ? cudaErrorInvalidDeviceFunction : cudaErrorInvalidValue;
    if (!shape_is_possible(config))
        return cudaErrorInvalidConfiguration;
    struct CUstream_st *stream = double_stream(config->stream);
    if (!stream || stream->device != double_device())
        return cudaErrorInvalidResourceHandle;
    s->counts.launches++;
    if (s->launches_left > 0 && --s->launches_left == 0) {
        if (!stays(s->launch_error))
            return s->launch_error;
        launch->fault = s->launch_error;
    }
    launch->grid.blocks = config->gridDim;
    launch->grid.threads = config->blockDim;
    launch->grid.seed = double_random(&stream->random);
    return double_queue(stream, run_launch, release_launch, launch);
}

cudaError_t cuda_double_launch(const cudaLaunchConfig_t *config, const void *kernel,
                               void (*call)(void *), int (*astray)(const void *),
                               void (*release)(void *), void *arguments) {
    struct launch *launch = calloc(1, sizeof *launch);
    if (!launch) {
        release(arguments);
        return cuda_double_error(cudaErrorMemoryAllocation);
    }
    launch->grid.kernel = kernel;
    launch->grid.call = call;
    launch->grid.arguments = arguments;
    launch->astray = astray;
    launch->release = release;
    cudaError_t error = double_begin();
    if (!error)
        error = queue_launch(config, launch);
    double_end(error);
    if (error)
        release_launch(launch);
    return error;
}
