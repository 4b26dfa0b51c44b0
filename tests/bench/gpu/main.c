/* moeperf-bench-gpu: prints one line per case, its columns separated by tabs. */
#include <stdio.h>
#include <string.h>

#include "tests/bench/gpu/gpu_bench.h"
#include "tests/bench/options.h"

enum { STATUS_OK, STATUS_SLOW, STATUS_FAILED };

static const struct mp_option rows[] = {
    {"quick", MP_OPTION_BOOL, offsetof(struct mp_bench_options, quick), "", "no", 0, 0, NULL,
     "tiny sizes, to see that all of it runs; nothing is judged"},
    {"only", MP_OPTION_TEXT, offsetof(struct mp_bench_options, only), "", "", 0, 0, NULL,
     "this case alone"},
    MP_BENCH_NUMBER("repeats", repeats, "0", 0, GPU_BENCH_MOST_REPEATS,
                    "samples of each case and of its yardstick; 0: 7, of quick runs 2"),
    MP_BENCH_NUMBER("gpu", gpu, "0", 0, 1023, "of this host"),
    {"seed", MP_OPTION_INT64, offsetof(struct mp_bench_options, seed), "", "1", 0, 1e15, NULL,
     "of the random numbers"},
    {0},
};

static void print_usage(void) {
    printf(
        "usage: moeperf-bench-gpu [OPTION]...\n\n"
        "Times operations of the cuda back end beside a copy of device memory or one large\n"
        "product, and prints per case, separated by tabs: name, size, ms, rate, its unit, share\n"
        "of the copy's or product's rate, the share that is wanted (- for none), and pass, slow\n"
        "or info.\n\n");
    mp_bench_print_options(rows);
    printf("\nExit status: 0; 1 if a case is slower than wanted; 2 if something failed.\n");
}

static int print_figures(const struct gpu_bench *bench, const struct gpu_bench_case *c,
                         const struct gpu_bench_work *work,
                         const struct gpu_bench_figures *figures) {
    bool judged = c->wanted > 0 && !bench->quick;
    double share = figures->rate / figures->floor_rate;
    bool copies = c->floor == GPU_BENCH_COPY, slow = judged && !(share >= c->wanted);
    char wanted[16] = "-";
    if (c->wanted > 0)
        snprintf(wanted, sizeof wanted, "%.2f", c->wanted);
    printf("%s\t%s\t%.4f\t%.4g\t%s\t%.3f\t%s\t%s\n", c->name, work->size, figures->milliseconds,
           figures->rate * (copies ? 1e-9 : 1e-12), copies ? "GB/s" : "TFLOP/s", share, wanted,
           !judged ? "info"
           : slow  ? "slow"
                   : "pass");
    fflush(stdout);
    return slow ? STATUS_SLOW : STATUS_OK;
}

static int run_case(struct gpu_bench *bench, const struct gpu_bench_case *c) {
    struct gpu_bench_work work = {.variant = c->variant};
    struct gpu_bench_figures figures;
    struct mp_error error = {0};
    int status = STATUS_FAILED;
    c->prepare(bench, &work);
    if (work.out_of_memory)
        mp_fail(&error, MP_ENOMEM, "no memory on the GPU beside what other programs use");
    else if (!gpu_bench_measure(bench, c, &work, &figures, &error))
        status = print_figures(bench, c, &work, &figures);
    if (status == STATUS_FAILED)
        fprintf(stderr, "moeperf-bench-gpu: %s: %s\n", c->name, error.text);
    gpu_bench_release(bench, &work);
    return status;
}

/* The worst status; a failure ends it, since the device keeps its first one. */
static int run_cases(struct gpu_bench *bench, const char *only) {
    const struct gpu_bench_case *const tables[] = {gpu_bench_memory_cases, gpu_bench_product_cases};
    int worst = STATUS_OK, ran = 0;
    printf("name\tsize\tms\trate\tunit\tshare\twanted\tstatus\n");
    for (int table = 0; table < 2; table++) {
        for (const struct gpu_bench_case *c = tables[table]; c->name; c++) {
            if (*only && strcmp(only, c->name) != 0)
                continue;
            int status = run_case(bench, c);
            if (status == STATUS_FAILED)
                return STATUS_FAILED;
            worst = status > worst ? status : worst;
            ran++;
        }
    }
    if (!ran) {
        fprintf(stderr, "moeperf-bench-gpu: there is no case \"%s\"\n", only);
        return STATUS_FAILED;
    }
    return worst;
}

int main(int argc, char **argv) {
    static struct mp_bench_options options;
    static struct gpu_bench bench;
    struct mp_error error = {0};
    int status = STATUS_FAILED;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        print_usage();
        return STATUS_OK;
    }
    int code = mp_bench_read_options(rows, argc, argv, &options, &error);
    bench = (struct gpu_bench){.quick = options.quick,
                               .ordinal = options.gpu,
                               .repeats = options.repeats ? options.repeats
                                          : options.quick ? 2
                                                          : 7,
                               .seed = (uint64_t)options.seed};
    if (!code)
        code = gpu_bench_create(&bench, &error);
    if (code)
        fprintf(stderr, "moeperf-bench-gpu: %s\n", error.text);
    else
        status = run_cases(&bench, options.only);
    gpu_bench_destroy(&bench);
    return status;
}
