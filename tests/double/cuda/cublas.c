/* cuBLAS's handles, checks of arguments, and queuing of products. */
#include <stdlib.h>
#include <string.h>

#include "cublas_v2.h"
#include "internal.h"
#include "product.h"

struct cublasContext {
    int device;
    cudaStream_t stream;
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
    if (cuda_double_check())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof **handle);
    if (!*handle)
        return CUBLAS_STATUS_ALLOC_FAILED;
    (*handle)->device = double_device();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion(cublasHandle_t handle, int *version) {
    (void)handle; /* may be NULL */
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
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
    if (bytes && ((uintptr_t)workspace % 256 != 0 || !cuda_double_is_device(workspace, bytes)))
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = bytes ? workspace : NULL;
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    (void)handle; /* products are as exact in either */
    return mode & ~(unsigned)CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
               ? CUBLAS_STATUS_INVALID_VALUE
               : CUBLAS_STATUS_SUCCESS;
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

static float number(const void *scalar) {
    return *(const float *)scalar;
}

/* What the library refuses: shapes, counts, and what its tables of types don't have.  The grouped
 * routine has no fp32 results of bfloat16 factors. */
static cublasStatus_t check(const struct double_product *p, cudaDataType type_b, int count,
                            bool grouped) {
    int rows_a = p->transpose_a ? p->k : p->m, rows_b = p->transpose_b ? p->n : p->k;
    if (count < 0 || p->m < 0 || p->n < 0 || p->k < 0 || p->lda < 1 || p->lda < rows_a ||
        p->ldb < 1 || p->ldb < rows_b || p->ldc < 1 || p->ldc < p->m)
        return CUBLAS_STATUS_INVALID_VALUE;
    bool widens = p->type_c == CUDA_R_32F && !grouped;
    return type_b == p->type && (p->type_c == p->type || widens) ? CUBLAS_STATUS_SUCCESS
                                                                 : CUBLAS_STATUS_NOT_SUPPORTED;
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

/* `count` products of one shape; `given` has arrays of matrices, or strides. */
static cublasStatus_t multiply(cublasHandle_t handle, const struct double_product *shape,
                               cudaDataType type_b, int count, const struct products *given) {
    cublasStatus_t status = check(shape, type_b, count, false);
    if (status || count == 0 || shape->m == 0 || shape->n == 0)
        return status;
    struct products *all = make_products(handle, 1);
    if (!all)
        return CUBLAS_STATUS_ALLOC_FAILED;
    all->product[0] = *shape;
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
    (void)computeType; /* there is one */
    (void)algo;        /* which one is about speed */
    const struct double_product shape = {transa,        transb,       m, n, k, lda,   ldb,  ldc,
                                         number(alpha), number(beta), A, B, C, Atype, Ctype};
    struct products given = {.stride_a = strideA, .stride_b = strideB, .stride_c = strideC};
    return multiply(handle, &shape, Btype, batchCount, &given);
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
    (void)computeType;
    (void)algo;
    const struct double_product shape = {
        transa,        transb,       m,    n,    k,    lda,   ldb,  ldc,
        number(alpha), number(beta), NULL, NULL, NULL, Atype, Ctype};
    struct products given = {.a_array = Aarray, .b_array = Barray, .c_array = Carray};
    return multiply(handle, &shape, Btype, batchCount, &given);
}

cublasStatus_t cublasGemmGroupedBatchedEx(
    cublasHandle_t handle, const cublasOperation_t transa_array[],
    const cublasOperation_t transb_array[], const int m_array[], const int n_array[],
    const int k_array[], const void *alpha_array, const void *const Aarray[], cudaDataType_t Atype,
    const int lda_array[], const void *const Barray[], cudaDataType_t Btype, const int ldb_array[],
    const void *beta_array, void *const Carray[], cudaDataType_t Ctype, const int ldc_array[],
    int group_count, const int group_size[], cublasComputeType_t computeType) {
    (void)computeType;
    struct products *all = make_products(handle, group_count);
    if (!all)
        return CUBLAS_STATUS_ALLOC_FAILED;
    all->a_array = Aarray;
    all->b_array = Barray;
    all->c_array = Carray;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (int g = 0; g < group_count && !status; g++) {
        all->product[g] = (struct double_product){transa_array[g],
                                                  transb_array[g],
                                                  m_array[g],
                                                  n_array[g],
                                                  k_array[g],
                                                  lda_array[g],
                                                  ldb_array[g],
                                                  ldc_array[g],
                                                  number((const float *)alpha_array + g),
                                                  number((const float *)beta_array + g),
                                                  NULL,
                                                  NULL,
                                                  NULL,
                                                  Atype,
                                                  Ctype};
        all->size[g] = group_size[g];
        status = check(&all->product[g], Btype, group_size[g], true);
    }
    if (!status)
        return queue_products(handle, all);
    release_products(all);
    return status;
}
