/* Matrix products through oneDNN, which is as fast here as one large product from a few rows on
 * and needs nothing to be created per shape.  Products of grouped GEMM are called one after
 * another; the library's threads share each. */
#include "reference/device/cpu/cpu.h"
#include "reference/device/cpu/transpose.h"

#include <dnnl.h>

enum { PART_ROWS = 1024 };

static void scale_matrix(int m, int n, float beta, float *c, int ldc) {
    for (int row = 0; row < m; row++) {
        float *line = c + (size_t)row * (size_t)ldc;
        for (int column = 0; column < n; column++)
            line[column] = beta == 0 ? 0 : beta * line[column];
    }
}

static void multiply(struct mp_device *device, bool transpose_a, bool transpose_b, int m, int n,
                     int k, float alpha, const float *a, int lda, const float *b, int ldb,
                     float beta, float *c, int ldc) {
    mp_cpu_use_threads(mp_cpu_of(device)->threads);
    dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k,
                                      alpha, a, lda, b, ldb, beta, c, ldc);
    if (status != dnnl_success)
        mp_fail(&device->error, MP_EDEVICE, "matrix product %d x %d x %d: oneDNN status %d", m, n,
                k, (int)status);
}

/* In parts of rows, between which others have a turn.  Smaller parts are not free: the library
 * arranges b anew for each, which takes 2 to 6 % more time at 512 rows and twice the time at 256
 * (2048 rows, 1024 x 1024, oneDNN 2.6, AMD EPYC); at 1024 it is lost in the noise.  A transposed a,
 * with few rows and a long sum, is never worth it. */
static void product(struct mp_device *device, bool transpose_a, bool transpose_b, int m, int n,
                    int k, float alpha, const float *a, int lda, const float *b, int ldb,
                    float beta, float *c, int ldc) {
    if (m == 0 || n == 0)
        return;
    if (k == 0) { /* an empty sum; the library would leave c alone */
        if (beta != 1)
            scale_matrix(m, n, beta, c, ldc);
        return;
    }
    const int parts = transpose_a || m < 2 * PART_ROWS ? 1 : m / PART_ROWS;
    for (int part = 0; part < parts; part++) {
        int64_t first = (int64_t)m * part / parts, end = (int64_t)m * (part + 1) / parts;
        multiply(device, transpose_a, transpose_b, (int)(end - first), n, k, alpha, a + first * lda,
                 lda, b, ldb, beta, c + first * ldc, ldc);
        mp_cpu_worked(mp_cpu_of(device), 2 * (end - first) * n * k);
    }
}

/* out * transpose(weight) for one group.
 *
 * With few rows the library spends much of its time on turning the weight: 35 GFLOP/s at 16 rows of
 * 512 x 2048 and 53 at 32, where a product without transposition has 110.  So for few rows it
 * computes weight * transpose(out), the transpose of what is wanted, and the two small matrices
 * are turned here: 68 and 99 GFLOP/s, all included (AMD EPYC, one core, oneDNN 2.6).  Below 16
 * rows or 256 columns and above 128 rows the difference is none or the other way. */
static void input_gradient(struct mp_device *device, int rows, int columns_in, int columns_out,
                           float *in, const float *weight, const float *out, bool accumulate) {
    enum { LEAST_ROWS = 16, LEAST_COLUMNS = 256 };
    struct mp_cpu *cpu = mp_cpu_of(device);
    int width = cpu->limits.width;
    if (accumulate || rows < LEAST_ROWS || rows > MP_CPU_TURNED_ROWS ||
        columns_out < LEAST_COLUMNS || columns_in > width || columns_out > width) {
        product(device, false, true, rows, columns_in, columns_out, 1, out, columns_out, weight,
                columns_out, accumulate ? 1 : 0, in, columns_in);
        return;
    }
    float *turned_out = cpu->turned; /* [columns_out][rows] */
    float *turned_in = turned_out + (size_t)width * MP_CPU_TURNED_ROWS;
    transpose((size_t)rows, (size_t)columns_out, out, (size_t)columns_out, turned_out,
              (size_t)rows);
    product(device, false, false, columns_in, rows, columns_out, 1, weight, columns_out, turned_out,
            rows, 0, turned_in, rows);
    transpose((size_t)columns_in, (size_t)rows, turned_in, (size_t)rows, in, (size_t)columns_in);
}

/* weight = transpose(in) * out for one group, or `added` to what is there.  The library would add
 * the pieces of a long sum to the weight one after another; a product that is complete before it is
 * added has the same bits as one that is computed elsewhere and added to this one there. */
static void weight_gradient(struct mp_device *device, int rows, int columns_in, int columns_out,
                            const float *in, float *weight, const float *out, bool added) {
    struct mp_cpu *cpu = mp_cpu_of(device);
    int room = 2 * MP_CPU_TURNED_ROWS * cpu->limits.width / (columns_out ? columns_out : 1);
    int stripe = room < 1 || room > columns_in ? columns_in : room; /* rows of the weight */
    for (int first = 0; first < columns_in; first += stripe) {
        int some = columns_in - first < stripe ? columns_in - first : stripe;
        float *target = weight + (size_t)first * (size_t)columns_out;
        bool apart = added && room >= 1;
        product(device, true, false, some, columns_out, rows, 1, in + first, columns_in, out,
                columns_out, added && !apart ? 1 : 0, apart ? cpu->turned : target, columns_out);
        if (apart)
            device->operations->add(device, NULL, (size_t)some * (size_t)columns_out, target,
                                    cpu->turned, target);
    }
}

static void gemm(struct mp_device *device, mp_stream stream, bool transpose_a, bool transpose_b,
                 int m, int n, int k, float alpha, const void *a, int lda, const void *b, int ldb,
                 float beta, void *c, int ldc) {
    (void)stream;
    product(device, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static void gemm_float(struct mp_device *device, mp_stream stream, bool transpose_a,
                       bool transpose_b, int m, int n, int k, float alpha, const void *a, int lda,
                       const void *b, int ldb, float beta, float *c, int ldc) {
    gemm(device, stream, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static void grouped_gemm(struct mp_device *device, mp_stream stream, enum mp_grouped_gemm kind,
                         int groups, const int rows[], int columns_in, int columns_out,
                         void *all_in, void *const weight[], void *all_out, bool accumulate) {
    (void)stream;
    float *in = all_in, *out = all_out;
    float beta = accumulate ? 1 : 0;
    bool added = accumulate, last;
    for (int group = 0; group < groups; group++) {
        switch (kind) {
        case MP_GROUPED_FORWARD:
            product(device, false, false, rows[group], columns_out, columns_in, 1, in, columns_in,
                    weight[group], columns_out, beta, out, columns_out);
            break;
        case MP_GROUPED_INPUT_GRADIENT:
            input_gradient(device, rows[group], columns_in, columns_out, in, weight[group], out,
                           accumulate);
            break;
        case MP_GROUPED_WEIGHT_GRADIENT:
            last = group + 1 == groups || weight[group + 1] != weight[group];
            if (rows[group] > 0 || (last && !added))
                weight_gradient(device, rows[group], columns_in, columns_out, in, weight[group],
                                out, added);
            added = accumulate || (!last && (added || rows[group] > 0));
            break;
        }
        in += (size_t)rows[group] * (size_t)columns_in;
        out += (size_t)rows[group] * (size_t)columns_out;
    }
}

void MP_CPU_NAME(install_gemm)(struct mp_device_operations *operations) {
    operations->gemm = gemm;
    operations->gemm_float = gemm_float;
    operations->grouped_gemm = grouped_gemm;
}
