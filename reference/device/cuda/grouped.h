/* Products of groups by one kernel, for compute capability 9.0: warpgroups multiply what copies of
 * tiles have brought, and each multiprocessor takes tile after tile, whichever group's. */
#pragma once

#include "reference/device/cuda/cuda.h"

/* c[m][n] = op(a) * op(b), as gemm of device.h has it. */
struct mp_cuda_product {
    bool transpose_a, transpose_b;
    int m, n, k;
    const void *a;
    int lda;
    const void *b;
    int ldb;
    void *c;
    int ldc;
    /* NULL, or what AdamW changes by this product, in whose place c is not written. */
    const struct mp_weight_state *state;
};

/* Weights of an update: what shared memory has room for beside the sums of a tile. */
enum { MP_CUDA_MOST_UPDATED = 128 };

#ifdef MP_CUDA_WARPGROUPS
#ifdef __cplusplus
extern "C" {
#endif

/* Whether a kernel can do these products: of bf16, alike but for m (for k where a is transposed)
 * and what they point to, with c in bf16, or in fp32 (or a state) where a is transposed.  It wants
 * a GPU of compute capability 9.0, matrices that begin at multiples of 16 bytes, leading dimensions
 * that are multiples of 8, and k > 0 unless c is fp32. */
bool mp_cuda_grouped_can(const struct mp_cuda *cuda, const struct mp_cuda_product product[],
                         int count);

/* All of them, beside each other, those first that `order` names first; of k = 0 zeros are written.
 * `accumulate`, of fp32 alone, adds to what c holds. */
void mp_cuda_grouped_multiply(struct mp_cuda *cuda, mp_stream stream,
                              const struct mp_cuda_product product[], const int order[], int count,
                              bool accumulate);

/* The same of products with states, MP_CUDA_MOST_UPDATED at most, whose c is not written. */
void mp_cuda_grouped_update(struct mp_cuda *cuda, mp_stream stream,
                            const struct mp_cuda_product product[], const int order[], int count,
                            const struct mp_adamw *settings);

/* Sets cuda->grouped, which stays NULL where the GPU is of another kind or the driver is older than
 * CUDA 12.  Errors: MP_EDEVICE, MP_ENOMEM. */
int mp_cuda_create_grouped(struct mp_cuda *cuda, struct mp_error *error);
void mp_cuda_destroy_grouped(struct mp_cuda *cuda);

#ifdef __cplusplus
}
#endif

#else /* built for no such GPU */

static inline bool mp_cuda_grouped_can(const struct mp_cuda *cuda,
                                       const struct mp_cuda_product product[], int count) {
    (void)cuda, (void)product, (void)count;
    return false;
}
static inline void mp_cuda_grouped_multiply(struct mp_cuda *cuda, mp_stream stream,
                                            const struct mp_cuda_product product[],
                                            const int order[], int count, bool accumulate) {
    (void)cuda, (void)stream, (void)product, (void)order, (void)count, (void)accumulate;
}
static inline void mp_cuda_grouped_update(struct mp_cuda *cuda, mp_stream stream,
                                          const struct mp_cuda_product product[], const int order[],
                                          int count, const struct mp_adamw *settings) {
    (void)cuda, (void)stream, (void)product, (void)order, (void)count, (void)settings;
}
static inline int mp_cuda_create_grouped(struct mp_cuda *cuda, struct mp_error *error) {
    (void)cuda, (void)error;
    return MP_OK;
}
static inline void mp_cuda_destroy_grouped(struct mp_cuda *cuda) {
    (void)cuda;
}

#endif
