/* moeperf-bench-gpu: prints one line per case, its columns separated by tabs. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/gpu/gpu_bench.h"

enum { STATUS_OK, STATUS_SLOW, STATUS_FAILED };

struct options {
    const char *only; /* NULL: every case */
    struct gpu_bench bench;
};

static void print_usage(FILE *out) {
    fprintf(
        out,
        "usage: moeperf-bench-gpu [OPTION]...\n\n"
        "Times operations of the cuda back end beside a copy of device memory or one large\n"
        "product, and prints per case, separated by tabs: name, size, ms, rate, its unit, share\n"
        "of the copy's or product's rate, the share that is wanted (- for none), and pass, slow\n"
        "or info.\n\n"
        "  --quick      tiny sizes, to see that all of it runs; nothing is judged\n"
        "  --only NAME  this case alone\n"
        "  --repeats N  samples of each case and of its yardstick (7; of quick runs 2)\n"
        "  --gpu N      GPU of this host (0)\n"
        "  --seed N     of the random numbers (1)\n"
        "  --help       this text\n\n"
        "Exit status: 0; 1 if a case is slower than wanted; 2 if something failed.\n");
}

static bool whole_number(const char *text, long least, long most, long *value) {
    char *end;
    errno = 0;
    *value = strtol(text, &end, 10);
    return !errno && end != text && !*end && *value >= least && *value <= most;
}

/* -1: go on; otherwise the exit status. */
static int read_options(int argc, char **argv, struct options *options) {
    static const struct option known[] = {{"quick", no_argument, NULL, 'q'},
                                          {"only", required_argument, NULL, 'o'},
                                          {"repeats", required_argument, NULL, 'r'},
                                          {"gpu", required_argument, NULL, 'g'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    struct gpu_bench *bench = &options->bench;
    long repeats = 0, ordinal = 0, seed = 1;
    for (int option; (option = getopt_long(argc, argv, "h", known, NULL)) != -1;) {
        bool good = true;
        switch (option) {
        case 'q':
            bench->quick = true;
            break;
        case 'o':
            options->only = optarg;
            break;
        case 'r':
            good = whole_number(optarg, 1, 101, &repeats);
            break;
        case 'g':
            good = whole_number(optarg, 0, 1023, &ordinal);
            break;
        case 's':
            good = whole_number(optarg, 0, LONG_MAX, &seed);
            break;
        case 'h':
            print_usage(stdout);
            return STATUS_OK;
        default:
            print_usage(stderr);
            return STATUS_FAILED;
        }
        if (!good) {
            fprintf(stderr, "moeperf-bench-gpu: \"%s\" is no number in range\n", optarg);
            return STATUS_FAILED;
        }
    }
    bench->repeats = repeats ? (int)repeats : bench->quick ? 2 : 7;
    bench->ordinal = (int)ordinal;
    bench->seed = (uint64_t)seed;
    return -1;
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
    struct gpu_bench_work work = {0};
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
static int run_cases(struct options *options) {
    const struct gpu_bench_case *const tables[] = {gpu_bench_memory_cases, gpu_bench_product_cases};
    int worst = STATUS_OK, ran = 0;
    printf("name\tsize\tms\trate\tunit\tshare\twanted\tstatus\n");
    for (int table = 0; table < 2; table++) {
        for (const struct gpu_bench_case *c = tables[table]; c->name; c++) {
            if (options->only && strcmp(options->only, c->name) != 0)
                continue;
            int status = run_case(&options->bench, c);
            if (status == STATUS_FAILED)
                return STATUS_FAILED;
            worst = status > worst ? status : worst;
            ran++;
        }
    }
    if (!ran) {
        fprintf(stderr, "moeperf-bench-gpu: there is no case \"%s\"\n", options->only);
        return STATUS_FAILED;
    }
    return worst;
}

int main(int argc, char **argv) {
    static struct options options;
    struct mp_error error = {0};
    int status = read_options(argc, argv, &options);
    if (status >= 0)
        return status;
    if (gpu_bench_create(&options.bench, &error)) {
        fprintf(stderr, "moeperf-bench-gpu: %s\n", error.text);
        status = STATUS_FAILED;
    } else {
        status = run_cases(&options);
    }
    gpu_bench_destroy(&options.bench);
    return status;
}
