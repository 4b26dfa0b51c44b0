/* Matrix products by tokens and width: those of an expert, as the trainer has them made.
 *
 * Predictors look a product of (rows x inner) * (inner x columns) up at its rows and the smaller of
 * inner and columns.  With w the width and c the other side of an expert's matrices, t tokens meet
 *   forward          t x w x c and t x c x w,
 *   input gradients  the same two with the matrix transposed,
 *   weight gradients w x t x c, that is at w tokens and width t.
 * So an entry (tokens, width) is the mean over the two of forward, or over those two of backward
 * and a weight gradient of a model of that many tokens' width, as far as such sizes occur; where
 * none of a direction does, the other's stands for it.  Few rows are multiplied faster than
 * gradients of as few: a step of decoding that was charged the mean of all would be predicted too
 * late. */
#include "reference/machine/bench.h"

enum { LEAST_WIDTH = 64 }; /* of a model */

enum kind { FORWARD_IN, FORWARD_OUT, GRADIENT_IN, GRADIENT_OUT, WEIGHTS, KINDS };

struct product {
    struct bench *bench;
    enum kind kind;
    int rows, width, columns;
};

static int other_side(int width) {
    return 2 * width > 1024 ? 2 * width : 1024;
}

static int multiply(void *context, int turn, struct mp_error *error) {
    const struct product *p = context;
    const struct bench *bench = p->bench;
    const struct mp_device_operations *operations = bench->device->operations;
    int t = p->rows, w = p->width, c = p->columns;
    float *narrow = bench_part(bench, 0, turn, (size_t)t * (size_t)w);
    float *wide = bench_part(bench, 1, turn, (size_t)(t > w ? t : w) * (size_t)c);
    float *matrix = bench_part(bench, 2, turn, (size_t)(t > w ? t : w) * (size_t)c);
    (void)error;
    bool out = p->kind == FORWARD_OUT || p->kind == GRADIENT_OUT;
    if (p->kind == WEIGHTS)
        operations->gemm(bench->device, NULL, true, false, t, c, w, 1, narrow, t, wide, c, 0,
                         matrix, c);
    else
        operations->grouped_gemm(bench->device, NULL,
                                 p->kind < GRADIENT_IN ? MP_GROUPED_FORWARD
                                                       : MP_GROUPED_INPUT_GRADIENT,
                                 1, &t, out ? c : w, out ? w : c, out ? wide : narrow,
                                 (void *[]){matrix}, out ? narrow : wide, false);
    return MP_OK;
}

/* Whether an expert has such a product. */
static bool occurs(enum kind kind, int rows, int width) {
    return kind == WEIGHTS ? rows >= LEAST_WIDTH : width >= LEAST_WIDTH || rows < LEAST_WIDTH;
}

static int smallest(void *context, int turn, struct mp_error *error) {
    enum { CALLS = 1000 };
    const struct bench *bench = context;
    (void)error;
    for (int i = 0; i < CALLS; i++) {
        float *at = bench_part(bench, 0, turn, 16);
        bench->device->operations->gemm(bench->device, NULL, false, false, 1, 1, 1, 1, at, 1,
                                        at + 1, 1, 0, at + 2, 1);
    }
    return MP_OK;
}

/* Seconds by operation of an entry, beside the launch, forward and backward; the fastest product's
 * rate goes to *peak. */
static int measure_entry(struct bench *bench, int rows, int width, double launch, double pace[2],
                         double *peak, struct mp_error *error) {
    struct product product = {bench, FORWARD_IN, rows, width, other_side(width)};
    double operations = 2.0 * rows * width * product.columns;
    int count[2] = {0};
    pace[0] = pace[1] = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        double seconds;
        product.kind = (enum kind)kind;
        if (!occurs(product.kind, rows, width))
            continue;
        MP_TRY(bench_time(bench, false, multiply, &product, &seconds, error));
        seconds = seconds > 2 * launch ? seconds - launch : seconds / 2;
        pace[kind >= GRADIENT_IN] += seconds / operations;
        *peak = operations / seconds > *peak ? operations / seconds : *peak;
        count[kind >= GRADIENT_IN]++;
    }
    for (int way = 0; way < 2; way++)
        pace[way] /= count[way] ? count[way] : 1;
    for (int way = 0; way < 2; way++)
        if (!count[way])
            pace[way] = pace[1 - way];
    return MP_OK;
}

static void choose(double axis[], int *count, const int points[], int all, int step) {
    *count = 0;
    for (int i = 0; i < all; i += step)
        axis[(*count)++] = points[i];
}

void machine_choose_sizes(const struct bench *bench, struct mp_machine *machine) {
    static const int tokens[] = {1, 4, 16, 64, 256, 1024, 4096},
                     widths[] = {16, 32, 64, 128, 256, 512, 1024};
    int step = bench->settings->quick ? 2 : 1, all = bench->settings->quick ? 5 : 7;
    choose(machine->tokens, &machine->rows, tokens, all, step);
    choose(machine->width, &machine->columns, widths, all, step);
}

int machine_product_steps(const struct mp_machine *machine) {
    return machine->rows * machine->columns;
}

int machine_products(struct bench *bench, struct mp_machine *machine, struct mp_error *error) {
    enum { CALLS = 1000 };
    double seconds;
    MP_TRY(bench_time(bench, false, smallest, bench, &seconds, error));
    machine->launch = seconds / CALLS;
    for (int i = 0; i < machine->rows; i++)
        for (int j = 0; j < machine->columns; j++) {
            double pace[2];
            MP_TRY(measure_entry(bench, (int)machine->tokens[i], (int)machine->width[j],
                                 machine->launch, pace, &machine->peak, error));
            for (int way = 0; way < 2; way++)
                machine->share[way][i][j] = pace[way];
            bench_step(bench);
        }
    for (int k = 0; k < 2 * machine->rows * machine->columns; k++) {
        double *share = &machine->share[k % 2][k / 2 / machine->columns][k / 2 % machine->columns];
        *share = 1 / (*share * machine->peak);
    }
    return MP_OK;
}
