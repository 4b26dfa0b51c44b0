/* Products against sums in double precision; what the library refuses; workspaces. */
#include "cublas_v2.h"
#include "support.h"

static uint64_t random_state;
static cublasHandle_t handle;
static cudaStream_t stream;

static int set_up(void **state) {
    (void)state;
    cuda_double_reset();
    stream = make_stream();
    assert_int_equal(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasSetStream(handle, stream), CUBLAS_STATUS_SUCCESS);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    struct cuda_double_counts counts;
    cuda_double_reset();
    assert_int_equal(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
    assert_cuda(cudaStreamDestroy(stream));
    cuda_double_get_counts(&counts);
    assert_int_equal(counts.device_live, 0);
    return 0;
}

/* A matrix of fp32 or bfloat16 numbers, as stored, and the same in double. */
struct matrix {
    int rows, columns, ld;
    cudaDataType type;
    double *value; /* [columns][ld] */
    void *device;
};

static size_t bytes_of(cudaDataType type) {
    return type == CUDA_R_32F ? 4 : 2;
}

static size_t elements_of(const struct matrix *m) {
    return (size_t)m->ld * (size_t)(m->columns > 1 ? m->columns - 1 : 0) +
           (size_t)(m->columns ? m->rows : 0);
}

static double stored(const void *elements, cudaDataType type, size_t at) {
    if (type == CUDA_R_32F)
        return ((const float *)elements)[at];
    uint32_t bits = (uint32_t)((const uint16_t *)elements)[at] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* No larger than it has to be: the last column ends with its last row. */
static struct matrix make_matrix(int rows, int columns, cudaDataType type) {
    struct matrix m = {rows, columns, rows + test_random_int(&random_state, 0, 5),
                       type, NULL,    NULL};
    m.ld = m.ld ? m.ld : 1;
    size_t count = elements_of(&m);
    void *host = malloc(count * 4 + 1);
    m.value = calloc(count + 1, sizeof *m.value);
    assert_true(host && m.value);
    for (size_t i = 0; i < count; i++) {
        float value = (float)(test_random_double(&random_state) - 0.5);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (type == CUDA_R_32F)
            ((float *)host)[i] = value;
        else
            ((uint16_t *)host)[i] = (uint16_t)(bits >> 16);
        m.value[i] = stored(host, type, i);
    }
    if (count)
        m.device = to_device(host, count * bytes_of(type));
    free(host);
    return m;
}

static void free_matrix(struct matrix *m) {
    free(m->value);
    assert_cuda(cudaFree(m->device));
}

static double factor(const struct matrix *m, bool transposed, int row, int column) {
    return transposed ? m->value[column + (size_t)row * (size_t)m->ld]
                      : m->value[row + (size_t)column * (size_t)m->ld];
}

/* c on the device is alpha * op(a) * op(b) + beta * c, and nothing else has changed. */
static void check_product(const struct matrix *a, bool transpose_a, const struct matrix *b,
                          bool transpose_b, const struct matrix *c, int k, double alpha,
                          double beta, double precision) {
    size_t count = elements_of(c);
    void *got = malloc(count * 4 + 1);
    assert_non_null(got);
    if (count)
        from_device(got, c->device, count * bytes_of(c->type));
    for (size_t i = 0; i < count; i++) {
        int row = (int)(i % (size_t)c->ld), column = (int)(i / (size_t)c->ld);
        double value = stored(got, c->type, i), expected = 0, magnitude = 0;
        if (row >= c->rows) {
            assert_true(value == c->value[i]);
            continue;
        }
        for (int j = 0; j < k; j++) {
            double term =
                factor(a, transpose_a, row, j) * factor(b, transpose_b, j, column) * alpha;
            expected += term;
            magnitude += fabs(term);
        }
        if (beta != 0)
            expected += beta * c->value[i];
        magnitude += fabs(beta * c->value[i]);
        if (c->type == CUDA_R_16BF)
            magnitude += fabs(expected) * (0x1p-8 / precision);
        if (!(fabs(value - expected) <= precision * magnitude))
            fail_msg("row %d, column %d: %g, expected %g", row, column, value, expected);
    }
    free(got);
}

static cublasStatus_t multiply(const struct matrix *a, bool transpose_a, const struct matrix *b,
                               bool transpose_b, const struct matrix *c, int k, float alpha,
                               float beta) {
    return cublasGemmEx(handle, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                        transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, c->rows, c->columns, k, &alpha,
                        a->device, a->type, a->ld, b->device, b->type, b->ld, &beta, c->device,
                        c->type, c->ld, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

static void test_products(void **state) {
    (void)state;
    static const cudaDataType types[][2] = {
        {CUDA_R_32F, CUDA_R_32F}, {CUDA_R_16BF, CUDA_R_16BF}, {CUDA_R_16BF, CUDA_R_32F}};
    for (int i = 0; i < 96; i++) {
        cudaDataType type = types[i / 4 % 3][0], type_c = types[i / 4 % 3][1];
        bool transpose_a = i & 1, transpose_b = i & 2;
        int m = test_random_int(&random_state, 1, 70), n = test_random_int(&random_state, 1, 40);
        int k = test_random_int(&random_state, 0, 90);
        float alpha = (float)(test_random_double(&random_state) * 2 - 1);
        float beta = i / 12 % 2 ? (float)test_random_double(&random_state) : 0;
        struct matrix a = transpose_a ? make_matrix(k, m, type) : make_matrix(m, k, type);
        struct matrix b = transpose_b ? make_matrix(n, k, type) : make_matrix(k, n, type);
        struct matrix c = make_matrix(m, n, type_c);
        assert_int_equal(multiply(&a, transpose_a, &b, transpose_b, &c, k, alpha, beta),
                         CUBLAS_STATUS_SUCCESS);
        check_product(&a, transpose_a, &b, transpose_b, &c, k, alpha, beta, 1e-6);
        free_matrix(&a);
        free_matrix(&b);
        free_matrix(&c);
    }
}

/* With beta 0 what was in c does not matter: fresh memory is full of NaN. */
static void test_results_of_nothing(void **state) {
    (void)state;
    struct matrix a = make_matrix(5, 4, CUDA_R_32F), b = make_matrix(4, 3, CUDA_R_32F);
    struct matrix c = make_matrix(5, 3, CUDA_R_32F);
    size_t bytes = elements_of(&c) * 4;
    assert_cuda(cudaMemsetAsync(c.device, 0xff, bytes, stream));
    c.ld = 5;
    assert_int_equal(multiply(&a, false, &b, false, &c, 4, 1, 0), CUBLAS_STATUS_SUCCESS);
    check_product(&a, false, &b, false, &c, 4, 1, 0, 1e-6);
    free_matrix(&a);
    free_matrix(&b);
    free_matrix(&c);
}

/* TF32 is less exact than fp32, and as exact as it should be. */
static void test_rounded_factors(void **state) {
    (void)state;
    enum { SIZE = 40 };
    struct matrix a = make_matrix(SIZE, SIZE, CUDA_R_32F), b = make_matrix(SIZE, SIZE, CUDA_R_32F);
    struct matrix c = make_matrix(SIZE, SIZE, CUDA_R_32F);
    float exact[SIZE * (SIZE + 5)], rounded[SIZE * (SIZE + 5)];
    size_t bytes = elements_of(&c) * 4;
    assert_int_equal(multiply(&a, false, &b, false, &c, SIZE, 1, 0), CUBLAS_STATUS_SUCCESS);
    from_device(exact, c.device, bytes);
    assert_int_equal(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(multiply(&a, false, &b, false, &c, SIZE, 1, 0), CUBLAS_STATUS_SUCCESS);
    check_product(&a, false, &b, false, &c, SIZE, 1, 0, 0x1p-10);
    from_device(rounded, c.device, bytes);
    assert_memory_not_equal(exact, rounded, bytes);
    free_matrix(&a);
    free_matrix(&b);
    free_matrix(&c);
}

static void test_batches_with_strides(void **state) {
    (void)state;
    enum { BATCH = 5, M = 17, N = 9, K = 23 };
    /* One matrix of all, side by side: the stride is that of K or N columns. */
    struct matrix a = make_matrix(M, K * BATCH, CUDA_R_16BF);
    struct matrix b = make_matrix(K, N * BATCH, CUDA_R_16BF);
    struct matrix c = make_matrix(M, N * BATCH, CUDA_R_16BF);
    float alpha = 1, beta = 0;
    assert_int_equal(cublasGemmStridedBatchedEx(
                         handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &alpha, a.device, CUDA_R_16BF,
                         a.ld, (long long)a.ld * K, b.device, CUDA_R_16BF, b.ld,
                         (long long)b.ld * N, &beta, c.device, CUDA_R_16BF, c.ld,
                         (long long)c.ld * N, BATCH, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                     CUBLAS_STATUS_SUCCESS);
    for (int i = 0; i < BATCH; i++) {
        struct matrix part_a = a, part_b = b, part_c = c;
        part_a.value += (size_t)a.ld * K * (size_t)i;
        part_b.value += (size_t)b.ld * N * (size_t)i;
        part_c.value += (size_t)c.ld * N * (size_t)i;
        part_c.device = (char *)c.device + (size_t)c.ld * N * (size_t)i * 2;
        part_c.columns = N;
        check_product(&part_a, false, &part_b, false, &part_c, K, 1, 0, 1e-6);
    }
    free_matrix(&a);
    free_matrix(&b);
    free_matrix(&c);
}

enum { GROUPS = 4, MOST = 3 * GROUPS };

/* Groups of products, each with a shape, of one to three products. */
struct groups {
    cublasOperation_t transpose_a[GROUPS], transpose_b[GROUPS];
    int m[GROUPS], n[GROUPS], k[GROUPS], lda[GROUPS], ldb[GROUPS], ldc[GROUPS], size[GROUPS];
    float alpha[GROUPS], beta[GROUPS];
    struct matrix a[MOST], b[MOST], c[MOST];
    void *pointers[3][MOST];
    int count;
};

static void make_groups(struct groups *g, cudaDataType type) {
    memset(g, 0, sizeof *g);
    for (int i = 0; i < GROUPS; i++) {
        bool ta = test_random_int(&random_state, 0, 1), tb = test_random_int(&random_state, 0, 1);
        g->m[i] = test_random_int(&random_state, 0, 30);
        g->n[i] = test_random_int(&random_state, 1, 30);
        g->k[i] = test_random_int(&random_state, 1, 30);
        g->size[i] = test_random_int(&random_state, 1, 3);
        g->transpose_a[i] = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
        g->transpose_b[i] = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
        g->alpha[i] = (float)test_random_double(&random_state);
        g->beta[i] = (float)test_random_int(&random_state, 0, 1);
        for (int j = 0; j < g->size[i]; j++) {
            int at = g->count++;
            g->a[at] = make_matrix(ta ? g->k[i] : g->m[i], ta ? g->m[i] : g->k[i], type);
            g->b[at] = make_matrix(tb ? g->n[i] : g->k[i], tb ? g->k[i] : g->n[i], type);
            g->c[at] = make_matrix(g->m[i], g->n[i], type);
            /* A group has one leading dimension: the least there is room for. */
            g->lda[i] = g->a[at].ld = g->a[at].rows ? g->a[at].rows : 1;
            g->ldb[i] = g->b[at].ld = g->b[at].rows;
            g->ldc[i] = g->c[at].ld = g->c[at].rows ? g->c[at].rows : 1;
            g->pointers[0][at] = g->a[at].device;
            g->pointers[1][at] = g->b[at].device;
            g->pointers[2][at] = g->c[at].device;
        }
    }
}

static cublasStatus_t multiply_groups(const struct groups *g, void *pointers[3], cudaDataType type,
                                      cudaDataType type_c) {
    return cublasGemmGroupedBatchedEx(handle, g->transpose_a, g->transpose_b, g->m, g->n, g->k,
                                      g->alpha, (const void *const *)pointers[0], type, g->lda,
                                      (const void *const *)pointers[1], type, g->ldb, g->beta,
                                      (void *const *)pointers[2], type_c, g->ldc, GROUPS, g->size,
                                      CUBLAS_COMPUTE_32F);
}

static void test_groups(void **state) {
    (void)state;
    static const cudaDataType types[] = {CUDA_R_32F, CUDA_R_16BF};
    for (int i = 0; i < 10; i++) {
        static struct groups g;
        void *pointers[3];
        cudaDataType type = types[i % 2];
        make_groups(&g, type);
        for (int j = 0; j < 3; j++)
            pointers[j] = to_device(g.pointers[j], sizeof g.pointers[j]);
        if (type == CUDA_R_16BF)
            assert_int_equal(multiply_groups(&g, pointers, type, CUDA_R_32F),
                             CUBLAS_STATUS_NOT_SUPPORTED);
        assert_int_equal(multiply_groups(&g, pointers, type, type), CUBLAS_STATUS_SUCCESS);
        for (int group = 0, at = 0; group < GROUPS; group++)
            for (int j = 0; j < g.size[group]; j++, at++)
                check_product(&g.a[at], g.transpose_a[group] != CUBLAS_OP_N, &g.b[at],
                              g.transpose_b[group] != CUBLAS_OP_N, &g.c[at], g.k[group],
                              g.alpha[group], g.beta[group], 1e-6);
        for (int j = 0; j < 3; j++)
            assert_cuda(cudaFree(pointers[j]));
        for (int at = 0; at < g.count; at++) {
            free_matrix(&g.a[at]);
            free_matrix(&g.b[at]);
            free_matrix(&g.c[at]);
        }
    }
}

static void test_batches_by_pointers(void **state) {
    (void)state;
    struct matrix a = make_matrix(6, 7, CUDA_R_32F), b = make_matrix(7, 8, CUDA_R_32F);
    struct matrix c[2] = {make_matrix(6, 8, CUDA_R_32F), make_matrix(6, 8, CUDA_R_32F)};
    int ldc = 6;
    float alpha = 1, beta = 0;
    c[0].ld = c[1].ld = ldc;
    void *from_a[2] = {a.device, a.device}, *from_b[2] = {b.device, b.device};
    void *to[2] = {c[0].device, c[1].device};
    void *device_a = to_device(from_a, sizeof from_a), *device_b = to_device(from_b, sizeof from_b);
    void *device_c = to_device(to, sizeof to);
    assert_int_equal(cublasGemmBatchedEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 6, 8, 7, &alpha,
                                         device_a, CUDA_R_32F, a.ld, device_b, CUDA_R_32F, b.ld,
                                         &beta, device_c, CUDA_R_32F, ldc, 2, CUBLAS_COMPUTE_32F,
                                         CUBLAS_GEMM_DEFAULT),
                     CUBLAS_STATUS_SUCCESS);
    for (int i = 0; i < 2; i++) {
        check_product(&a, false, &b, false, &c[i], 7, 1, 0, 1e-6);
        free_matrix(&c[i]);
    }
    assert_cuda(cudaFree(device_a));
    assert_cuda(cudaFree(device_b));
    assert_cuda(cudaFree(device_c));
    free_matrix(&a);
    free_matrix(&b);
}

static void test_refusals(void **state) {
    (void)state;
    struct matrix a = make_matrix(6, 7, CUDA_R_32F), b = make_matrix(7, 8, CUDA_R_32F);
    struct matrix c = make_matrix(6, 8, CUDA_R_32F), wrong;
    wrong = a;
    wrong.ld = 5;
    assert_int_equal(multiply(&wrong, false, &b, false, &c, 7, 1, 0), CUBLAS_STATUS_INVALID_VALUE);
    wrong = b;
    wrong.ld = 6;
    assert_int_equal(multiply(&a, false, &wrong, false, &c, 7, 1, 0), CUBLAS_STATUS_INVALID_VALUE);
    wrong = c;
    wrong.ld = 5;
    assert_int_equal(multiply(&a, false, &b, false, &wrong, 7, 1, 0), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(multiply(&a, false, &b, false, &c, -1, 1, 0), CUBLAS_STATUS_INVALID_VALUE);
    wrong = c;
    wrong.type = CUDA_R_16BF;
    assert_int_equal(multiply(&a, false, &b, false, &wrong, 7, 1, 0), CUBLAS_STATUS_NOT_SUPPORTED);
    wrong = a;
    wrong.type = CUDA_R_16BF;
    assert_int_equal(multiply(&wrong, false, &b, false, &c, 7, 1, 0), CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(cublasSetMathMode(handle, (cublasMath_t)5), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSetStream(handle, (cudaStream_t)(void *)&a),
                     CUBLAS_STATUS_INVALID_VALUE);
    cublasHandle_t own = handle;
    handle = NULL;
    assert_int_equal(cublasSetStream(handle, stream), CUBLAS_STATUS_NOT_INITIALIZED);
    assert_int_equal(cublasSetWorkspace(handle, NULL, 0), CUBLAS_STATUS_NOT_INITIALIZED);
    assert_int_equal(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH), CUBLAS_STATUS_NOT_INITIALIZED);
    assert_int_equal(cublasDestroy(handle), CUBLAS_STATUS_NOT_INITIALIZED);
    assert_int_equal(multiply(&a, false, &b, false, &c, 7, 1, 0), CUBLAS_STATUS_NOT_INITIALIZED);
    handle = own;
    cuda_double_fail_product(2, CUBLAS_STATUS_INTERNAL_ERROR);
    assert_int_equal(multiply(&a, false, &b, false, &c, 7, 1, 0), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(multiply(&a, false, &b, false, &c, 7, 1, 0), CUBLAS_STATUS_INTERNAL_ERROR);
    assert_int_equal(multiply(&a, false, &b, false, &c, 7, 1, 0), CUBLAS_STATUS_SUCCESS);
    check_product(&a, false, &b, false, &c, 7, 1, 0, 1e-6);
    free_matrix(&a);
    free_matrix(&b);
    free_matrix(&c);
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

static void test_pointers_elsewhere(void **state) {
    (void)state;
    struct matrix a = make_matrix(6, 6, CUDA_R_32F);
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

static void test_matrices_elsewhere(void **state) {
    (void)state;
    struct matrix a = make_matrix(6, 7, CUDA_R_32F), b = make_matrix(7, 8, CUDA_R_32F);
    struct matrix c = make_matrix(6, 8, CUDA_R_32F), wrong = a;
    wrong.ld += 1; /* reaches beyond the end */
    struct heard heard = listen_to_errors();
    cublasStatus_t status = multiply(&wrong, false, &b, false, &c, 7, 1, 0);
    expect_fault("not in device memory", heard, cudaErrorIllegalAddress);
    assert_int_equal(status, CUBLAS_STATUS_SUCCESS);
    wrong = c;
    wrong.device = wrong.value; /* of the host */
    heard = listen_to_errors();
    status = multiply(&a, false, &b, false, &wrong, 7, 1, 0);
    expect_fault("not in device memory", heard, cudaErrorIllegalAddress);
    assert_int_equal(status, CUBLAS_STATUS_SUCCESS);
    free_matrix(&a);
    free_matrix(&b);
    free_matrix(&c);
}

/* Products on two streams with one workspace are told; with a workspace each they are right. */
static void test_workspaces(void **state) {
    (void)state;
    enum { SIZE = 300, BYTES = 4096 };
    struct matrix a = make_matrix(SIZE, SIZE, CUDA_R_32F), b = make_matrix(SIZE, SIZE, CUDA_R_32F);
    struct matrix c[2] = {make_matrix(SIZE, SIZE, CUDA_R_32F), make_matrix(SIZE, SIZE, CUDA_R_32F)};
    cudaStream_t other = make_stream(), streams[2] = {stream, other};
    char *workspace = device_memory(2 * BYTES), text[1024];
    cuda_double_set_delay(2000);
    for (int shared = 0; shared < 2; shared++) {
        struct heard heard = listen_to_errors();
        for (int i = 0; i < 40; i++) {
            cublasSetStream(handle, streams[i % 2]);
            cublasSetWorkspace(handle, workspace + (shared ? 0 : BYTES * (i % 2)), BYTES);
            multiply(&a, false, &b, false, &c[i % 2], SIZE, 1, 0);
        }
        cudaError_t error = cudaDeviceSynchronize();
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

static void test_speed(void **state) {
    (void)state;
    struct matrix a = make_matrix(768, 768, CUDA_R_16BF), b = make_matrix(768, 256, CUDA_R_16BF);
    struct matrix c = make_matrix(768, 256, CUDA_R_16BF);
    cudaEvent_t start, end;
    float best_ms = INFINITY;
    assert_cuda(cudaEventCreate(&start));
    assert_cuda(cudaEventCreate(&end));
    for (int i = 0; i < 5; i++) {
        float ms;
        assert_cuda(cudaEventRecord(start, stream));
        assert_int_equal(multiply(&a, true, &b, false, &c, 768, 1, 0), CUBLAS_STATUS_SUCCESS);
        assert_cuda(cudaEventRecord(end, stream));
        assert_cuda(cudaEventSynchronize(end));
        assert_cuda(cudaEventElapsedTime(&ms, start, end));
        best_ms = fminf(best_ms, ms);
    }
    print_message("768 x 256 x 768: %.1f ms\n", best_ms);
    check_product(&a, true, &b, false, &c, 768, 1, 0, 1e-6);
    assert_cuda(cudaEventDestroy(start));
    assert_cuda(cudaEventDestroy(end));
    free_matrix(&a);
    free_matrix(&b);
    free_matrix(&c);
}

static void test_names_and_versions(void **state) {
    (void)state;
    int version, major;
    assert_int_equal(cublasGetVersion(handle, &version), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasGetProperty(MAJOR_VERSION, &major), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(version / 10000, major);
    assert_string_equal(cublasGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED),
                        "CUBLAS_STATUS_NOT_SUPPORTED");
    assert_string_equal(cublasGetStatusString(CUBLAS_STATUS_SUCCESS), "success");
    cuda_double_set_device_count(0);
    cublasHandle_t none;
    assert_int_equal(cublasCreate(&none), CUBLAS_STATUS_NOT_INITIALIZED);
}

int main(void) {
    random_state = test_seed();
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_products),
        TEST(test_results_of_nothing),
        TEST(test_rounded_factors),
        TEST(test_batches_with_strides),
        TEST(test_groups),
        TEST(test_batches_by_pointers),
        TEST(test_refusals),
        TEST(test_pointers_elsewhere),
        TEST(test_matrices_elsewhere),
        TEST(test_workspaces),
        TEST(test_speed),
        TEST(test_names_and_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
