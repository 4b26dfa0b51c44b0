/* Creating a cuda device, and the sentences of its failures. */
#include "reference/device/cuda/cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* About what CUDA takes of a GPU for itself, for the sentence about memory that is not there. */
#define CONTEXT_BYTES ((size_t)512 << 20)

/* ---- failures ---- */

/* "rank 2, GPU 0 (NVIDIA H200)", as far as is known. */
static void say_where(const struct mp_cuda *cuda, char *text, size_t size) {
    char rank[32] = "", name[sizeof cuda->name + 4] = "";
    if (cuda->rank >= 0)
        snprintf(rank, sizeof rank, "rank %d, ", cuda->rank);
    if (cuda->name[0])
        snprintf(name, sizeof name, " (%s)", cuda->name);
    snprintf(text, size, "%sGPU %d%s", rank, cuda->ordinal, name);
}

/* What would help, where something would; it follows the error's own words. */
static const char *advice(cudaError_t status) {
    switch (status) {
    case cudaErrorNoKernelImageForDevice:
        return "; this build has no code for this GPU: configure it with "
               "-DCMAKE_CUDA_ARCHITECTURES=<its compute capability, 90 for 9.0>";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout: /* come to light with whatever is called next */
        return "; an earlier operation may be at fault: CUDA_LAUNCH_BLOCKING=1 shows which";
    case cudaErrorECCUncorrectable:
        return "; the GPU's memory is faulty: use another one";
    case cudaErrorDevicesUnavailable:
        return "; another process may have the GPU for itself: nvidia-smi shows which";
    default:
        return "";
    }
}

static int code_of(cudaError_t status) {
    switch (status) {
    case cudaErrorMemoryAllocation:
        return MP_ENOMEM;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
        return MP_ENOTFOUND;
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
        return MP_EVERSION;
    default:
        return MP_EDEVICE;
    }
}

int mp_cuda_fail(const struct mp_cuda *cuda, const char *doing, cudaError_t status,
                 struct mp_error *error) {
    char where[320];
    cudaGetLastError(); /* so that no later call reports it once more */
    say_where(cuda, where, sizeof where);
    return mp_fail(error, code_of(status), "%s: %s: %s (%s)%s", where, doing,
                   cudaGetErrorString(status), cudaGetErrorName(status), advice(status));
}

int mp_cuda_fail_memory(const struct mp_cuda *cuda, const char *what, size_t bytes,
                        struct mp_error *error) {
    const double gibibyte = 1 << 30;
    size_t free_bytes = 0, total = 0;
    char where[320], there[96] = "";
    cudaGetLastError();
    say_where(cuda, where, sizeof where);
    if (cudaMemGetInfo(&free_bytes, &total) == cudaSuccess)
        snprintf(there, sizeof there, ", %.2f GiB are free of %.2f GiB",
                 (double)free_bytes / gibibyte, (double)total / gibibyte);
    return mp_fail(error, MP_ENOMEM,
                   "%s: out of memory: %s needs %.2f GiB%s; a smaller batch or fewer experts per "
                   "rank take less",
                   where, what, (double)bytes / gibibyte, there);
}

bool mp_cuda_note(struct mp_cuda *cuda, const char *doing, cudaError_t status) {
    if (status == cudaSuccess)
        return true;
    mp_cuda_fail(cuda, doing, status, &cuda->device.error);
    return false;
}

bool mp_cuda_note_cublas(struct mp_cuda *cuda, const char *doing, cublasStatus_t status) {
    char where[320];
    if (status == CUBLAS_STATUS_SUCCESS)
        return true;
    say_where(cuda, where, sizeof where);
    mp_fail(&cuda->device.error, status == CUBLAS_STATUS_ALLOC_FAILED ? MP_ENOMEM : MP_EDEVICE,
            "%s: %s: cuBLAS: %s", where, doing, cublasGetStatusString(status));
    cudaGetLastError();
    return false;
}

void mp_cuda_refuse(struct mp_cuda *cuda, int code, const char *sentence, ...) {
    char where[320], text[512];
    va_list arguments;
    va_start(arguments, sentence);
    vsnprintf(text, sizeof text, sentence, arguments);
    va_end(arguments);
    say_where(cuda, where, sizeof where);
    mp_fail(&cuda->device.error, code, "%s: %s", where, text);
}

/* ---- a device ---- */

static void destroy(struct mp_device *device) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    mp_cuda_destroy_products(cuda);
    if (cuda->cublas) {
        cudaStreamSynchronize(cuda->stream);
        cublasDestroy(cuda->cublas);
    }
    mp_cuda_destroy_streams(cuda); /* waits for what is queued: nothing uses memory any more */
    mp_cuda_destroy_ring(cuda);
    if (cuda->scratch)
        cudaFree(cuda->scratch);
    free(cuda->allocations);
    free(cuda);
    cudaGetLastError();
}

static void describe(const struct mp_device *device, char *text, size_t size) {
    const struct mp_cuda *cuda = (const struct mp_cuda *)device;
    int cublas = 0, driver = 0; /* 130002 is 13.0.2, 13000 is 13.0 */
    cublasGetVersion(cuda->cublas, &cublas);
    cudaDriverGetVersion(&driver);
    snprintf(text, size, "cuBLAS %d.%d.%d, %s, driver %d.%d", cublas / 10000, cublas / 100 % 100,
             cublas % 100, cuda->name, driver / 1000, driver % 1000 / 10);
}

static int choose_gpu(struct mp_cuda *cuda, struct mp_error *error) {
    int count = 0;
    struct cudaDeviceProp properties;
    int code = mp_cuda_count(&count, error);
    if (code)
        return cuda->rank < 0 ? code : mp_error_prefix(error, "rank %d", cuda->rank);
    if (cuda->ordinal < 0 || cuda->ordinal >= count) {
        char where[64];
        say_where(cuda, where, sizeof where);
        return mp_fail(error, MP_ENOTFOUND,
                       "%s: there is no such GPU: this host has %d, numbered from 0; start fewer "
                       "ranks on it, or set the GPU each one uses",
                       where, count);
    }
    cudaError_t status = cudaGetDeviceProperties(&properties, cuda->ordinal);
    if (status != cudaSuccess)
        return mp_cuda_fail(cuda, "properties", status, error);
    snprintf(cuda->name, sizeof cuda->name, "%s", properties.name);
    if (cuda->device.element == MP_BFLOAT16 && properties.major < 8) {
        char where[320];
        say_where(cuda, where, sizeof where);
        return mp_fail(error, MP_EINVAL,
                       "%s: bf16 needs compute capability 8.0, this GPU has %d.%d: use fp32", where,
                       properties.major, properties.minor);
    }
    cuda->multiprocessors = properties.multiProcessorCount;
    status = cudaSetDevice(cuda->ordinal); /* creates the context: CUDA 12 and later */
    if (status == cudaErrorMemoryAllocation)
        return mp_cuda_fail_memory(cuda, "a CUDA context", CONTEXT_BYTES, error);
    return status == cudaSuccess ? MP_OK : mp_cuda_fail(cuda, "selecting it", status, error);
}

static int create_cublas(struct mp_cuda *cuda, struct mp_error *error) {
    cublasStatus_t status = cublasCreate(&cuda->cublas);
    /* Sums over split k stay in fp32, whatever the type of the result. */
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasSetMathMode(
            cuda->cublas, CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    if (mp_cuda_note_cublas(cuda, "creating a cuBLAS handle", status))
        return MP_OK;
    return mp_fail(error, cuda->device.error.code, "%s", cuda->device.error.text);
}

static int create_scratch(struct mp_cuda *cuda, struct mp_error *error) {
    const struct mp_device_limits *limits = &cuda->limits;
    size_t bytes = 256;
#define LARGEST(family)                                                                            \
    {                                                                                              \
        size_t wanted = mp_cuda_scratch_##family(limits, cuda->device.element);                    \
        bytes = wanted > bytes ? wanted : bytes;                                                   \
    }
    MP_CUDA_SCRATCH_FAMILIES(LARGEST)
#undef LARGEST
    cudaError_t status = cudaMalloc(&cuda->scratch, bytes);
    if (status == cudaErrorMemoryAllocation)
        return mp_cuda_fail_memory(cuda, "working memory", bytes, error);
    if (status != cudaSuccess)
        return mp_cuda_fail(cuda, "allocating working memory", status, error);
    cuda->scratch_bytes = bytes;
    return MP_OK;
}

static void install(struct mp_device_operations *operations) {
#define INSTALL(family) mp_cuda_install_##family(operations);
    operations->name = "cuda";
    operations->destroy = destroy;
    operations->describe = describe;
    mp_cuda_install_memory(operations);
    mp_cuda_install_streams(operations);
    MP_CUDA_FAMILIES(INSTALL)
#undef INSTALL
}

static int create_parts(struct mp_cuda *cuda, struct mp_error *error) {
    MP_TRY(choose_gpu(cuda, error));
    MP_TRY(mp_cuda_create_streams(cuda, error));
    MP_TRY(mp_cuda_create_ring(cuda, error));
    MP_TRY(create_cublas(cuda, error));
    MP_TRY(create_scratch(cuda, error));
    return mp_cuda_create_products(cuda, error);
}

int mp_cuda_open(const struct mp_cuda_settings *settings, const struct mp_device_limits *limits,
                 struct mp_device **device, struct mp_error *error) {
    const struct mp_attention_shape *shape = &limits->attention;
    if (limits->experts < 0 || limits->width < 0 || limits->tokens < 0 || shape->batch < 0 ||
        shape->sequence < 0 || shape->heads < 0 || shape->head_width < 0)
        return mp_fail(error, MP_EINVAL, "cuda device: a limit is negative");

    struct mp_cuda *cuda;
    MP_TRY(MP_NEW(cuda, 1, error));
    cuda->device.operations = &cuda->operations;
    cuda->device.element = settings->element;
    cuda->device.deferred = true;
    cuda->limits = *limits;
    cuda->rank = settings->rank;
    cuda->ordinal = settings->ordinal;
    cuda->grouped_products = settings->grouped_products;
    install(&cuda->operations);

    int code = create_parts(cuda, error);
    if (code) {
        destroy(&cuda->device);
        return code;
    }
    *device = &cuda->device;
    return MP_OK;
}
