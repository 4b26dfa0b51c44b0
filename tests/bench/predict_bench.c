/* How fast predictions are: iterations per second of model time's machinery on one core, planning
 * included, nobody told of spans.
 *
 * Times are thread CPU time, the median over iterations.  Loads are as skewed as real ones, change
 * from layer to layer and take turns, so that planners have something to do. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "baselines/systems.h"
#include "harness/predict/predictor.h"
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
static const char cluster_text[] = "description: nodes of eight devices\n"
                                   "nodes: {value: %d, assumed: the benchmark}\n"
                                   "ranks-per-node: {value: 8, assumed: the benchmark}\n"
                                   "device:\n"
                                   "  name: device\n"
                                   "  peak:\n"
                                   "    fp16: {value: 312e12, assumed: the benchmark}\n"
                                   "  memory: {value: 80e9, assumed: the benchmark}\n"
                                   "  memory-bandwidth: {value: 2e12, assumed: the benchmark}\n"
                                   "  launch: {value: 4e-6, assumed: the benchmark}\n"
                                   "  efficiency:\n"
                                   "    tokens: [1, 4096]\n"
                                   "    width: [256, 4096]\n"
                                   "    share:\n"
                                   "      - [0.01, 0.02]\n"
                                   "      - [0.5, 0.8]\n"
                                   "    assumed: the benchmark\n"
                                   "levels:\n"
                                   "  self:\n"
                                   "    bandwidth: {value: 1e12, assumed: the benchmark}\n"
                                   "    latency: {value: 4e-6, assumed: the benchmark}\n"
                                   "  node:\n"
                                   "    bandwidth: {value: 300e9, assumed: the benchmark}\n"
                                   "    latency: {value: 5e-6, assumed: the benchmark}\n"
                                   "    ports: {value: 1, assumed: the benchmark}\n"
                                   "    sharing: {value: fixed, assumed: the benchmark}\n"
                                   "  cluster:\n"
                                   "    bandwidth: {value: 25e9, assumed: the benchmark}\n"
                                   "    latency: {value: 1e-5, assumed: the benchmark}\n"
                                   "    ports: {value: 8, assumed: the benchmark}\n"
                                   "    sharing: {value: fixed, assumed: the benchmark}\n";

struct bench {
    struct row row;
    struct mp_cluster *cluster;
    struct mp_job_file job;
    struct mp_predictor *predictor;
    struct mp_load *load; /* [loads][layers] */
    int loads;            /* different iterations; one with many ranks, as loads are large */
};

static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    return z ^ (z >> 29);
}

/* 8192 routes per rank; expert shares fall as place^-0.6, the hottest differ by load. */
static void fill_load(struct mp_load *load, int shift, uint64_t *random) {
    enum { ROUTES = 8192 };
    double sum = 0;
    for (int expert = 0; expert < load->experts; expert++)
        sum += pow(expert + 1, -0.6);
    for (int source = 0; source < load->ranks; source++) {
        uint32_t *row = load->count + (long)source * load->experts, left = ROUTES;
        for (int expert = 0; expert < load->experts; expert++) {
            int place = (expert * 7 + shift) % load->experts;
            double noise = 0.8 + 0.2 * (double)(next_random(random) % 1024) / 1024;
            row[expert] = (uint32_t)(noise * ROUTES * pow(place + 1, -0.6) / sum);
            left -= row[expert];
        }
        for (int expert = 0; left > 0; expert = (expert + 1) % load->experts) {
            uint32_t more = left / (uint32_t)load->experts + 1;
            row[expert] += more;
            left -= more;
        }
    }
}

static int make_loads(struct bench *bench, struct mp_error *error) {
    int count, code = MP_OK;
    uint64_t random = 1;
    bench->loads = bench->row.ranks > MANY_RANKS ? 1 : LOADS;
    count = bench->loads * bench->row.layers;
    bench->load = calloc((size_t)count, sizeof *bench->load);
    if (!bench->load)
        return mp_fail(error, MP_ENOMEM, "predict: no memory for loads");
    for (int i = 0; i < count && !code; i++) {
        code = mp_load_create(bench->row.ranks, bench->row.experts, &bench->load[i], error);
        if (!code)
            fill_load(&bench->load[i], i % bench->row.layers + i / bench->row.layers, &random);
    }
    return code;
}

static int make_job(struct bench *bench, const struct mp_systems *systems, struct mp_error *error) {
    char text[2 * sizeof cluster_text], assignment[64];
    snprintf(text, sizeof text, cluster_text, (bench->row.ranks + 7) / 8);
    int code = mp_cluster_parse("benchmark", text, strlen(text), &bench->cluster, error);
    if (!code)
        code = mp_job_file_create(&bench->job, error);
    snprintf(assignment, sizeof assignment, "system=%s", bench->row.system);
    if (!code)
        code = mp_job_set(&bench->job, assignment, systems, error);
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
    return code;
}

static int prepare(struct bench *bench, const struct mp_systems *systems, struct mp_error *error) {
    struct mp_predict_options options = {0};
    struct mp_predictor_config config = {.job = &bench->job, .options = &options};
    int code = make_job(bench, systems, error);
    if (!code)
        code = mp_options_set_defaults(mp_predict_options_table, &options, error);
    if (!code)
        code = make_loads(bench, error);
    config.cluster = bench->cluster;
    return code ? code : mp_predictor_create(&config, &bench->predictor, error);
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
        int code = mp_predictor_step(bench->predictor, load, &prediction, error);
        if (code)
            return code;
        if (i >= 0)
            seconds[i] = 1e-9 * (double)(mp_clock_thread_cpu_ns() - start);
    }
    *model_seconds = prediction.seconds;
    return MP_OK;
}

static int run_row(const struct mp_systems *systems, const struct row *row, int iterations,
                   json_t *table, struct mp_error *error) {
    struct bench bench = {.row = *row};
    double *seconds = malloc((size_t)iterations * sizeof *seconds), model = 0;
    int code = seconds ? prepare(&bench, systems, error)
                       : mp_fail(error, MP_ENOMEM, "predict: no memory for figures");
    if (!code)
        code = measure(&bench, iterations, seconds, &model, error);
    if (!code) {
        double median = mp_bench_median(seconds, iterations);
        json_t *line =
            json_pack("{s:s s:i s:i s:i s:f s:f s:f}", "system", row->system, "ranks", row->ranks,
                      "layers", row->layers, "experts", row->experts, "iterations_per_second",
                      1 / median, "ms_per_iteration", 1e3 * median, "predicted_ms", 1e3 * model);
        if (!line || json_array_append_new(table, line) != 0)
            code = mp_fail(error, MP_ENOMEM, "predict: no memory for the result");
    }
    clean_up(&bench);
    free(seconds);
    return code;
}

static int run(int argc, char **argv, json_t *result, struct mp_error *error) {
    long iterations = 50, most = 1024, ranks = 0, layers = 64, experts = 256;
    const struct mp_bench_option options[] = {
        {"iterations", &iterations, 1, 100000}, {"most-ranks", &most, 8, 1 << 20},
        {"ranks", &ranks, 0, 1 << 20},          {"layers", &layers, 1, 1024},
        {"experts", &experts, 1, 1024},         {0}};
    const char *system = "deepspeed";
    struct mp_systems systems = {0};
    int code = mp_bench_take_text(&argc, argv, "system", &system, error);
    if (!code)
        code = mp_bench_options(argc, argv, options, error);
    if (!code)
        code = mp_systems_register_all(&systems, error);
    if (code)
        return code;
    json_t *table = json_array();
    if (json_object_set_new(result, "predictions", table) != 0)
        return mp_fail(error, MP_ENOMEM, "predict: no memory for the result");
    struct row own = {system, (int)ranks, (int)layers, (int)experts};
    if (ranks > 0)
        return run_row(&systems, &own, (int)iterations, table, error);
    for (int i = 0; i < ROWS && !code; i++) {
        int repeats = rows[i].ranks > 100 && iterations > 3 ? 3 : (int)iterations;
        if (rows[i].ranks <= most)
            code = run_row(&systems, &rows[i], repeats, table, error);
    }
    return code;
}

const struct mp_bench mp_bench_predict = {
    .name = "predict",
    .help =
        "how fast iterations are predicted, by system, ranks, layers and experts\n"
        "  --iterations N  of each row, 50 unless given; of rows with many ranks at most 3\n"
        "  --most-ranks R  leaves larger rows out\n"
        "  --ranks R       only one system on R ranks (--system NAME, deepspeed unless given),\n"
        "                  with --layers L and --experts E\n",
    .run = run,
};
