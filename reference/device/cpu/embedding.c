/* Token and position embedding. */
#include "reference/device/cpu/cpu.h"

struct arguments {
    size_t tokens, sequence, width;
    const int32_t *token;
    const float *token_table, *position_table, *dout;
    float *out, *dtoken_table, *dposition_table;
};

static void add_rows(size_t width, const float *restrict a, const float *restrict b,
                     float *restrict out) {
    for (size_t i = 0; i < width; i++)
        out[i] = a[i] + b[i];
}

static void forward_range(const void *argument, size_t begin, size_t end) {
    const struct arguments *a = argument;
    for (size_t n = begin; n < end; n++)
        add_rows(a->width, a->token_table + (size_t)a->token[n] * a->width,
                 a->position_table + n % a->sequence * a->width, a->out + n * a->width);
}

static void embedding_forward(struct mp_device *device, mp_stream stream, int tokens, int sequence,
                              int width, const int32_t *token, const float *token_table,
                              const float *position_table, void *out) {
    (void)stream;
    struct arguments arguments = {.sequence = (size_t)sequence,
                                  .width = (size_t)width,
                                  .token = token,
                                  .token_table = token_table,
                                  .position_table = position_table,
                                  .out = out};
    mp_cpu_parallel(mp_cpu_of(device), (size_t)tokens, mp_cpu_grain((size_t)width), forward_range,
                    &arguments);
}

static void accumulate_both(size_t begin, size_t end, const float *restrict gradient,
                            float *restrict to_token, float *restrict to_position) {
    for (size_t i = begin; i < end; i++) {
        to_token[i] += gradient[i];
        to_position[i] += gradient[i];
    }
}

/* Threads take columns, not tokens: equal tokens add to the same row, and so the sums come out in
 * the same order for any number of threads. */
static void backward_range(const void *argument, size_t begin, size_t end) {
    const struct arguments *a = argument;
    for (size_t n = 0; n < a->tokens; n++)
        accumulate_both(begin, end, a->dout + n * a->width,
                        a->dtoken_table + (size_t)a->token[n] * a->width,
                        a->dposition_table + n % a->sequence * a->width);
}

static void embedding_backward(struct mp_device *device, mp_stream stream, int tokens, int sequence,
                               int width, const int32_t *token, const void *dout,
                               float *dtoken_table, float *dposition_table) {
    (void)stream;
    struct arguments arguments = {.tokens = (size_t)tokens,
                                  .sequence = (size_t)sequence,
                                  .width = (size_t)width,
                                  .token = token,
                                  .dout = dout,
                                  .dtoken_table = dtoken_table,
                                  .dposition_table = dposition_table};
    enum { GRAIN_COLUMNS = 32 };
    mp_cpu_parallel(mp_cpu_of(device), (size_t)width, GRAIN_COLUMNS, backward_range, &arguments);
}

void MP_CPU_NAME(install_embedding)(struct mp_device_operations *operations) {
    operations->embedding_forward = embedding_forward;
    operations->embedding_backward = embedding_backward;
}
