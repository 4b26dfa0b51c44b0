/* What the library refuses, and how it tells of matrices and workspaces that are wrong; what
 * products come to is seen in tests of the device. */
#include "cublas_v2.h"
#include "support.h"

static cublasHandle_t handle;
static cudaStream_t stream;

static int begin(void **state) {
    set_up(state);
    stream = make_stream();
    assert_int_equal(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasSetStream(handle, stream), CUBLAS_STATUS_SUCCESS);
    return 0;
}

static int finish(void **state) {
    cuda_double_reset();
    assert_int_equal(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
    assert_cuda(cudaStreamDestroy(stream));
    return tear_down(state);
}

/* In device memory, no larger than it has to be: the last column ends with its last row. */
struct matrix {
    int rows, columns, ld;
    cudaDataType type;
    void *device;
};

static struct matrix make_matrix(int rows, int columns) {
    struct matrix m = {rows, columns, rows + test_random_int(&random_state, 0, 5), CUDA_R_32F,
                       NULL};
    m.device = device_memory(4 * (size_t)(m.ld * (columns - 1) + rows));
    return m;
}

static void free_matrix(struct matrix *m) {
    assert_cuda(cudaFree(m->device));
}

static cublasStatus_t multiply(const struct matrix *a, const struct matrix *b,
                               const struct matrix *c, int k) {
    const float alpha = 1, beta = 0;
    return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, c->rows, c->columns, k, &alpha, a->device,
                        a->type, a->ld, b->device, b->type, b->ld, &beta, c->device, c->type, c->ld,
                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

TEST_WITH(test_refusals, begin, finish) {
    static const struct {
        int matrix, ld;
        cudaDataType type;
        cublasStatus_t status;
    } wrong[] = {
        {0, 5, CUDA_R_32F, CUBLAS_STATUS_INVALID_VALUE},
        {1, 6, CUDA_R_32F, CUBLAS_STATUS_INVALID_VALUE},
        {2, 5, CUDA_R_32F, CUBLAS_STATUS_INVALID_VALUE},
        {0, 6, CUDA_R_16BF, CUBLAS_STATUS_NOT_SUPPORTED},
        {2, 6, CUDA_R_16BF, CUBLAS_STATUS_NOT_SUPPORTED},
    };
    struct matrix right[] = {make_matrix(6, 7), make_matrix(7, 8), make_matrix(6, 8)};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct matrix m[] = {right[0], right[1], right[2]};
        m[wrong[i].matrix].ld = wrong[i].ld;
        m[wrong[i].matrix].type = wrong[i].type;
        assert_int_equal(multiply(&m[0], &m[1], &m[2], 7), wrong[i].status);
    }
    assert_int_equal(multiply(&right[0], &right[1], &right[2], -1), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSetMathMode(handle, (cublasMath_t)5), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSetStream(handle, (cudaStream_t)(void *)right),
                     CUBLAS_STATUS_INVALID_VALUE);
    for (int i = 0; i < 3; i++)
        free_matrix(&right[i]);
}

/* The stream's error, and the sentence that says why. */
static void expect_fault(const char *why, struct heard heard, cudaError_t expected) {
    char text[1024];
    cudaError_t error = cudaDeviceSynchronize();
    stop_listening(&heard, text, sizeof text);
    assert_int_equal(error, expected);
    if (!strstr(text, why))
        fail_msg("told: %s", text);
    cuda_double_reset();
}

TEST_WITH(test_pointers_elsewhere, begin, finish) {
    struct matrix a = make_matrix(6, 6);
    const void *in[1] = {a.device};
    void *out[1] = {a.device};
    float alpha = 1, beta = 0;
    struct heard heard = listen_to_errors();
    cublasStatus_t status = cublasGemmBatchedEx(
        handle, CUBLAS_OP_N, CUBLAS_OP_N, 6, 6, 6, &alpha, in, CUDA_R_32F, a.ld, in, CUDA_R_32F,
        a.ld, &beta, out, CUDA_R_32F, a.ld, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    expect_fault("array of pointers is not in device memory", heard, cudaErrorIllegalAddress);
    assert_int_equal(status, CUBLAS_STATUS_SUCCESS);
    free_matrix(&a);
}

TEST_WITH(test_matrices_elsewhere, begin, finish) {
    struct matrix a = make_matrix(6, 7), b = make_matrix(7, 8);
    struct matrix c = make_matrix(6, 8), wrong = a;
    wrong.ld += 1; /* reaches beyond the end */
    struct heard heard = listen_to_errors();
    cublasStatus_t status = multiply(&wrong, &b, &c, 7);
    expect_fault("not in device memory", heard, cudaErrorIllegalAddress);
    assert_int_equal(status, CUBLAS_STATUS_SUCCESS);
    wrong = c;
    wrong.device = &wrong; /* of the host */
    heard = listen_to_errors();
    status = multiply(&a, &b, &wrong, 7);
    expect_fault("not in device memory", heard, cudaErrorIllegalAddress);
    assert_int_equal(status, CUBLAS_STATUS_SUCCESS);
    free_matrix(&a);
    free_matrix(&b);
    free_matrix(&c);
}

/* Products on two streams with one workspace are told; with a workspace each they are right. */
TEST_WITH(test_workspaces, begin, finish) {
    enum { SIZE = 300, BYTES = 4096 };
    struct matrix a = make_matrix(SIZE, SIZE), b = make_matrix(SIZE, SIZE);
    struct matrix c[2] = {make_matrix(SIZE, SIZE), make_matrix(SIZE, SIZE)};
    cudaStream_t other = make_stream(), streams[2] = {stream, other};
    char *workspace = device_memory(2 * BYTES), text[1024];
    cuda_double_set_delay(2000);
    for (int shared = 0; shared < 2; shared++) {
        struct heard heard = listen_to_errors();
        cudaError_t error = cudaSuccess;
        /* Busy processors may take long until both are at it at once. */
        for (int round = 0; round < (shared ? 50 : 1) && !error; round++) {
            for (int i = 0; i < 40; i++) {
                cublasSetStream(handle, streams[i % 2]);
                cublasSetWorkspace(handle, workspace + (shared ? 0 : BYTES * (i % 2)), BYTES);
                multiply(&a, &b, &c[i % 2], SIZE);
            }
            error = cudaDeviceSynchronize();
        }
        stop_listening(&heard, text, sizeof text);
        assert_int_equal(error, shared ? cudaErrorLaunchFailure : cudaSuccess);
        assert_true((strstr(text, "workspace") != NULL) == shared);
    }
    cuda_double_reset();
    assert_int_equal(cublasSetWorkspace(handle, workspace + 1, 100), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSetWorkspace(handle, text, 100), CUBLAS_STATUS_INVALID_VALUE);
    assert_cuda(cudaFree(workspace));
    assert_cuda(cudaStreamDestroy(other));
    free_matrix(&a);
    free_matrix(&b);
    free_matrix(&c[0]);
    free_matrix(&c[1]);
}
