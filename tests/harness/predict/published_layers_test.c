/* Published layer times: SmartMoE's artifact has the times of 24 layers on 8 ranks and the loads
 * of the training that they come from.
 *
 * The predictor carries one layer after the other out on one node of the artifact's machines
 * (blinky).  Model width and precision are not published, so the device's rate and a fixed cost of
 * a layer are calibrated on the first half of the iterations: ms = fixed + factor * predicted.  The
 * second half is predicted.  Times are published in whole ms, of 16 to 35: rounding alone is an
 * error of 1.2 %.
 *
 * The busiest rank's routes, fitted likewise, explain these times nearly as well.  What the
 * predictor adds, and what is judged, is the slope: it knows what a route more takes (factor 1).
 *
 * That rows 0 to 7 of micro-batch 0 are the ranks that were timed is inferred (systems.md, 0.7);
 * other rows and micro-batches fit as well, the experts' shares hardly differ between them.  That
 * the ranks shared a node is inferred too: on two nodes of four (pinky) the network between them
 * would show, and the error is 5.7 %; on one (blinky, inky) it is 2.1 to 2.2 %. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "baselines/systems.h"
#include "harness/predict/predictor.h"
#include "harness/workload/formats.h"
#include "harness/workload/input.h"
#include "tests/support.h"

enum { LAYERS = 24, RANKS = 8, EXPERTS = 32, TIMED = 30, TOKENS = 2048, TOP_K = 2 };

static const char loads_path[] = MOEPERF_TRACES "/smartmoe_gpt_e32_top2.csv.zst";
static const char times_path[] = MOEPERF_TRACES "/smartmoe_layer_ms_ep8_mbs4.csv";

/* Iterations 101, 201, ..., 3001. */
static int timed_index(int64_t iteration) {
    return iteration >= 101 && iteration <= 3001 && iteration % 100 == 1
               ? (int)(iteration - 101) / 100
               : -1;
}

static double measured[TIMED][LAYERS], predicted[TIMED][LAYERS], busiest[TIMED][LAYERS];

static void read_times(void) {
    struct mp_input *input = NULL;
    struct mp_error error = {0};
    char *line;
    int count = 0;
    assert_int_equal(mp_input_open(times_path, &input, &error), 0);
    while (!mp_input_line(input, &line, &error) && line) {
        int iteration, layer, ms;
        if (sscanf(line, "%d,%d,%d", &iteration, &layer, &ms) != 3)
            continue; /* the header */
        int index = timed_index(iteration);
        if (index < 0)
            continue;
        measured[index][layer] = ms;
        count++;
    }
    mp_input_destroy(input);
    assert_int_equal(count, TIMED * LAYERS);
}

/* One EP layer of a GPT whose experts are twice as wide as the model. */
static struct mp_predictor *one_layer(const struct mp_cluster *cluster, struct mp_job_file *job,
                                      const struct mp_systems *systems) {
    static const char *const sizes[] = {"system=ep", "layers=1",          "width=1024",
                                        "heads=16",  "expert-width=2048", "experts=32",
                                        "batch=8",   "sequence=2048"};
    struct mp_predict_options options = {0};
    struct mp_predictor *predictor = NULL;
    struct mp_error error = {0};
    assert_int_equal(mp_job_file_create(job, &error), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (mp_job_set(job, sizes[i], systems, &error))
            fail_msg("%s", error.text);
    job->job.ranks = RANKS;
    job->job.ranks_per_node = mp_cluster_topology(cluster).ranks_per_node;
    assert_int_equal(mp_options_set_defaults(mp_predict_options_table, &options, &error), 0);
    struct mp_predictor_config config = {.cluster = cluster, .job = job, .options = &options};
    if (mp_predictor_create(&config, &predictor, &error))
        fail_msg("%s", error.text);
    return predictor;
}

static double largest_rank(const struct mp_load *load) {
    int64_t most = 0;
    for (int r = 0; r < RANKS; r++) {
        int64_t routes = 0;
        for (int source = 0; source < RANKS; source++)
            for (int e = 0; e < EXPERTS / RANKS; e++)
                routes += mp_load_at(load, source, r * EXPERTS / RANKS + e);
        most = routes > most ? routes : most;
    }
    return (double)most;
}

/* Predicts every timed layer from rows 0 to 7 of micro-batch 0. */
static void predict_layers(struct mp_predictor *predictor) {
    struct mp_trace_stream *stream = NULL;
    const struct mp_trace_block *block;
    struct mp_prediction prediction;
    struct mp_load load;
    struct mp_error error = {0};
    int count = 0;
    assert_int_equal(mp_load_create(RANKS, EXPERTS, &load, &error), 0);
    if (mp_format_open("csv-wide", loads_path, &stream, &error))
        fail_msg("%s", error.text);
    while (count < TIMED * LAYERS) {
        if (mp_trace_next(stream, &block, &error) || !block)
            fail_msg("the trace ends early: %s", error.text);
        int index = timed_index(block->iteration);
        if (index < 0 || block->micro_batch != 0)
            continue;
        memcpy(load.count, block->load.count, sizeof *load.count * RANKS * EXPERTS);
        assert_int_equal(mp_load_total(&load), RANKS * TOKENS * TOP_K);
        if (mp_predictor_step(predictor, &load, &prediction, &error))
            fail_msg("%s", error.text);
        predicted[index][block->layer] = 1e3 * prediction.moe_seconds;
        busiest[index][block->layer] = largest_rank(&load);
        count++;
    }
    mp_trace_stream_destroy(stream);
    mp_load_destroy(&load);
}

/* fixed and factor of least squares over the first half; mean absolute error of the second, in %.
 */
struct fit {
    double factor, error;
};

static struct fit fit(double x[TIMED][LAYERS], const char *name) {
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0, sum[2] = {0};
    for (int i = 0; i < TIMED / 2; i++)
        for (int l = 0; l < LAYERS; l++) {
            n++;
            sx += x[i][l];
            sy += measured[i][l];
            sxx += x[i][l] * x[i][l];
            sxy += x[i][l] * measured[i][l];
        }
    double factor = (n * sxy - sx * sy) / (n * sxx - sx * sx), fixed = (sy - factor * sx) / n;
    for (int i = 0; i < TIMED; i++)
        for (int l = 0; l < LAYERS; l++)
            sum[i >= TIMED / 2] += fabs(fixed + factor * x[i][l] - measured[i][l]) / measured[i][l];
    print_message("%s: fixed %.2f ms, factor %.4g; mean absolute error %.2f %% where calibrated, "
                  "%.2f %% predicted\n",
                  name, fixed, factor, 100 * sum[0] / n, 100 * sum[1] / n);
    assert_true(fixed > 0 && factor > 0);
    return (struct fit){factor, 100 * sum[1] / n};
}

static void layer_times_are_predicted(void **state) {
    (void)state;
    static struct mp_systems systems;
    struct mp_cluster *cluster = NULL;
    struct mp_job_file job;
    struct mp_error error = {0};
    need_file(loads_path);
    need_file(times_path);
    assert_int_equal(mp_systems_register_all(&systems, &error), 0);
    if (mp_cluster_load(MOEPERF_SOURCE "/harness/cluster/clusters/smartmoe-blinky.yaml", &cluster,
                        &error) ||
        mp_cluster_set(cluster, "nodes=1", &error))
        fail_msg("%s", error.text);
    struct mp_predictor *predictor = one_layer(cluster, &job, &systems);
    read_times();
    predict_layers(predictor);
    struct fit naive = fit(busiest, "routes of the busiest rank");
    struct fit ours = fit(predicted, "predictor, MoE layer");
    assert_true(ours.error <= 2.5 && ours.error < naive.error);
    assert_true(ours.factor > 0.8 && ours.factor < 1.25);
    mp_predictor_destroy(predictor);
    mp_job_file_destroy(&job);
    mp_cluster_destroy(cluster);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(layer_times_are_predicted)};
    return cmocka_run_group_tests_name("published layers", tests, NULL, NULL);
}
