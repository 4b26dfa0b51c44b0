/* Matrix products through oneDNN, which is as fast here as one large product from a few rows on
 * and needs nothing to be created per shape.  Products of grouped GEMM are called one after
 * another; the library's threads share each. */
#include "reference/device/cpu/cpu.h"

#include <dnnl.h>

static void scale_matrix(int m, int n, float beta, float *c, int ldc) {
    for (int row = 0; row < m; row++) {
        float *line = c + (size_t)row * (size_t)ldc;
        for (int column = 0; column < n; column++)
            line[column] = beta == 0 ? 0 : beta * line[column];
    }
}

static void gemm(struct mp_device *device, mp_stream stream, bool transpose_a, bool transpose_b,
                 int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                 float beta, float *c, int ldc) {
    (void)stream;
    if (m == 0 || n == 0)
        return;
    if (k == 0) { /* an empty sum; the library would leave c alone */
        scale_matrix(m, n, beta, c, ldc);
        return;
    }
    mp_cpu_use_threads(mp_cpu_of(device)->threads);
    dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k,
                                      alpha, a, lda, b, ldb, beta, c, ldc);
    if (status != dnnl_success)
        mp_fail(&device->error, MP_EDEVICE, "matrix product %d x %d x %d: oneDNN status %d", m, n,
                k, (int)status);
}

static void grouped_gemm(struct mp_device *device, mp_stream stream, enum mp_grouped_gemm kind,
                         int groups, const int rows[], int columns_in, int columns_out, float *in,
                         float *const weight[], float *out, bool accumulate) {
    float beta = accumulate ? 1 : 0;
    for (int group = 0; group < groups; group++) {
        switch (kind) {
        case MP_GROUPED_FORWARD:
            gemm(device, stream, false, false, rows[group], columns_out, columns_in, 1, in,
                 columns_in, weight[group], columns_out, beta, out, columns_out);
            break;
        case MP_GROUPED_INPUT_GRADIENT:
            gemm(device, stream, false, true, rows[group], columns_in, columns_out, 1, out,
                 columns_out, weight[group], columns_out, beta, in, columns_in);
            break;
        case MP_GROUPED_WEIGHT_GRADIENT:
            gemm(device, stream, true, false, columns_in, columns_out, rows[group], 1, in,
                 columns_in, out, columns_out, beta, weight[group], columns_out);
            break;
        }
        in += (size_t)rows[group] * (size_t)columns_in;
        out += (size_t)rows[group] * (size_t)columns_out;
    }
}

void MP_CPU_NAME(install_gemm)(struct mp_device_operations *operations) {
    operations->gemm = gemm;
    operations->grouped_gemm = grouped_gemm;
}
