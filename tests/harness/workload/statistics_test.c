/* Statistics of a trace: a small one by hand, random ones against a second way of counting. */
#include "harness/workload/statistics.h"
#include "tests/harness/workload/streams.h"

enum { EXPERTS_LIMIT = 12, LAYERS_LIMIT = 4, ITERATIONS_LIMIT = 240, MICRO_LIMIT = 3 };

/* A trace in memory, micro-batches of one rank each: what matters here are sums over ranks. */
struct loads {
    struct mp_trace_shape shape;
    int iterations;
    int64_t number[ITERATIONS_LIMIT];
    uint32_t routes[ITERATIONS_LIMIT][MICRO_LIMIT][LAYERS_LIMIT][EXPERTS_LIMIT];
};

static struct mp_trace_statistics *measure(const struct loads *loads) {
    const struct mp_trace_shape *shape = &loads->shape;
    struct mp_trace_statistics *statistics;
    AUTO(block) struct mp_trace_block block = block_of(shape->ranks, shape->experts, 0);
    assert_works(mp_trace_statistics_create(shape, &statistics, &error));
    for (int i = 0; i < loads->iterations; i++)
        for (block.micro_batch = 0; block.micro_batch < shape->micro_batches; block.micro_batch++)
            for (block.layer = 0; block.layer < shape->layers; block.layer++) {
                block.iteration = loads->number[i];
                /* All of it is routed by one rank, another one each time. */
                uint32_t *row = block.load.count + (long)(i % shape->ranks) * shape->experts;
                memset(block.load.count, 0,
                       sizeof *row * (size_t)shape->ranks * (size_t)shape->experts);
                memcpy(row, loads->routes[i][block.micro_batch][block.layer],
                       sizeof *row * (size_t)shape->experts);
                assert_works(mp_trace_statistics_add(statistics, &block, &error));
            }
    return statistics;
}

TEST_END(statistics, struct mp_trace_statistics *, mp_trace_statistics_destroy(*it))

static struct mp_trace_summary summarise(const struct mp_trace_statistics *statistics, int layer) {
    struct mp_trace_summary summary;
    assert_int_equal(mp_trace_statistics_summarise(statistics, layer, &summary, NULL), MP_OK);
    return summary;
}

TEST(a_trace_by_hand) {
    static const struct loads loads = {
        .shape = {2, 4, 2, 1, 0},
        .iterations = 4,
        .number = {5, 6, 15, 105},
        .routes = {{{{4, 0, 4, 0}, {1, 1, 1, 1}}},
                   {{{8, 0, 0, 0}, {0, 0, 0, 0}}},
                   {{{0, 4, 0, 4}, {3, 1, 0, 0}}},
                   {{{2, 0, 6, 0}, {3, 1, 0, 0}}}},
    };
    AUTO(statistics) struct mp_trace_statistics *statistics = measure(&loads);
    struct mp_trace_summary all = summarise(statistics, -1), first = summarise(statistics, 0);
    struct mp_trace_summary second = summarise(statistics, 1);
    assert_numbers(all.blocks, 8, all.empty, 1, all.routes, 44, all.iterations, 4, all.first, 5);
    assert_numbers(all.last, 105, all.worst, 4, all.worst_at.iteration, 6, all.worst_at.layer, 0);
    assert_numbers(first.blocks, 4, first.empty, 0, first.routes, 32, first.worst_at.iteration, 6);
    assert_numbers(second.blocks, 4, second.empty, 1, second.routes, 12, second.worst, 3);
    /* 2 4 2 3 and 1 - 3 3 */
    assert_close(first.median[MP_EXPERT_MAX_OVER_MEAN], 2.5, 1e-12);
    assert_close(second.median[MP_EXPERT_MAX_OVER_MEAN], 3, 1e-12);
    assert_close(all.median[MP_EXPERT_MAX_OVER_MEAN], 3, 1e-12);
    /* Ranks have two neighbours each: 1 2 1 1.5 and 1 - 2 2. */
    assert_close(first.median[MP_RANK_MAX_OVER_MEAN], 1.25, 1e-12);
    assert_close(second.median[MP_RANK_MAX_OVER_MEAN], 2, 1e-12);
    assert_close(first.median[MP_DEAD_FRACTION], 0.5, 1e-12);
    assert_close(second.median[MP_DEAD_FRACTION], 0.5, 1e-12);
    assert_close(second.median[MP_EFFECTIVE_EXPERTS], exp(-0.75 * log(0.75) - 0.25 * log(0.25)),
                 1e-12);
    /* Layer 0: 5 and 6: (2 -2 2 -2) with (6 -2 -2 -2); 5 and 15: opposite; 5 and 105: (2 -2 2 -2)
     * with (0 -2 4 -2).  6 and 15 are 9 apart.  Layer 1 is even in 5 and empty in 6. */
    assert_close(first.correlation[0], 16 / sqrt(16.0 * 48), 1e-12);
    assert_close(first.correlation[1], -1, 1e-12);
    assert_close(first.correlation[2], 16 / sqrt(16.0 * 24), 1e-12);
    assert_true(isnan(second.correlation[0]) && isnan(second.correlation[1]));
    assert_close(all.correlation[1], -1, 1e-12);
}

/* Few different numbers of an iteration, so that lags are met often, and some blocks empty. */
static void draw(uint64_t *random, struct loads *loads) {
    loads->shape = (struct mp_trace_shape){
        test_random_int(random, 1, 5), test_random_int(random, 1, EXPERTS_LIMIT),
        test_random_int(random, 1, LAYERS_LIMIT), test_random_int(random, 1, MICRO_LIMIT), 0};
    loads->iterations = test_random_int(random, 1, ITERATIONS_LIMIT);
    int64_t number = test_random_int(random, 0, 1000);
    int step = test_random_int(random, 1, 3);
    for (int i = 0; i < loads->iterations; i++) {
        loads->number[i] = number;
        number += test_random_int(random, 1, step);
        for (int m = 0; m < loads->shape.micro_batches; m++)
            for (int l = 0; l < loads->shape.layers; l++) {
                int most = test_random_int(random, 0, 4) ? 50 : 0;
                for (int e = 0; e < loads->shape.experts; e++)
                    loads->routes[i][m][l][e] = (uint32_t)test_random_int(random, 0, most);
            }
    }
}

/* Routes of all micro-batches. */
static double routes_of(const struct loads *loads, int i, int l, int e) {
    double sum = 0;
    for (int m = 0; m < loads->shape.micro_batches; m++)
        sum += loads->routes[i][m][l][e];
    return sum;
}

static double correlation_of(const struct loads *loads, int one, int other, int l) {
    double n = loads->shape.experts, x = 0, y = 0, xx = 0, yy = 0, xy = 0;
    for (int e = 0; e < loads->shape.experts; e++) {
        double a = routes_of(loads, one, l, e), b = routes_of(loads, other, l, e);
        x += a, y += b, xx += a * a, yy += b * b, xy += a * b;
    }
    double scale = (n * xx - x * x) * (n * yy - y * y);
    return scale > 0.5 ? (n * xy - x * y) / sqrt(scale) : NAN; /* whole numbers */
}

/* All pairs of iterations. */
static double expected_correlation(const struct loads *loads, int layer, int lag) {
    double sum = 0, count = 0;
    for (int i = 0; i < loads->iterations; i++)
        for (int j = 0; j < i; j++)
            for (int l = 0; l < loads->shape.layers; l++) {
                if (loads->number[i] - loads->number[j] != lag || (layer >= 0 && l != layer))
                    continue;
                double found = correlation_of(loads, i, j, l);
                sum += isnan(found) ? 0 : found;
                count += !isnan(found);
            }
    return count > 0 ? sum / count : NAN;
}

/* At least half of the layer's blocks are at most the median, and at least half at least. */
static void check_median(const struct loads *loads, int layer, double median) {
    int below = 0, above = 0, all = 0;
    for (int i = 0; i < loads->iterations; i++)
        for (int m = 0; m < loads->shape.micro_batches; m++) {
            double most = 0, sum = 0;
            for (int e = 0; e < loads->shape.experts; e++) {
                double routes = loads->routes[i][m][layer][e];
                most = fmax(most, routes);
                sum += routes;
            }
            double value = most * loads->shape.experts / sum;
            all += sum > 0;
            below += sum > 0 && value <= median * (1 + 1e-12);
            above += sum > 0 && value >= median * (1 - 1e-12);
        }
    if (all == 0)
        assert_true(isnan(median));
    else
        assert_true(2 * below >= all && 2 * above >= all);
}

static void check_close(double value, double expected) {
    if (isnan(expected))
        assert_true(isnan(value));
    else
        assert_close(value, expected, 1e-9);
}

TEST_RANDOM(random_traces) {
    AUTO(allocated) struct loads *loads = malloc(sizeof *loads);
    assert_non_null(loads);
    for (int n = 0; n < 8; n++) {
        draw(random, loads);
        AUTO(statistics) struct mp_trace_statistics *statistics = measure(loads);
        for (int layer = -1; layer < loads->shape.layers; layer++) {
            struct mp_trace_summary summary = summarise(statistics, layer);
            for (int lag = 0; lag < MP_TRACE_LAGS; lag++)
                check_close(summary.correlation[lag],
                            expected_correlation(loads, layer, mp_trace_lags[lag]));
            if (layer >= 0)
                check_median(loads, layer, summary.median[MP_EXPERT_MAX_OVER_MEAN]);
            assert_int_equal(isnan(summary.median[MP_RANK_MAX_OVER_MEAN]),
                             loads->shape.experts % loads->shape.ranks != 0 ||
                                 summary.empty == summary.blocks);
        }
        struct mp_trace_place place;
        int64_t blocks = mp_trace_statistics_blocks(statistics);
        mp_trace_statistics_block(statistics, blocks - 1, &place);
        assert_int_equal(place.iteration, loads->number[loads->iterations - 1]);
        assert_int_equal(place.micro_batch, loads->shape.micro_batches - 1);
        assert_int_equal(place.layer, loads->shape.layers - 1);
    }
}
