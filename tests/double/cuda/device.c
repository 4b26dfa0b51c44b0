/* Devices and errors. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

static __thread cudaError_t last_error;
static __thread int current_device;

cudaError_t cuda_double_error(cudaError_t error) {
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

cudaError_t double_check(void) {
    const struct double_state *s = &double_state;
    if (s->driver / 1000 < CUDART_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    if (s->device_count <= 0)
        return cudaErrorNoDevice;
    return s->fault;
}

int double_device(void) {
    return current_device;
}

cudaError_t double_begin(void) {
    double_enter();
    return double_check();
}

cudaError_t double_end(cudaError_t error) {
    double_leave();
    return cuda_double_error(error);
}

cudaError_t cuda_double_check(void) {
    cudaError_t error = double_begin();
    double_leave();
    return error;
}

cudaError_t cudaGetLastError(void) {
    double_enter();
    cudaError_t error = double_state.fault ? double_state.fault : last_error;
    double_leave();
    last_error = cudaSuccess;
    return error;
}

static const struct {
    cudaError_t code;
    const char *name, *sentence;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorSystemDriverMismatch, "cudaErrorSystemDriverMismatch",
     "system has unsupported display driver / cuda driver combination"},
};

const char *cudaGetErrorName(cudaError_t code) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code)
            return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t code) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code)
            return errors[i].sentence;
    return "unrecognized error code";
}

cudaError_t cudaDriverGetVersion(int *version) {
    double_enter();
    *version = double_state.driver;
    double_leave();
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    cudaError_t error = double_begin();
    *count = error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice
                 ? 0
                 : double_state.device_count;
    return double_end(error);
}

/* success, or what is wrong with calls about this device */
static cudaError_t check_ordinal(int device) {
    cudaError_t error = double_begin();
    if (!error && (device < 0 || device >= double_state.device_count))
        error = cudaErrorInvalidDevice;
    double_leave();
    return error;
}

cudaError_t cudaSetDevice(int device) {
    cudaError_t error = check_ordinal(device);
    if (!error)
        current_device = device;
    return cuda_double_error(error);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    cudaError_t error = check_ordinal(device);
    if (error)
        return cuda_double_error(error);
    struct cuda_double_device described;
    cuda_double_get_device(device, &described);
    *properties = (struct cudaDeviceProp){
        .totalGlobalMem = described.memory,
        .major = described.capability / 10,
        .minor = described.capability % 10,
        .multiProcessorCount = described.multiprocessors,
    };
    memcpy(properties->name, described.name, sizeof properties->name);
    memcpy(properties->uuid.bytes, described.uuid, sizeof properties->uuid.bytes);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cuda_double_error(cuda_double_check());
}

cudaError_t cudaDeviceSynchronize(void) {
    double_enter();
    double_state.counts.synchronisations++;
    double_drain_all();
    return double_end(double_check());
}
