/* How fast predictions are: iterations per second of model time's machinery on one core, planning
 * included, nobody told of spans.
 *
 * Times are thread CPU time, the median over iterations.  Loads are as skewed as real ones, change
 * from layer to layer and take turns, so that planners have something to do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "baselines/systems.h"
#include "harness/predict/predictor.h"
#include "reference/base/median.h"
#include "tests/bench/bench.h"

enum { LOADS = 3, MANY_RANKS = 4096 };

struct row {
    const char *system;
    int ranks, layers, experts;
};
static const struct row rows[] = {
    {"ep", 32, 12, 64},           {"fssdp", 32, 12, 64},
    {"deepspeed", 32, 12, 64},    {"fastermoe", 32, 12, 64},
    {"smartmoe", 32, 12, 64},     {"flexmoe", 32, 12, 64},
    {"swiftmoe", 32, 12, 64},     {"laer", 32, 12, 64},
    {"eplb", 32, 12, 64},         {"llep", 32, 12, 64},
    {"free-balance", 32, 12, 64}, {"fssdp", 1024, 64, 256},
    {"deepspeed", 1024, 64, 256}, {"swiftmoe", 1024, 64, 256},
    {"laer", 1024, 64, 256},      {"deepspeed", 16384, 64, 256},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Nodes of eight devices; %d of them. */
static const char cluster_text[] =
    "description: nodes of eight devices\n"
    "nodes: {value: %d, assumed: here}\n"
    "ranks-per-node: {value: 8, assumed: here}\n"
    "device:\n"
    "  name: device\n"
    "  peak: {fp16: {value: 312e12, assumed: here}}\n"
    "  memory: {value: 80e9, assumed: here}\n"
    "  memory-bandwidth: {value: 2e12, assumed: here}\n"
    "  launch: {value: 4e-6, assumed: here}\n"
    "  efficiency: {tokens: [1, 4096], width: [256, 4096],\n"
    "               share: [[0.01, 0.02], [0.5, 0.8]], assumed: here}\n"
    "levels:\n"
    "  self: {bandwidth: {value: 1e12, assumed: here}, latency: {value: 4e-6, assumed: here}}\n"
    "  node: {bandwidth: {value: 300e9, assumed: here}, latency: {value: 5e-6, assumed: here},\n"
    "         ports: {value: 1, assumed: here}, sharing: {value: fixed, assumed: here}}\n"
    "  cluster: {bandwidth: {value: 25e9, assumed: here}, latency: {value: 1e-5, assumed: here},\n"
    "            ports: {value: 8, assumed: here}, sharing: {value: fixed, assumed: here}}\n";

struct bench {
    struct row row;
    struct mp_cluster *cluster;
    struct mp_job_file job;
    struct mp_predictor *predictor;
    struct mp_load *load; /* [loads][layers] */
    int loads;            /* different iterations; one with many ranks, as loads are large */
};

static int make_loads(struct bench *bench, struct mp_error *error) {
    const int layers = bench->row.layers;
    uint64_t random = 1;
    bench->loads = bench->row.ranks > MANY_RANKS ? 1 : LOADS;
    bench->load = calloc((size_t)(bench->loads * layers), sizeof *bench->load);
    if (!bench->load)
        return mp_fail(error, MP_ENOMEM, "predict: no memory for loads");
    for (int i = 0; i < bench->loads * layers; i++) {
        MP_TRY(mp_load_create(bench->row.ranks, bench->row.experts, &bench->load[i], error));
        mp_bench_fill_load(&bench->load[i], 8192, 0.6, i % layers + i / layers, &random);
    }
    return MP_OK;
}

static int make_cluster(struct bench *bench, struct mp_error *error) {
    const int file = memfd_create("benchmark", MFD_CLOEXEC);
    char path[64];
    dprintf(file, cluster_text, (bench->row.ranks + 7) / 8);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    const int code = mp_cluster_load(path, &bench->cluster, error);
    close(file);
    return code;
}

static int make_job(struct bench *bench, const struct mp_systems *systems, struct mp_error *error) {
    char assignment[64];
    snprintf(assignment, sizeof assignment, "system=%s", bench->row.system);
    MP_TRY(make_cluster(bench, error));
    MP_TRY(mp_job_file_create(&bench->job, error));
    MP_TRY(mp_job_set(&bench->job, NULL, assignment, systems, error));
    struct mp_job *job = &bench->job.job;
    job->ranks = bench->row.ranks;
    job->ranks_per_node = 8;
    job->layers = bench->row.layers;
    job->experts = bench->row.experts;
    job->width = 1024;
    job->heads = 16;
    job->expert_width = 4096;
    job->sequence = 2048;
    job->batch = 2 * bench->row.ranks;
    return MP_OK;
}

static int prepare(struct bench *bench, const struct mp_systems *systems, struct mp_error *error) {
    struct mp_predict_options options = {0};
    struct mp_predictor_config config = {.job = &bench->job, .options = &options};
    MP_TRY(make_job(bench, systems, error));
    MP_TRY(mp_options_set_defaults(mp_predict_options_table, &options, error));
    MP_TRY(make_loads(bench, error));
    config.cluster = bench->cluster;
    return mp_predictor_create(&config, &bench->predictor, error);
}

static void clean_up(struct bench *bench) {
    mp_predictor_destroy(bench->predictor);
    for (int i = 0; bench->load && i < bench->loads * bench->row.layers; i++)
        mp_load_destroy(&bench->load[i]);
    free(bench->load);
    mp_job_file_destroy(&bench->job);
    mp_cluster_destroy(bench->cluster);
}

/* The first iterations make room, and fill the windows that planners look back on; with many ranks
 * there is no time for that. */
static int measure(struct bench *bench, int iterations, double seconds[], double *model_seconds,
                   struct mp_error *error) {
    int first = bench->row.ranks > MANY_RANKS ? 0 : -2;
    struct mp_prediction prediction;
    for (int i = first; i < iterations; i++) {
        const struct mp_load *load = bench->load + (i - first) % bench->loads * bench->row.layers;
        int64_t start = mp_clock_thread_cpu_ns();
        MP_TRY(mp_predictor_step(bench->predictor, load, &prediction, error));
        if (i >= 0)
            seconds[i] = 1e-9 * (double)(mp_clock_thread_cpu_ns() - start);
    }
    *model_seconds = prediction.seconds;
    return MP_OK;
}

static int measure_row(struct bench *bench, const struct mp_systems *systems, int iterations,
                       double seconds[], json_t *table, struct mp_error *error) {
    const struct row *row = &bench->row;
    double model;
    MP_TRY(prepare(bench, systems, error));
    MP_TRY(measure(bench, iterations, seconds, &model, error));
    double median = mp_median_of(seconds, iterations);
    return mp_bench_add_row(
        table,
        json_pack("{s:s s:i s:i s:i s:f s:f s:f}", "system", row->system, "ranks", row->ranks,
                  "layers", row->layers, "experts", row->experts, "iterations_per_second",
                  1 / median, "ms_per_iteration", 1e3 * median, "predicted_ms", 1e3 * model),
        error);
}

static int run_row(const struct mp_systems *systems, const struct row *row, int iterations,
                   json_t *table, struct mp_error *error) {
    struct bench bench = {.row = *row};
    double *seconds = malloc((size_t)iterations * sizeof *seconds);
    int code = seconds ? measure_row(&bench, systems, iterations, seconds, table, error)
                       : mp_fail(error, MP_ENOMEM, "predict: no memory for figures");
    clean_up(&bench);
    free(seconds);
    return code;
}

static const struct mp_option predict_options[] = {
    MP_BENCH_NUMBER("iterations", iterations, "50", 1, 100000,
                    "of each row, at most 3 of rows with many ranks"),
    MP_BENCH_NUMBER("most-ranks", most_ranks, "1024", 8, 1 << 20, "leaves larger rows out"),
    MP_BENCH_NUMBER("ranks", ranks, "0", 0, 1 << 20,
                    "of one row alone, with the other options; 0: many rows"),
    MP_BENCH_NUMBER("layers", layers, "64", 1, 1024, "of that row"),
    MP_BENCH_NUMBER("experts", experts, "256", 1, 1024, "of that row"),
    {"system", MP_OPTION_TEXT, offsetof(struct mp_bench_options, system), "", "deepspeed", 0, 0,
     NULL, "of that row"},
    {0},
};

static int run(const struct mp_bench_options *options, json_t *result, struct mp_error *error) {
    struct mp_systems systems = {0};
    json_t *table = json_array();
    MP_TRY(mp_systems_register_all(&systems, error));
    MP_TRY(mp_bench_add(result, json_pack("{s:o}", "predictions", table), error));
    struct row own = {options->system, options->ranks, options->layers, options->experts};
    if (own.ranks > 0)
        return run_row(&systems, &own, options->iterations, table, error);
    for (int i = 0; i < ROWS; i++) {
        bool few = rows[i].ranks > 100 && options->iterations > 3;
        if (rows[i].ranks <= options->most_ranks)
            MP_TRY(run_row(&systems, &rows[i], few ? 3 : options->iterations, table, error));
    }
    return MP_OK;
}

const struct mp_bench mp_bench_predict = {
    .name = "predict",
    .help = "how fast iterations are predicted, by system, ranks, layers and experts",
    .options = predict_options,
    .run = run,
};
