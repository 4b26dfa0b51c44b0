/* The order of measurements, the stopwatch and the memory. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiler/record/record.h"
#include "reference/base/digest.h"
#include "reference/base/median.h"
#include "reference/machine/bench.h"

enum {
    TURNS_MOST = 64,
    TURNS_TOGETHER = 7,
    TURNS_QUICK = 3,
    TURN_ALIGN = 16 /* floats of a cache line */
};
static const double ENOUGH_SECONDS =
    0.01; /* for a figure in a round, of which one turn may be more */

/* Other work only ever adds to the wall's time. */
static double lower_quartile(double turn[], int count) {
    mp_sort_numbers(turn, count);
    return turn[count / 4];
}

static double mean(const double turn[], int count) {
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += turn[i];
    return sum / count;
}

/* Of a rank's own work: the processor's time where a rank is one thread on a core of its own. */
static int64_t read_clock(const struct bench *bench) {
    return bench->counts_processor_time ? mp_clock_thread_cpu_ns() : mp_clock_ns();
}

/* The median of the figure at hand with `seconds` of this round. */
static double over_rounds(struct bench *bench, double seconds) {
    double round[BENCH_ROUNDS];
    if (!bench->seconds || bench->figure >= BENCH_FIGURES)
        return seconds;
    double *figure = bench->seconds[bench->figure++];
    figure[bench->round] = seconds;
    memcpy(round, figure, sizeof round);
    return mp_median_of(round, bench->round + 1);
}

int bench_time(struct bench *bench, bool together, bench_work *work, void *context, double *seconds,
               struct mp_error *error) {
    double turn[TURNS_MOST];
    int least = bench->settings->quick ? TURNS_QUICK : 1, count = 0;
    int most = bench->settings->quick ? TURNS_QUICK : together ? TURNS_TOGETHER : TURNS_MOST;
    int64_t begin = 0;
    for (int i = -1; i < most; i++) { /* the first one touches memory and makes code */
        if (together || i < 0)
            MP_TRY(mp_comm_barrier(bench->comm, error));
        int64_t now = mp_clock_ns(), start = together ? now : read_clock(bench);
        begin = i < 1 ? now : begin;
        MP_TRY(work(context, i + 1, error));
        int64_t end = together ? mp_clock_ns() : read_clock(bench);
        if (i >= 0)
            turn[count++] = 1e-9 * (double)(end - start);
        if (!together && count >= least && 1e-9 * (double)(mp_clock_ns() - begin) > ENOUGH_SECONDS)
            break;
    }
    MP_TRY(mp_device_check(bench->device, error));
    bool is_wall = together || !bench->counts_processor_time;
    *seconds = bench->shares_cores || !is_wall ? mean(turn, count) : lower_quartile(turn, count);
    *seconds /= together ? 1 : bench->comm->ranks; /* not all need take part */
    MP_TRY(together ? mp_comm_maximum(bench->comm, seconds, 1, error)
                    : mp_comm_sum(bench->comm, seconds, 1, error));
    *seconds = over_rounds(bench, *seconds);
    return MP_OK;
}

float *bench_part(const struct bench *bench, int pool, int turn, size_t floats) {
    size_t size = (floats + TURN_ALIGN - 1) / TURN_ALIGN * TURN_ALIGN;
    size_t parts = bench->pool_floats / size;
    return bench->pool[pool] + (size_t)turn % (parts ? parts : 1) * size;
}

void bench_step(struct bench *bench) {
    int64_t now = mp_clock_ns();
    bench->done++;
    if (bench->settings->progress)
        bench->settings->progress(bench->settings->context, bench->done, bench->steps,
                                  1e-9 * (double)(now - bench->step_begin));
    bench->step_begin = now;
}

/* Small numbers of both signs: products of them stay finite, and none are denormal. */
static void fill(float *memory, size_t count) {
    uint32_t state = 12345;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        memory[i] = (float)(state >> 8) * 0x1p-23f - 1;
    }
}

static int create_bench(struct bench *bench, struct mp_error *error) {
    static const struct mp_device_limits limits = {
        .attention = {BENCH_SEQUENCES, BENCH_SEQUENCE, BENCH_HEADS, BENCH_HEAD_WIDTH},
        .experts = 1,
        .width = 4096,
        .tokens = 4096};
    /* Larger than the caches of this day, all buffers together. */
    bench->pool_floats = bench->settings->quick ? 1 << 23 : 1 << 24;
    MP_TRY(mp_device_cpu_create(bench->settings->threads, &limits, &bench->device, error));
    size_t bytes = bench->pool_floats * sizeof(float);
    bench->random = malloc(bytes);
    bench->seconds = calloc(BENCH_FIGURES, sizeof *bench->seconds);
    bench->memory.device = bench->device;
    for (int i = 0; i < 4; i++)
        bench->pool[i] = mp_device_take(&bench->memory, (int64_t)bench->pool_floats, sizeof(float));
    if (!bench->random || !bench->seconds || bench->memory.lacking)
        return mp_fail(error, MP_ENOMEM, "no memory to measure: 5 x %zu bytes a rank", bytes);
    fill(bench->random, bench->pool_floats);
    return MP_OK;
}

static void destroy_bench(struct bench *bench) {
    mp_device_memory_release(&bench->memory);
    mp_device_destroy(bench->device);
    free(bench->random);
    free(bench->seconds);
}
MP_END(bench, struct bench, destroy_bench(it))

static void choose_clock(struct bench *bench) {
    char text[256];
    mp_comm_describe(bench->comm, text, sizeof text, &bench->shares_cores);
    bench->counts_processor_time = bench->settings->threads == 1 && !bench->shares_cores;
}

/* A hash of the host's name must be the same everywhere. */
static int check_host(struct mp_comm *comm, struct mp_error *error) {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    double hash = (double)(mp_digest(MP_DIGEST, name) >> 16); /* exact */
    double both[2] = {hash, -hash};
    MP_TRY(mp_comm_maximum(comm, both, 2, error));
    if (both[0] + both[1] != 0)
        return mp_fail(error, MP_EINVAL,
                       "ranks are on several machines; calibrate measures one of them");
    return MP_OK;
}

/* Each round puts the figures of all rounds so far into the machine. */
static int measure_round(struct bench *bench, struct mp_machine *machine, struct mp_error *error) {
    bench->figure = machine->transfers = 0;
    machine->peak = 0;
    for (int i = 0; i < 4; i++)
        bench->device->operations->copy_from_host(
            bench->device, NULL, bench->pool[i], bench->random, bench->pool_floats * sizeof(float));
    MP_TRY(machine_products(bench, machine, error));
    MP_TRY(machine_kernels(bench, machine, error));
    if (machine->ranks > 1)
        MP_TRY(machine_links(bench, machine, error));
    return MP_OK;
}

static int measure_rounds(struct bench *bench, struct mp_machine *machine, struct mp_error *error) {
    int rounds = bench->settings->quick ? 1 : BENCH_ROUNDS;
    bench->steps = rounds * (machine_product_steps(machine) + MACHINE_KERNEL_STEPS +
                             machine_link_steps(bench));
    bench->step_begin = mp_clock_ns();
    for (bench->round = 0; bench->round < rounds; bench->round++)
        MP_TRY(measure_round(bench, machine, error));
    return MP_OK;
}

int mp_machine_measure(struct mp_comm *comm, const struct mp_machine_settings *settings,
                       struct mp_machine *machine, struct mp_error *error) {
    MP_AUTO(bench) struct bench bench = {.comm = comm, .settings = settings};
    *machine = (struct mp_machine){.ranks = comm->ranks,
                                   .threads = settings->threads,
                                   .memory = (double)sysconf(_SC_PHYS_PAGES) *
                                             (double)sysconf(_SC_PAGESIZE) / comm->ranks};
    MP_TRY(check_host(comm, error));
    choose_clock(&bench);
    machine->shares_cores = bench.shares_cores;
    MP_TRY(create_bench(&bench, error));
    machine_choose_sizes(&bench, machine);
    return measure_rounds(&bench, machine, error);
}
