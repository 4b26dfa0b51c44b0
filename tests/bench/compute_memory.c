/* Operations bound by memory, in bytes per second, beside a copy of as many bytes: what they must
 * read and write, each once, over the time they take. */
#include <string.h>

#include "tests/bench/compute_bench.h"

enum { ROWS = 8192, WIDTH = 512, TOP_K = 2, ELEMENTS = ROWS * WIDTH, BUFFERS = 7 };

struct buffers {
    float *large[BUFFERS]; /* [ROWS][WIDTH] each */
    float *column[2];      /* [ROWS] */
    float *line[4];        /* [WIDTH] */
    int32_t *index;        /* [ROWS] a permutation */
    float *from, *to;      /* for the copy: as large as the most bytes of an operation */
};

static void norm_forward(struct mp_device *d, const struct buffers *b) {
    d->operations->layer_norm_forward(d, NULL, ROWS, WIDTH, b->large[0], b->line[0], b->line[1],
                                      b->large[1], b->column[0], b->column[1]);
}

static void norm_backward(struct mp_device *d, const struct buffers *b) {
    d->operations->layer_norm_backward(d, NULL, ROWS, WIDTH, b->large[0], b->line[0], b->column[0],
                                       b->column[1], b->large[1], b->large[2], b->line[2],
                                       b->line[3]);
}

static void gelu_forward(struct mp_device *d, const struct buffers *b) {
    d->operations->gelu_forward(d, NULL, ELEMENTS, b->large[0], b->large[1]);
}

static void gelu_backward(struct mp_device *d, const struct buffers *b) {
    d->operations->gelu_backward(d, NULL, ELEMENTS, b->large[0], b->large[1], b->large[1], NULL);
}

static void adamw(struct mp_device *d, const struct buffers *b) {
    const struct mp_adamw settings = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.01f, 10};
    d->operations->adamw(d, NULL, ELEMENTS, &settings, b->large[3], b->large[4], b->large[5],
                         b->large[6], NULL);
}

static void accumulate(struct mp_device *d, const struct buffers *b) {
    d->operations->accumulate(d, NULL, ELEMENTS, b->large[0], b->large[2]);
}

static void gather(struct mp_device *d, const struct buffers *b) {
    d->operations->gather_rows(d, NULL, ROWS, WIDTH, b->large[0], b->index, b->large[1]);
}

static void combine_forward(struct mp_device *d, const struct buffers *b) {
    d->operations->combine_forward(d, NULL, ROWS / TOP_K, TOP_K, WIDTH, b->large[0], b->index,
                                   b->column[0], b->large[1], b->large[2]);
}

static void combine_backward(struct mp_device *d, const struct buffers *b) {
    d->operations->combine_backward(d, NULL, ROWS / TOP_K, TOP_K, WIDTH, b->large[0], b->index,
                                    b->column[0], b->large[1], false, b->large[2], b->column[1]);
}

static const struct operation {
    const char *name;
    void (*run)(struct mp_device *device, const struct buffers *buffers);
    double passes; /* over [ROWS][WIDTH], reading or writing */
} operations[] = {
    {"layer_norm_forward", norm_forward, 2},
    {"layer_norm_backward", norm_backward, 4},
    {"gelu_forward", gelu_forward, 2},
    {"gelu_backward", gelu_backward, 3},
    {"adamw", adamw, 7},
    {"accumulate", accumulate, 3},
    {"gather", gather, 2},
    {"combine_forward", combine_forward, 2}, /* rows; half as many residuals and results */
    {"combine_backward", combine_backward, 2.5},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static int create_buffers(struct mp_device *device, struct buffers *b, struct mp_error *error) {
    const size_t half_of_most = (size_t)ELEMENTS * 7 / 2;
    struct {
        float **array;
        size_t count;
    } wanted[BUFFERS + 8];
    size_t n = 0, made = 0;
    for (int i = 0; i < BUFFERS; i++, n++) {
        wanted[n].array = &b->large[i];
        wanted[n].count = ELEMENTS;
    }
    for (int i = 0; i < 2; i++, n++) {
        wanted[n].array = &b->column[i];
        wanted[n].count = ROWS;
    }
    for (int i = 0; i < 4; i++, n++) {
        wanted[n].array = &b->line[i];
        wanted[n].count = WIDTH;
    }
    for (int i = 0; i < 2; i++, n++) {
        wanted[n].array = i ? &b->to : &b->from;
        wanted[n].count = half_of_most;
    }
    for (size_t i = 0; i < n; i++) {
        *wanted[i].array = compute_random_floats(device, wanted[i].count);
        made += *wanted[i].array != NULL;
    }
    b->index = device->operations->allocate(device, ROWS * sizeof *b->index);
    if (made < n || !b->index)
        return mp_fail(error, MP_ENOMEM, "compute: no memory for the moved arrays");
    /* As tokens are sorted by expert: one group after another, each in token order. */
    for (uint32_t group = 0, row = 0; group < 64; group++) {
        for (uint32_t i = 0; i < ROWS; i++) {
            if (i * 2654435761u >> 26 == group)
                b->index[row++] = (int32_t)i;
        }
    }
    for (int i = 0; i < ELEMENTS; i++) /* second moments are not negative */
        b->large[6][i] *= b->large[6][i];
    return MP_OK;
}

static void destroy_buffers(struct mp_device *device, struct buffers *b) {
    for (int i = 0; i < BUFFERS; i++)
        device->operations->release(device, b->large[i]);
    for (int i = 0; i < 2; i++)
        device->operations->release(device, b->column[i]);
    for (int i = 0; i < 4; i++)
        device->operations->release(device, b->line[i]);
    device->operations->release(device, b->index);
    device->operations->release(device, b->from);
    device->operations->release(device, b->to);
}

int compute_measure_memory(struct mp_device *device, int repeats, json_t *result,
                           struct mp_error *error) {
    static double seconds[OPERATIONS][COMPUTE_MOST_REPEATS];
    static double copy_seconds[OPERATIONS][COMPUTE_MOST_REPEATS];
    struct buffers buffers = {0};
    int code = create_buffers(device, &buffers, error);
    for (int turn = 0; turn < repeats && !code; turn++) {
        for (int i = 0; i < OPERATIONS; i++) {
            size_t bytes = (size_t)(operations[i].passes * ELEMENTS * sizeof(float));
            double start = compute_seconds();
            operations[i].run(device, &buffers);
            double middle = compute_seconds();
            memcpy(buffers.to, buffers.from, bytes / 2); /* half is read and half written */
            copy_seconds[i][turn] = compute_seconds() - middle;
            seconds[i][turn] = middle - start;
        }
    }
    destroy_buffers(device, &buffers);
    if (code)
        return code;

    json_t *table = json_array();
    for (int i = 0; i < OPERATIONS; i++) {
        double gigabytes = 1e-9 * operations[i].passes * ELEMENTS * sizeof(float);
        double taken = mp_bench_median(seconds[i], repeats);
        double floor = mp_bench_median(copy_seconds[i], repeats);
        json_array_append_new(table,
                              json_pack("{s:s, s:f, s:f, s:f}", "operation", operations[i].name,
                                        "gb_per_s", gigabytes / taken, "copy_gb_per_s",
                                        gigabytes / floor, "time_over_copy", taken / floor));
    }
    return json_object_set_new(result, "memory", table)
               ? mp_fail(error, MP_ENOMEM, "compute: no memory for the result")
               : mp_device_check(device, error);
}
