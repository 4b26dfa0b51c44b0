/* Published layer times: SmartMoE's artifact has the times of 24 layers on 8 and on 16 ranks, and
 * the loads of the training that they come from.
 *
 * The predictor carries one layer after the other out.  Model and machine are not published with
 * the times, so a fixed cost of a layer and the device's rate are calibrated on the first half of
 * the iterations: ms = fixed + factor * predicted.  The second half is predicted; and the times on
 * two nodes from the two constants of one node, where the fixed cost is that of twice as many
 * tokens.  Times are published in whole ms, of 16 to 35 on 8 ranks: rounding alone is an error of
 * 1.2 %.
 *
 * What explains the times on two nodes:
 * - Rows travel by expert (steps.h), as in FastMoE, whose system was timed.  A line in the busiest
 *   rank's routes leaves 4.1 %; with the sum over both local experts of the most routes that a rank
 *   gets for it, beside the busiest rank's, 2.3 % (three constants).
 * - What counts between nodes is the rank that most rows cross to, not the node: the card is not
 *   what limits, but what one rank gets of it.  Half of it is taken here (rank-bandwidth).
 * - Inside a node rounds leave no trace: 0.01 us a route, within 0.01.  Over PCIe, whose links
 * would take 0.7 us, the times on 8 ranks come out 6.4 % off.  So the machine is taken for inky, 8
 * A100 with NVLink to a node. What is left is a fixed cost on two nodes that is 30 ms more than
 * twice that on one and does not depend on loads; and what distinguishes layers and stays the same
 * over iterations.
 *
 * Rows and micro-batches of the trace that were timed are inferred (rows 0 to 7 of micro-batch 0;
 * all rows of 0 and 1); others fit as well, the experts' shares hardly differ between them.  So are
 * sizes: those of the larger GPT of harness/suites/paper/smartmoe.yaml. */
#include "harness/workload/formats.h"
#include "tests/harness/predict/published.h"

enum { LAYERS = 24, EXPERTS = 32, MOST_RANKS = 16, MOST_TIMED = 30, TOKENS = 2048, TOP_K = 2 };

static const char loads_path[] = MOEPERF_TRACES "/smartmoe_gpt_e32_top2.csv.zst";

/* Times of so many layers: iterations 101, 201, ... */
struct timed {
    const char *path;
    int ranks, micro_batches; /* of the trace that they are inferred to stand for, from the first */
    int count;                /* iterations that there are loads for */
    int calibrated;           /* how many of them constants may be fitted to */
    double measured[MOST_TIMED][LAYERS], predicted[MOST_TIMED][LAYERS], busiest[MOST_TIMED][LAYERS];
};

static struct timed on_one_node = {.path = MOEPERF_TRACES "/smartmoe_layer_ms_ep8_mbs4.csv",
                                   .ranks = 8,
                                   .micro_batches = 1,
                                   .count = 30,
                                   .calibrated = 15};
static struct timed on_two_nodes = {.path = MOEPERF_TRACES "/smartmoe_layer_ms_ep16_mbs8_first.csv",
                                    .ranks = 16,
                                    .micro_batches = 2,
                                    .count = 24,
                                    .calibrated = 12};

static int timed_index(const struct timed *timed, int64_t iteration) {
    int64_t index = (iteration - 101) / 100;
    return iteration % 100 == 1 && iteration >= 101 && index < timed->count ? (int)index : -1;
}

static bool take_time(void *context, const char *line) {
    struct timed *timed = context;
    int iteration, layer, ms;
    if (sscanf(line, "%d,%d,%d", &iteration, &layer, &ms) != 3)
        return false;
    int index = timed_index(timed, iteration);
    if (index >= 0)
        timed->measured[index][layer] = ms;
    return index >= 0;
}

static void read_times(struct timed *timed) {
    assert_int_equal(published_lines(timed->path, take_time, timed), timed->count * LAYERS);
}

static double largest_rank(const struct mp_load *load) {
    int64_t most = 0;
    for (int r = 0; r < load->ranks; r++) {
        int64_t routes = 0;
        for (int source = 0; source < load->ranks; source++)
            for (int e = 0; e < EXPERTS / load->ranks; e++)
                routes += mp_load_at(load, source, r * EXPERTS / load->ranks + e);
        most = routes > most ? routes : most;
    }
    return (double)most;
}

/* Micro-batches come one after the other, layer by layer: their sum, of the first ranks. */
static void predict_layers(struct timed *timed, struct mp_predictor *predictor) {
    struct mp_trace_stream *stream = NULL;
    const struct mp_trace_block *block;
    struct mp_prediction prediction;
    struct mp_load load[LAYERS];
    for (int l = 0; l < LAYERS; l++)
        assert_works(mp_load_create(timed->ranks, EXPERTS, &load[l], &error));
    assert_works(mp_format_open("csv-wide", loads_path, 0, &stream, &error));
    for (int count = 0; count < timed->count * LAYERS;) {
        struct mp_error ended = {0};
        if (mp_trace_next(stream, &block, &ended) || !block)
            fail_msg("the trace ends early: %s", ended.text);
        int index = timed_index(timed, block->iteration), l = block->layer;
        if (index < 0 || block->micro_batch >= timed->micro_batches)
            continue;
        for (int i = 0; i < timed->ranks * EXPERTS; i++)
            load[l].count[i] = block->load.count[i] + (block->micro_batch ? load[l].count[i] : 0);
        if (block->micro_batch + 1 < timed->micro_batches)
            continue;
        assert_int_equal(mp_load_total(&load[l]),
                         timed->ranks * timed->micro_batches * TOKENS * TOP_K);
        assert_works(mp_predictor_step(predictor, &load[l], &prediction, &error));
        timed->predicted[index][l] = 1e3 * prediction.moe_seconds;
        timed->busiest[index][l] = largest_rank(&load[l]);
        count++;
    }
    mp_trace_stream_destroy(stream);
    for (int l = 0; l < LAYERS; l++)
        mp_load_destroy(&load[l]);
}

struct line {
    double fixed, factor;
};

static struct line fit(const struct timed *timed, const double x[][LAYERS]) {
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int i = 0; i < timed->calibrated; i++)
        for (int l = 0; l < LAYERS; l++) {
            n++;
            sx += x[i][l];
            sy += timed->measured[i][l];
            sxx += x[i][l] * x[i][l];
            sxy += x[i][l] * timed->measured[i][l];
        }
    double factor = (n * sxy - sx * sy) / (n * sxx - sx * sx);
    return (struct line){(sy - factor * sx) / n, factor};
}

/* Mean absolute error in % of iterations from `first` on. */
static double error_of(const struct timed *timed, const double x[][LAYERS], struct line line,
                       int first) {
    double sum = 0;
    for (int i = first; i < timed->count; i++)
        for (int l = 0; l < LAYERS; l++)
            sum += fabs(line.fixed + line.factor * x[i][l] - timed->measured[i][l]) /
                   timed->measured[i][l];
    return 100 * sum / ((timed->count - first) * LAYERS);
}

/* One EP layer of a GPT whose experts are twice as wide as the model. */
static void predict(struct timed *timed, const char *exchange) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster) struct mp_cluster *cluster = NULL;
    char batch[32], change[96];
    snprintf(batch, sizeof batch, "batch=%d", timed->ranks * timed->micro_batches);
    snprintf(change, sizeof change, "change=nodes=%d levels.cluster.rank-bandwidth=12.5e9",
             timed->ranks / 8);
    assert_works(mp_predict_job_create(&job, &error));
    set(&job, "cluster=smartmoe-inky", change, "system=ep", "layers=1", "width=2048", "heads=16",
        "expert-width=4096", "experts=32", "sequence=2048", batch, exchange);
    AUTO(predictor) struct mp_predictor *predictor = published_predictor(&job, &cluster, NULL);
    predict_layers(timed, predictor);
}

/* The error of iterations that nothing was fitted to. */
static double held_out(const struct timed *timed, const double x[][LAYERS], const char *name) {
    struct line line = fit(timed, x);
    double error = error_of(timed, x, line, timed->calibrated);
    print_message("%2d ranks, %-34s fixed %6.2f ms, factor %8.4g; mean absolute error %.2f %%\n",
                  timed->ranks, name, line.fixed, line.factor, error);
    assert_true(line.fixed > 0 && line.factor > 0);
    return error;
}

TEST(layer_times_are_predicted) {
    const char *whole = "predictor, whole", *by_expert = "predictor, by expert";
    need_file(loads_path);
    need_file(on_one_node.path);
    need_file(on_two_nodes.path);
    read_times(&on_one_node);
    read_times(&on_two_nodes);
    predict(&on_two_nodes, "predict.exchange=whole");
    double at_once = held_out(&on_two_nodes, on_two_nodes.predicted, whole);
    predict(&on_one_node, "predict.exchange=by-expert");
    predict(&on_two_nodes, "predict.exchange=by-expert");
    double near_line = held_out(&on_one_node, on_one_node.busiest, "routes of the busiest rank:");
    double far_line = held_out(&on_two_nodes, on_two_nodes.busiest, "routes of the busiest rank:");
    double near = held_out(&on_one_node, on_one_node.predicted, by_expert);
    double far = held_out(&on_two_nodes, on_two_nodes.predicted, by_expert);
    assert_true(near <= 2.25 && near < near_line);
    assert_true(far <= 3.8 && far < far_line && far < at_once);
    struct line line = fit(&on_one_node, on_one_node.predicted);
    line.fixed *= on_two_nodes.micro_batches;
    double transferred = error_of(&on_two_nodes, on_two_nodes.predicted, line, 0);
    print_message("16 ranks from the constants of 8: mean absolute error %.2f %%\n", transferred);
    assert_true(transferred <= 7.5);
}

TEST_GROUP(enter, leave_folder);
