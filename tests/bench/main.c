/* moeperf-bench: the suite's own speed, one subcommand per benchmark. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/bench.h"

static const struct mp_bench *const benches[] = {
    &mp_bench_comm, &mp_bench_compute, &mp_bench_ingest, &mp_bench_overlap,
    &mp_bench_plan, &mp_bench_predict, &mp_bench_record, &mp_bench_step,
};
enum { BENCHES = sizeof benches / sizeof *benches };

static void print_usage(FILE *out) {
    fprintf(out, "usage: moeperf-bench BENCH [--json] [OPTION]...\n\n");
    for (int i = 0; i < BENCHES; i++)
        fprintf(out, "  %-10s %.*s\n", benches[i]->name, (int)strcspn(benches[i]->help, "\n"),
                benches[i]->help);
    fprintf(out,
            "\n  --json     print the result as JSON instead of a table\n"
            "  --help     this text, or after BENCH that benchmark's options\n\n"
            "examples:\n"
            "  moeperf-bench %s\n"
            "  moeperf-bench %s --json\n",
            benches[0]->name, benches[0]->name);
}

static const struct mp_bench *find_bench(const char *name) {
    for (int i = 0; i < BENCHES; i++) {
        if (strcmp(benches[i]->name, name) == 0)
            return benches[i];
    }
    return NULL;
}

/* Takes `flag` out of the arguments; says whether it was there. */
static bool take_flag(int *argc, char **argv, const char *flag) {
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], flag) != 0)
            argv[kept++] = argv[i];
    }
    bool found = kept < *argc;
    *argc = kept;
    argv[kept] = NULL;
    return found;
}

static int run_bench(const struct mp_bench *bench, int argc, char **argv, bool as_json) {
    struct mp_error error = {0};
    json_t *result = json_object();
    static struct mp_bench_options options;
    int code = result ? mp_bench_read_options(bench->options, argc, argv, &options, &error)
                      : mp_fail(&error, MP_ENOMEM, "no memory for the result");
    if (!code)
        code = bench->run(&options, result, &error);
    if (code) {
        fprintf(stderr, "moeperf-bench: %s\n", error.text);
    } else if (json_object_size(result) > 0 && as_json) {
        json_dumpf(result, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        printf("\n");
    } else if (json_object_size(result) > 0) {
        mp_bench_print(stdout, bench->name, result);
    }
    json_decref(result);
    if (!code && fflush(stdout) != 0) {
        perror("moeperf-bench: standard output");
        return 1;
    }
    return code == MP_OK ? 0 : code == MP_EINVAL ? 2 : 1;
}

int main(int argc, char **argv) {
    bool as_json = take_flag(&argc, argv, "--json");
    bool wants_help = take_flag(&argc, argv, "--help");
    const struct mp_bench *bench = argc > 1 ? find_bench(argv[1]) : NULL;
    if (bench && wants_help) {
        printf("moeperf-bench %s: %s\n", bench->name, bench->help);
        mp_bench_print_options(bench->options);
        return 0;
    }
    if (wants_help) {
        print_usage(stdout);
        return 0;
    }
    if (!bench) {
        if (argc > 1)
            fprintf(stderr, "moeperf-bench: there is no benchmark \"%s\"\n", argv[1]);
        print_usage(stderr);
        return 2;
    }
    return run_bench(bench, argc - 1, argv + 1, as_json);
}
