/* cuBLAS's handles, checks of arguments, and queuing of products. */
#include <stdlib.h>
#include <string.h>

#include "cublas_v2.h"
#include "internal.h"
#include "product.h"

struct cublasContext {
    int device;
    cudaStream_t stream;
    cublasMath_t mode;
    void *workspace; /* NULL: the library's own, which is no concern of the double */
    size_t workspace_bytes;
};

/* Products of one call, one after another.  Matrices are `base` plus the stride, or what arrays of
 * pointers in device memory say. */
struct products {
    struct double_product *product; /* [groups], without matrices */
    int *size;                      /* [groups]: how many of each */
    int groups;
    const void *const *a_array, *const *b_array;
    void *const *c_array; /* NULL: strides */
    long long stride_a, stride_b, stride_c;
    unsigned char *workspace;
    size_t workspace_bytes;
};

static const struct {
    cublasStatus_t code;
    const char *sentence;
} statuses[] = {
    {CUBLAS_STATUS_SUCCESS, "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "an unsupported value or parameter was passed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "the program failed to execute on the GPU"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "the functionality requested is not supported"},
};

const char *cublasGetStatusString(cublasStatus_t code) {
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
        if (statuses[i].code == code)
            return statuses[i].sentence;
    return "<unknown>";
}

cublasStatus_t cublasCreate(cublasHandle_t *handle) {
    if (!handle)
        return CUBLAS_STATUS_INVALID_VALUE;
    double_enter();
    cudaError_t error = double_check();
    double_leave();
    if (error)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof **handle);
    if (!*handle)
        return CUBLAS_STATUS_ALLOC_FAILED;
    (*handle)->device = double_device();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion(cublasHandle_t handle, int *version) {
    (void)handle; /* may be NULL */
    if (!version)
        return CUBLAS_STATUS_INVALID_VALUE;
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    double_enter();
    bool known = double_stream(stream) != NULL;
    double_leave();
    if (!known)
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->stream = stream;
    handle->workspace = NULL;
    handle->workspace_bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes) {
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (bytes && ((uintptr_t)workspace % 256 != 0 || !cuda_double_is_device(workspace, bytes)))
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = bytes ? workspace : NULL;
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    cublasMath_t bare = mode & ~(unsigned)CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    if (bare > CUBLAS_TF32_TENSOR_OP_MATH)
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

/* Execution. */

static size_t bytes_of(cudaDataType type) {
    return type == CUDA_R_32F ? 4 : 2;
}

/* True if a matrix of this shape lies in device memory where it is said to be. */
static bool is_there(const void *matrix, cudaDataType type, int rows, int columns, int ld) {
    if (rows == 0 || columns == 0)
        return true;
    size_t elements = (size_t)(columns - 1) * (size_t)ld + (size_t)rows;
    return (uintptr_t)matrix % bytes_of(type) == 0 &&
           cuda_double_is_device(matrix, elements * bytes_of(type));
}

static const void *offset(const void *base, cudaDataType type, long long elements) {
    return (const char *)base + elements * (long long)bytes_of(type);
}

/* One product with its matrices; false if something was wrong. */
static bool run_product(const struct double_product *p) {
    if (p->m == 0 || p->n == 0)
        return true;
    if (!is_there(p->c, p->type_c, p->m, p->n, p->ldc) ||
        !is_there(p->a, p->type, p->transpose_a ? p->k : p->m, p->transpose_a ? p->m : p->k,
                  p->lda) ||
        !is_there(p->b, p->type, p->transpose_b ? p->n : p->k, p->transpose_b ? p->k : p->n,
                  p->ldb)) {
        cuda_double_fault(cudaErrorIllegalAddress,
                          "a product of %d x %d x %d: a matrix is not in device memory, or not "
                          "all of it",
                          p->m, p->n, p->k);
        return false;
    }
    if (!double_multiply(p)) {
        cuda_double_fault(cudaErrorLaunchFailure, "a product of %d x %d x %d: no memory", p->m,
                          p->n, p->k);
        return false;
    }
    return true;
}

static bool arrays_are_there(const struct products *all) {
    size_t count = 0;
    if (!all->c_array)
        return true;
    for (int g = 0; g < all->groups; g++)
        count += (size_t)all->size[g];
    return count == 0 || (cuda_double_is_device(all->a_array, count * sizeof(void *)) &&
                          cuda_double_is_device(all->b_array, count * sizeof(void *)) &&
                          cuda_double_is_device(all->c_array, count * sizeof(void *)));
}

static void run_groups(const struct products *all) {
    bool right = arrays_are_there(all);
    if (!right)
        cuda_double_fault(cudaErrorIllegalAddress,
                          "products: an array of pointers is not in device memory");
    for (int g = 0, at = 0; g < all->groups && right; g++) {
        for (int i = 0; i < all->size[g] && right; i++, at++) {
            struct double_product p = all->product[g];
            if (all->c_array) {
                p.a = all->a_array[at];
                p.b = all->b_array[at];
                p.c = all->c_array[at];
            } else {
                p.a = offset(p.a, p.type, i * all->stride_a);
                p.b = offset(p.b, p.type, i * all->stride_b);
                p.c = (void *)(uintptr_t)offset(p.c, p.type_c, i * all->stride_c);
            }
            right = run_product(&p);
        }
    }
}

/* Marks the workspace as this call's before and looks whether it still is afterwards. */
static void run_products(void *context) {
    static _Atomic unsigned char last_mark;
    struct products *all = context;
    unsigned char mark = ++last_mark;
    if (!cuda_double_is_device(all->workspace, all->workspace_bytes))
        all->workspace_bytes = 0;
    if (all->workspace_bytes > 4096)
        all->workspace_bytes = 4096;
    if (all->workspace_bytes)
        memset(all->workspace, mark, all->workspace_bytes);
    run_groups(all);
    for (size_t i = 0; i < all->workspace_bytes; i++) {
        if (all->workspace[i] != mark) {
            cuda_double_fault(cudaErrorLaunchFailure, "products: something else used their "
                                                      "workspace at the same time");
            return;
        }
    }
}

static void release_products(void *context) {
    struct products *all = context;
    free(all->product);
    free(all->size);
    free(all);
}

/* Checks. */

/* What the library's tables of types allow with fp32 sums.  Only fp32 factors may be rounded, and
 * the grouped routine has no fp32 results of bfloat16 factors. */
static bool types_are_supported(cudaDataType a, cudaDataType b, cudaDataType c,
                                cublasComputeType_t compute, bool grouped) {
    if (a != b)
        return false;
    switch (compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
        if (a == CUDA_R_16BF)
            return c == CUDA_R_16BF ? !(grouped && compute == CUBLAS_COMPUTE_32F_PEDANTIC)
                                    : c == CUDA_R_32F && !grouped;
        return a == CUDA_R_32F && c == CUDA_R_32F;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
        return a == CUDA_R_32F && c == CUDA_R_32F;
    default:
        return false; /* those with 16-bit products of fp32 factors are not doubled */
    }
}

static bool shape_is_right(const struct double_product *p) {
    int rows_a = p->transpose_a ? p->k : p->m, rows_b = p->transpose_b ? p->n : p->k;
    return p->m >= 0 && p->n >= 0 && p->k >= 0 && p->lda >= (rows_a > 1 ? rows_a : 1) &&
           p->ldb >= (rows_b > 1 ? rows_b : 1) && p->ldc >= (p->m > 1 ? p->m : 1);
}

static bool operation_is_known(cublasOperation_t operation) {
    return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T;
}

static struct products *make_products(cublasHandle_t handle, int groups) {
    struct products *all = calloc(1, sizeof *all);
    if (!all)
        return NULL;
    all->groups = groups;
    all->product = calloc((size_t)groups + 1, sizeof *all->product);
    all->size = calloc((size_t)groups + 1, sizeof *all->size);
    all->workspace = handle->workspace;
    all->workspace_bytes = handle->workspace_bytes;
    if (all->product && all->size)
        return all;
    release_products(all);
    return NULL;
}

/* Queues the products, or releases them. */
static cublasStatus_t queue_products(cublasHandle_t handle, struct products *all) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    double_enter();
    struct CUstream_st *stream = double_check() ? NULL : double_stream(handle->stream);
    if (!stream || stream->device != handle->device ||
        double_queue(stream, run_products, release_products, all) != cudaSuccess)
        status = CUBLAS_STATUS_EXECUTION_FAILED;
    double_state.counts.products++;
    double_leave();
    if (status)
        release_products(all);
    return status;
}

/* What all products of one shape are given. */
struct call {
    cublasOperation_t transpose_a, transpose_b;
    const void *alpha, *beta;
    cudaDataType type_a, type_b, type_c;
    cublasComputeType_t compute;
    bool grouped;
};

/* `product` has sizes and leading dimensions already. */
static cublasStatus_t complete(cublasHandle_t handle, const struct call *call,
                               struct double_product *product) {
    if (!operation_is_known(call->transpose_a) || !operation_is_known(call->transpose_b))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!call->alpha || !call->beta)
        return CUBLAS_STATUS_INVALID_VALUE;
    product->transpose_a = call->transpose_a != CUBLAS_OP_N;
    product->transpose_b = call->transpose_b != CUBLAS_OP_N;
    if (!shape_is_right(product))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!types_are_supported(call->type_a, call->type_b, call->type_c, call->compute,
                             call->grouped))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memcpy(&product->alpha, call->alpha, sizeof product->alpha);
    memcpy(&product->beta, call->beta, sizeof product->beta);
    product->type = call->type_a;
    product->type_c = call->type_c;
    product->tf32 = call->compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
                    (call->compute == CUBLAS_COMPUTE_32F &&
                     ((unsigned)handle->mode & 15u) == CUBLAS_TF32_TENSOR_OP_MATH);
    return CUBLAS_STATUS_SUCCESS;
}

/* `count` products of one shape; `given` has the matrices or arrays of them, and strides. */
static cublasStatus_t multiply(cublasHandle_t handle, const struct call *call,
                               struct double_product shape, int count,
                               const struct products *given) {
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    cublasStatus_t status =
        count < 0 ? CUBLAS_STATUS_INVALID_VALUE : complete(handle, call, &shape);
    if (status || count == 0 || shape.m == 0 || shape.n == 0)
        return status;
    struct products *all = make_products(handle, 1);
    if (!all)
        return CUBLAS_STATUS_ALLOC_FAILED;
    all->product[0] = shape;
    all->size[0] = count;
    all->a_array = given->a_array;
    all->b_array = given->b_array;
    all->c_array = given->c_array;
    all->stride_a = given->stride_a;
    all->stride_b = given->stride_b;
    all->stride_c = given->stride_c;
    return queue_products(handle, all);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const void *alpha, const void *A, cudaDataType Atype,
                                          int lda, long long int strideA, const void *B,
                                          cudaDataType Btype, int ldb, long long int strideB,
                                          const void *beta, void *C, cudaDataType Ctype, int ldc,
                                          long long int strideC, int batchCount,
                                          cublasComputeType_t computeType, cublasGemmAlgo_t algo) {
    (void)algo; /* which one is about speed */
    struct call call = {transa, transb, alpha, beta, Atype, Btype, Ctype, computeType, false};
    struct double_product shape = {
        .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldc = ldc, .a = A, .b = B, .c = C};
    struct products given = {.stride_a = strideA, .stride_b = strideB, .stride_c = strideC};
    return multiply(handle, &call, shape, batchCount, &given);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void *alpha,
                            const void *A, cudaDataType Atype, int lda, const void *B,
                            cudaDataType Btype, int ldb, const void *beta, void *C,
                            cudaDataType Ctype, int ldc, cublasComputeType_t computeType,
                            cublasGemmAlgo_t algo) {
    return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B,
                                      Btype, ldb, 0, beta, C, Ctype, ldc, 0, 1, computeType, algo);
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                   cublasOperation_t transb, int m, int n, int k, const void *alpha,
                                   const void *const Aarray[], cudaDataType Atype, int lda,
                                   const void *const Barray[], cudaDataType Btype, int ldb,
                                   const void *beta, void *const Carray[], cudaDataType Ctype,
                                   int ldc, int batchCount, cublasComputeType_t computeType,
                                   cublasGemmAlgo_t algo) {
    (void)algo;
    struct call call = {transa, transb, alpha, beta, Atype, Btype, Ctype, computeType, false};
    struct double_product shape = {.m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldc = ldc};
    struct products given = {.a_array = Aarray, .b_array = Barray, .c_array = Carray};
    if (handle && batchCount > 0 && (!Aarray || !Barray || !Carray))
        return CUBLAS_STATUS_INVALID_VALUE;
    return multiply(handle, &call, shape, batchCount, &given);
}

cublasStatus_t cublasGemmGroupedBatchedEx(
    cublasHandle_t handle, const cublasOperation_t transa_array[],
    const cublasOperation_t transb_array[], const int m_array[], const int n_array[],
    const int k_array[], const void *alpha_array, const void *const Aarray[], cudaDataType_t Atype,
    const int lda_array[], const void *const Barray[], cudaDataType_t Btype, const int ldb_array[],
    const void *beta_array, void *const Carray[], cudaDataType_t Ctype, const int ldc_array[],
    int group_count, const int group_size[], cublasComputeType_t computeType) {
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (group_count == 0)
        return CUBLAS_STATUS_SUCCESS;
    if (group_count < 0 || !transa_array || !transb_array || !m_array || !n_array || !k_array ||
        !alpha_array || !beta_array || !Aarray || !Barray || !Carray || !lda_array || !ldb_array ||
        !ldc_array || !group_size)
        return CUBLAS_STATUS_INVALID_VALUE;
    struct products *all = make_products(handle, group_count);
    if (!all)
        return CUBLAS_STATUS_ALLOC_FAILED;
    all->a_array = Aarray;
    all->b_array = Barray;
    all->c_array = Carray;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (int g = 0; g < group_count && !status; g++) {
        struct call call = {transa_array[g],
                            transb_array[g],
                            (const float *)alpha_array + g,
                            (const float *)beta_array + g,
                            Atype,
                            Btype,
                            Ctype,
                            computeType,
                            true};
        all->product[g] = (struct double_product){.m = m_array[g],
                                                  .n = n_array[g],
                                                  .k = k_array[g],
                                                  .lda = lda_array[g],
                                                  .ldb = ldb_array[g],
                                                  .ldc = ldc_array[g]};
        all->size[g] = group_size[g];
        status = group_size[g] < 0 ? CUBLAS_STATUS_INVALID_VALUE
                                   : complete(handle, &call, &all->product[g]);
    }
    if (!status)
        return queue_products(handle, all);
    release_products(all);
    return status;
}
