/* What the measurements share: a rank's device and memory, and a stopwatch.  Private to
 * reference/machine. */
#pragma once

#include <stddef.h>

#include "reference/device/memory.h"
#include "reference/machine/machine.h"

enum {
    BENCH_SEQUENCES = 8, /* of attention, of BENCH_SEQUENCE tokens and BENCH_HEADS heads */
    BENCH_SEQUENCE = 128,
    BENCH_HEADS = 4,
    BENCH_HEAD_WIDTH = 64,
    BENCH_ROUNDS = 5,
    BENCH_FIGURES = 512 /* that are timed in a round, at most */
};

struct bench {
    struct mp_comm *comm;
    struct mp_device *device;
    const struct mp_machine_settings *settings;
    size_t pool_floats; /* of each buffer */
    struct mp_device_memory memory;
    float *pool[4]; /* of it, where each round begins with random numbers */
    float *random;  /* these */
    bool shares_cores;
    bool counts_processor_time; /* of a rank's own work */
    int round, figure;          /* at hand, from 0 on */
    double (
        *seconds)[BENCH_ROUNDS]; /* [BENCH_FIGURES], of rounds so far; NULL: there is one round */
    int products;                /* beside which transfers pass, as the first round chose */
    int done, steps;
    int64_t step_begin; /* ns */
};

/* `work(context, turn)`: one repetition, of which every one should use other memory. */
typedef int bench_work(void *context, int turn, struct mp_error *error);

/* Seconds of a repetition: the mean of the processor's time, the lower quartile of the wall's (of
 * ranks that share cores the mean, since waiting for their turn is part of it).  Every rank repeats
 * for the same time and the mean over ranks is taken; with `together`, all repeat equally often,
 * begin together, and the slowest counts.  Every round times the same figures in the same order,
 * and gets the median of each over the rounds so far. */
int bench_time(struct bench *bench, bool together, bench_work *work, void *context, double *seconds,
               struct mp_error *error);

/* Part of a buffer for a turn: `floats` numbers, on a cache line. */
float *bench_part(const struct bench *bench, int pool, int turn, size_t floats);

/* A step of `steps` is done. */
void bench_step(struct bench *bench);

/* The parts of a measurement, each filling its figures. */
int machine_products(struct bench *bench, struct mp_machine *machine, struct mp_error *error);
int machine_kernels(struct bench *bench, struct mp_machine *machine, struct mp_error *error);
int machine_links(struct bench *bench, struct mp_machine *machine, struct mp_error *error);
/* Steps of the first and the last. */
int machine_product_steps(const struct mp_machine *machine);
enum { MACHINE_KERNEL_STEPS = 6 };
int machine_link_steps(const struct bench *bench);
/* Axes and sizes of this measurement. */
void machine_choose_sizes(const struct bench *bench, struct mp_machine *machine);
