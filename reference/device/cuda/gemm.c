/* Matrix products through cuBLAS, which stores by columns: a matrix of ours is the transpose of the
 * one it sees, so c = a * b is asked for as transpose(c) = transpose(b) * transpose(a), with the
 * same memory and nothing turned.
 *
 * Inputs are elements, sums fp32: CUBLAS_COMPUTE_32F, which on fp32 inputs means no TF32.  Every
 * stream that products run on has a workspace of its own, so that how streams interleave cannot
 * change which split of a sum is chosen or who writes where: results are the same in every run. */
#include "reference/device/cuda/grouped.h"

#include <stdlib.h>

/* What cuBLAS recommends for Hopper; less there means slower algorithms. */
#define WORKSPACE_BYTES ((size_t)32 << 20)

/* Of the largest number of groups; what is handed to cuBLAS lies in arrays of its own. */
struct mp_cuda_products {
    struct mp_cuda_product *product;
    int *order; /* of the products, the largest first */
    cublasOperation_t *first_operation, *second_operation;
    int *rows, *columns, *sums, *first_leading, *second_leading, *result_leading, *problems;
    float *alpha, *beta;
    const void **pointers; /* all first, all second ones, all results */
};

/* Workspaces lie in the scratch memory one after another: the device's (or the caller's) stream,
 * then the side streams. */
size_t mp_cuda_scratch_gemm(const struct mp_device_limits *limits, enum mp_element element) {
    (void)limits;
    (void)element;
    return (1 + MP_CUDA_SIDE_STREAMS) * WORKSPACE_BYTES;
}

static void *workspace(const struct mp_cuda *cuda, int lane) {
    return (char *)cuda->scratch + (size_t)lane * WORKSPACE_BYTES;
}

static cudaDataType_t type_of(enum mp_element element) {
    return element == MP_FLOAT32 ? CUDA_R_32F : CUDA_R_16BF;
}

static cublasOperation_t operation(bool transpose) {
    return transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/* What cuBLAS calls from now on are queued on; `lane` 0 is the stream of the operation, lanes from
 * 1 are the side streams. */
static bool use_stream(struct mp_cuda *cuda, cudaStream_t stream, int lane) {
    cublasStatus_t status = cublasSetStream(cuda->cublas, stream);
    if (status == CUBLAS_STATUS_SUCCESS) /* setting the stream forgets the workspace */
        status = cublasSetWorkspace(cuda->cublas, workspace(cuda, lane), WORKSPACE_BYTES);
    return mp_cuda_note_cublas(cuda, "choosing a stream for matrix products", status);
}

static void multiply(struct mp_cuda *cuda, const struct mp_cuda_product *p, float alpha, float beta,
                     enum mp_element result) {
    cudaDataType_t type = type_of(cuda->device.element);
    cublasStatus_t status =
        cublasGemmEx(cuda->cublas, operation(p->transpose_b), operation(p->transpose_a), p->n, p->m,
                     p->k, &alpha, p->b, type, p->ldb, p->a, type, p->lda, &beta, p->c,
                     type_of(result), p->ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    mp_cuda_note_cublas(cuda, "matrix product", status);
}

/* c = beta * c, as a product with k = 1 of zeros, so that it is there for all types and leading
 * dimensions.  The zeros are where the side streams have their workspaces. */
static void scale_matrix(struct mp_cuda *cuda, cudaStream_t stream, const struct mp_cuda_product *p,
                         float beta, enum mp_element result) {
    size_t longest = (size_t)(p->m > p->n ? p->m : p->n);
    size_t bytes = longest * mp_cuda_element_bytes(cuda);
    struct mp_cuda_product zeros = *p;
    if (bytes > MP_CUDA_SIDE_STREAMS * WORKSPACE_BYTES) {
        mp_cuda_refuse(cuda, MP_ELIMIT, "an empty matrix product of %d x %d", p->m, p->n);
        return;
    }
    zeros.a = zeros.b = workspace(cuda, 1);
    zeros.transpose_a = zeros.transpose_b = false;
    zeros.k = zeros.lda = 1;
    zeros.ldb = p->n;
    if (mp_cuda_note(cuda, "matrix product", cudaMemsetAsync(workspace(cuda, 1), 0, bytes, stream)))
        multiply(cuda, &zeros, 0, beta, result);
}

/* One product on the operation's own stream. */
static void multiply_alone(struct mp_cuda *cuda, cudaStream_t stream,
                           const struct mp_cuda_product *p, float alpha, float beta,
                           enum mp_element result) {
    if (p->m == 0 || p->n == 0 || (p->k == 0 && beta == 1) || !use_stream(cuda, stream, 0))
        return;
    if (p->k == 0)
        scale_matrix(cuda, stream, p, beta, result);
    else
        multiply(cuda, p, alpha, beta, result);
}

static void gemm(struct mp_device *device, mp_stream stream, bool transpose_a, bool transpose_b,
                 int m, int n, int k, float alpha, const void *a, int lda, const void *b, int ldb,
                 float beta, void *c, int ldc) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    struct mp_cuda_product p = {transpose_a, transpose_b, m, n, k, a, lda, b, ldb, c, ldc, NULL};
    multiply_alone(cuda, mp_cuda_stream(cuda, stream), &p, alpha, beta, device->element);
}

static void gemm_float(struct mp_device *device, mp_stream stream, bool transpose_a,
                       bool transpose_b, int m, int n, int k, float alpha, const void *a, int lda,
                       const void *b, int ldb, float beta, float *c, int ldc) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    struct mp_cuda_product p = {transpose_a, transpose_b, m, n, k, a, lda, b, ldb, c, ldc, NULL};
    multiply_alone(cuda, mp_cuda_stream(cuda, stream), &p, alpha, beta, MP_FLOAT32);
}

/* ---- grouped ---- */

struct group {
    int rows, columns_in, columns_out;
    void *in, *weight, *out;
};

static struct mp_cuda_product product_of(enum mp_grouped_gemm kind, const struct group *g) {
    struct mp_cuda_product p = {.m = g->rows, .n = g->columns_out, .k = g->columns_in};
    switch (kind) {
    case MP_GROUPED_FORWARD:
        p.a = g->in, p.lda = g->columns_in;
        p.b = g->weight, p.ldb = g->columns_out;
        p.c = g->out, p.ldc = g->columns_out;
        break;
    case MP_GROUPED_INPUT_GRADIENT:
        p.n = g->columns_in, p.k = g->columns_out;
        p.a = g->out, p.lda = g->columns_out;
        p.b = g->weight, p.ldb = g->columns_out, p.transpose_b = true;
        p.c = g->in, p.ldc = g->columns_in;
        break;
    case MP_GROUPED_WEIGHT_GRADIENT:
        p.m = g->columns_in, p.k = g->rows;
        p.a = g->in, p.lda = g->columns_in, p.transpose_a = true;
        p.b = g->out, p.ldb = g->columns_out;
        p.c = g->weight, p.ldc = g->columns_out;
        break;
    }
    return p;
}

/* The first group behind `begin` whose weight is another one; *sum becomes the rows before it. */
static int next_weight(int begin, int groups, const int rows[], void *const weight[], int *sum) {
    int end = begin;
    for (*sum = 0; end < groups && weight[end] == weight[begin]; end++)
        *sum += rows[end];
    return end;
}

static int count_weights(int groups, const int rows[], void *const weight[]) {
    int count = 0, sum;
    for (int g = 0; g < groups; g = next_weight(g, groups, rows, weight, &sum))
        count++;
    return count;
}

/* Goes on behind the group's rows. */
static void pass(const struct mp_cuda *cuda, struct group *at) {
    size_t bytes = (size_t)at->rows * mp_cuda_element_bytes(cuda);
    at->in = (char *)at->in + bytes * (size_t)at->columns_in;
    at->out = (char *)at->out + bytes * (size_t)at->columns_out;
}

/* The products of the weights that have rows, or of all; returns their number.  `at` is the first
 * group. */
static int list_products(const struct mp_cuda *cuda, enum mp_grouped_gemm kind, int groups,
                         const int rows[], void *const weight[], bool all, struct group at) {
    int count = 0;
    for (int g = 0; g < groups; pass(cuda, &at)) {
        at.weight = weight[g];
        g = next_weight(g, groups, rows, weight, &at.rows);
        if (at.rows > 0 || all)
            cuda->products->product[count++] = product_of(kind, &at);
    }
    return count;
}

/* Gradients of weights that saw no row. */
static void clear_gradients(struct mp_cuda *cuda, cudaStream_t stream, int groups, const int rows[],
                            void *const weight[], size_t bytes) {
    for (int g = 0, sum; g < groups && bytes > 0;) {
        void *gradient = weight[g];
        g = next_weight(g, groups, rows, weight, &sum);
        if (sum == 0)
            mp_cuda_note(cuda, "clearing a gradient", cudaMemsetAsync(gradient, 0, bytes, stream));
    }
}

/* Rows of the product's group: m, but k where a gradient of weights is summed over them.  All else
 * is the same for all groups. */
static int rows_of(const struct mp_cuda_product *p) {
    return p->transpose_a ? p->k : p->m;
}

/* Large products first, so that the small ones fill what is left of the time at the end. */
static void sort_by_rows(const struct mp_cuda_product product[], int count, int order[]) {
    for (int i = 0; i < count; i++) { /* by insertion: there are few, and no memory is needed */
        int at = i;
        for (; at > 0 && rows_of(&product[order[at - 1]]) < rows_of(&product[i]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* One product after another, each on the side stream that has been given the fewest rows. */
static void multiply_side_by_side(struct mp_cuda *cuda, cudaStream_t stream, int count, float beta,
                                  enum mp_element result) {
    static const char doing[] = "putting grouped products in order";
    const struct mp_cuda_product *product = cuda->products->product;
    int *order = cuda->products->order;
    int lanes = count < MP_CUDA_SIDE_STREAMS ? count : MP_CUDA_SIDE_STREAMS;
    int64_t given[MP_CUDA_SIDE_STREAMS] = {0};

    bool ok = mp_cuda_note(cuda, doing, cudaEventRecord(cuda->fork, stream));
    for (int i = 0; i < lanes && ok; i++)
        ok = mp_cuda_note(cuda, doing, cudaStreamWaitEvent(cuda->side[i], cuda->fork, 0));
    sort_by_rows(product, count, order);
    for (int i = 0; i < count && ok; i++) {
        int lane = 0;
        for (int other = 1; other < lanes; other++)
            lane = given[other] < given[lane] ? other : lane;
        given[lane] += rows_of(&product[order[i]]);
        ok = use_stream(cuda, cuda->side[lane], 1 + lane);
        if (ok)
            multiply(cuda, &product[order[i]], 1, beta, result);
    }
    for (int i = 0; i < lanes && ok; i++)
        ok = mp_cuda_note(cuda, doing, cudaEventRecord(cuda->join[i], cuda->side[i])) &&
             mp_cuda_note(cuda, doing, cudaStreamWaitEvent(stream, cuda->join[i], 0));
}

/* All at once by cuBLAS: `count` groups of one product each. */
static void multiply_together(struct mp_cuda *cuda, cudaStream_t stream, int count, float beta,
                              enum mp_element result) {
    const struct mp_cuda_products *to = cuda->products;
    for (int i = 0; i < count; i++) {
        const struct mp_cuda_product *p = &to->product[i];
        to->first_operation[i] = operation(p->transpose_b);
        to->second_operation[i] = operation(p->transpose_a);
        to->rows[i] = p->n;
        to->columns[i] = p->m;
        to->sums[i] = p->k;
        to->first_leading[i] = p->ldb;
        to->second_leading[i] = p->lda;
        to->result_leading[i] = p->ldc;
        to->problems[i] = 1;
        to->alpha[i] = 1;
        to->beta[i] = beta;
        to->pointers[i] = p->b;
        to->pointers[count + i] = p->a;
        to->pointers[2 * count + i] = p->c;
    }
    const size_t bytes = 3 * (size_t)count * sizeof *to->pointers;
    const void *const host = to->pointers;
    const void **pointers = mp_cuda_upload(cuda, stream, 1, &host, &bytes);
    cudaDataType_t type = type_of(cuda->device.element);
    if (!pointers || !use_stream(cuda, stream, 0))
        return;
    cublasStatus_t status = cublasGemmGroupedBatchedEx(
        cuda->cublas, to->first_operation, to->second_operation, to->rows, to->columns, to->sums,
        to->alpha, pointers, type, to->first_leading, pointers + count, type, to->second_leading,
        to->beta, (void *const *)(pointers + 2 * count), type_of(result), to->result_leading, count,
        to->problems, CUBLAS_COMPUTE_32F);
    mp_cuda_note_cublas(cuda, "grouped matrix product", status);
}

/* By one kernel, where it can; gradients of weights that saw no row become zeros on the way. */
static bool multiply_by_tiles(struct mp_cuda *cuda, mp_stream stream, enum mp_grouped_gemm kind,
                              int groups, const int rows[], void *const weight[], bool accumulate,
                              struct group first) {
    const struct mp_cuda_products *to = cuda->products;
    const bool sums = kind == MP_GROUPED_WEIGHT_GRADIENT;
    if (cuda->grouped_products != MP_GROUPED_AUTO || first.columns_in == 0 ||
        first.columns_out == 0 || (accumulate && !sums))
        return false;
    int count = list_products(cuda, kind, groups, rows, weight, sums && !accumulate, first);
    if (count < 2 || !mp_cuda_grouped_can(cuda, to->product, count))
        return false;
    sort_by_rows(to->product, count, to->order);
    mp_cuda_grouped_multiply(cuda, stream, to->product, to->order, count, accumulate);
    return true;
}

static void grouped_gemm(struct mp_device *device, mp_stream stream, enum mp_grouped_gemm kind,
                         int groups, const int rows[], int columns_in, int columns_out, void *in,
                         void *const weight[], void *out, bool accumulate) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    cudaStream_t queue = mp_cuda_stream(cuda, stream);
    float beta = accumulate ? 1 : 0;
    enum mp_element result = kind == MP_GROUPED_WEIGHT_GRADIENT ? MP_FLOAT32 : device->element;
    int weights = count_weights(groups, rows, weight);
    if (weights > cuda->limits.experts) {
        mp_cuda_refuse(cuda, MP_ELIMIT, "grouped matrix product: %d weights, the limit is %d",
                       weights, cuda->limits.experts);
        return;
    }
    struct group first = {0, columns_in, columns_out, in, NULL, out};
    if (multiply_by_tiles(cuda, stream, kind, groups, rows, weight, accumulate, first))
        return;
    int count = list_products(cuda, kind, groups, rows, weight, false, first);
    if (kind == MP_GROUPED_WEIGHT_GRADIENT && !accumulate)
        clear_gradients(cuda, queue, groups, rows, weight,
                        (size_t)columns_in * (size_t)columns_out * sizeof(float));
    if (count == 0)
        return;
    if (count == 1 || columns_in == 0 || columns_out == 0) { /* nothing to do side by side */
        for (int i = 0; i < count; i++)
            multiply_alone(cuda, queue, &cuda->products->product[i], 1, beta, result);
    } else if (cuda->grouped_products == MP_GROUPED_LIBRARY && result == device->element) {
        multiply_together(cuda, queue, count, beta, result);
    } else { /* also where cuBLAS has no grouped routine: results wider than the inputs */
        multiply_side_by_side(cuda, queue, count, beta, result);
    }
}

static bool can_update_grouped(const struct mp_device *device, int weights, int columns_in,
                               int columns_out) {
    const struct mp_cuda *cuda = (const struct mp_cuda *)device;
    return device->element == MP_BFLOAT16 && weights > 0 && weights <= MP_CUDA_MOST_UPDATED &&
           weights <= cuda->limits.experts && columns_in > 0 && columns_in % 8 == 0 &&
           columns_out > 0 && columns_out % 8 == 0;
}

static void grouped_update(struct mp_device *device, mp_stream stream, int groups, const int rows[],
                           int columns_in, int columns_out, void *in, void *out,
                           const struct mp_weight_state state[], const struct mp_adamw *settings) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    const struct mp_cuda_products *to = cuda->products;
    struct group at = {0, columns_in, columns_out, in, NULL, out};
    int count = 0;
    for (int g = 0; g < groups; count++) {
        const struct mp_weight_state *own = &state[g];
        for (at.rows = 0; g < groups && state[g].parameter == own->parameter; g++)
            at.rows += rows[g];
        at.weight = own->parameter;
        to->product[count] = product_of(MP_GROUPED_WEIGHT_GRADIENT, &at);
        to->product[count].state = own;
        pass(cuda, &at);
    }
    if (!mp_cuda_grouped_can(cuda, to->product, count)) {
        mp_cuda_refuse(cuda, MP_EINVAL, "no update of %d weights of %d x %d at these addresses",
                       count, columns_in, columns_out);
        return;
    }
    sort_by_rows(to->product, count, to->order);
    mp_cuda_grouped_update(cuda, stream, to->product, to->order, count, settings);
}

/* ---- arrays ---- */

int mp_cuda_create_products(struct mp_cuda *cuda, struct mp_error *error) {
    enum { INTEGERS = 7 };
    size_t room = cuda->limits.experts > 0 ? (size_t)cuda->limits.experts : 1;
    struct mp_cuda_products *p = calloc(1, sizeof *p);
    cuda->products = p;
    if (!p)
        return mp_fail(error, MP_ENOMEM, "cuda device: no host memory");
    p->product = calloc(room, sizeof *p->product);
    p->order = calloc(room, sizeof *p->order);
    p->first_operation = calloc(2 * room, sizeof *p->first_operation);
    p->rows = calloc(INTEGERS * room, sizeof *p->rows);
    p->alpha = calloc(2 * room, sizeof *p->alpha);
    p->pointers = calloc(3 * room, sizeof *p->pointers);
    if (!p->product || !p->order || !p->first_operation || !p->rows || !p->alpha || !p->pointers)
        return mp_fail(error, MP_ENOMEM, "cuda device: no host memory for %zu groups", room);
    p->second_operation = p->first_operation + room;
    p->beta = p->alpha + room;
    int **integers[INTEGERS] = {&p->rows,          &p->columns,        &p->sums,
                                &p->first_leading, &p->second_leading, &p->result_leading,
                                &p->problems};
    for (int i = 1; i < INTEGERS; i++)
        *integers[i] = p->rows + (size_t)i * room;
    MP_TRY(mp_cuda_create_grouped(cuda, error));
    if (cuda->grouped && cuda->grouped_products == MP_GROUPED_AUTO) {
        cuda->operations.grouped_update = grouped_update;
        cuda->operations.can_update_grouped = can_update_grouped;
    }
    return MP_OK;
}

void mp_cuda_destroy_products(struct mp_cuda *cuda) {
    struct mp_cuda_products *p = cuda->products;
    mp_cuda_destroy_grouped(cuda);
    if (!p)
        return;
    free(p->product);
    free(p->order);
    free(p->first_operation);
    free(p->rows);
    free(p->alpha);
    free(p->pointers);
    free(p);
}

void mp_cuda_install_gemm(struct mp_device_operations *operations) {
    operations->gemm = gemm;
    operations->gemm_float = gemm_float;
    operations->grouped_gemm = grouped_gemm;
}
