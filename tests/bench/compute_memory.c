/* Operations bound by memory, in bytes per second, beside a copy of as many bytes: what they must
 * read and write, each once, over the time they take. */
#include <string.h>

#include "reference/base/median.h"
#include "tests/bench/compute_bench.h"

enum { ROWS = 8192, WIDTH = 512, TOP_K = 2, ELEMENTS = ROWS * WIDTH };
enum { LARGE = 7, COLUMNS = 2, LINES = 4, FLOATS = LARGE + COLUMNS + LINES + 2 };

struct buffers {
    float *large[LARGE];    /* [ROWS][WIDTH] each */
    float *column[COLUMNS]; /* [ROWS] */
    float *line[LINES];     /* [WIDTH] */
    float *from, *to;       /* for the copy: as large as the most bytes of an operation */
    int32_t *index;         /* [ROWS] a permutation */
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

/* Where all floats are, and how many of each. */
static void list_floats(struct buffers *b, float **array[FLOATS], size_t count[FLOATS]) {
    int n = 0;
    for (int i = 0; i < LARGE; i++, n++) {
        array[n] = &b->large[i];
        count[n] = ELEMENTS;
    }
    for (int i = 0; i < COLUMNS; i++, n++) {
        array[n] = &b->column[i];
        count[n] = ROWS;
    }
    for (int i = 0; i < LINES; i++, n++) {
        array[n] = &b->line[i];
        count[n] = WIDTH;
    }
    array[n] = &b->from;
    array[n + 1] = &b->to;
    count[n] = count[n + 1] = (size_t)ELEMENTS * 7 / 2;
}

static int create_buffers(struct mp_device *device, struct buffers *b, struct mp_error *error) {
    float **array[FLOATS];
    size_t count[FLOATS];
    bool complete = true;
    list_floats(b, array, count);
    for (int i = 0; i < FLOATS; i++) {
        *array[i] = compute_random_floats(device, count[i]);
        complete = complete && *array[i];
    }
    b->index = device->operations->allocate(device, ROWS * sizeof *b->index);
    if (!complete || !b->index)
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
    float **array[FLOATS];
    size_t count[FLOATS];
    list_floats(b, array, count);
    for (int i = 0; i < FLOATS; i++)
        device->operations->release(device, *array[i]);
    device->operations->release(device, b->index);
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
    json_t *table = json_array();
    for (int i = 0; i < OPERATIONS && !code; i++) {
        double gigabytes = 1e-9 * operations[i].passes * ELEMENTS * sizeof(float);
        double taken = mp_median_of(seconds[i], repeats);
        double floor = mp_median_of(copy_seconds[i], repeats);
        code = mp_bench_add_row(table,
                                json_pack("{s:s, s:f, s:f, s:f}", "operation", operations[i].name,
                                          "gb_per_s", gigabytes / taken, "copy_gb_per_s",
                                          gigabytes / floor, "time_over_copy", taken / floor),
                                error);
    }
    if (!code)
        code = mp_device_check(device, error);
    int added = mp_bench_add(result, json_pack("{s:o}", "memory", table), error);
    return code ? code : added;
}
