/* What tokens say: by hand, and where every token goes on the same way. */
#include "harness/workload/tokens.h"
#include "tests/harness/workload/draw_tokens.h"
#include "tests/harness/workload/streams.h"

static struct mp_token_statistics *gather(const struct mp_trace_shape *shape, int iterations,
                                          const int32_t expert[], int tokens) {
    struct mp_token_statistics *statistics;
    AUTO(block) struct mp_trace_block block = block_of(shape->ranks, shape->experts, 0);
    int32_t own[8];
    int choices = tokens * shape->top_k;
    assert_works(mp_token_statistics_create(shape, &statistics, &error));
    for (int r = 0; r < shape->ranks; r++)
        own[r] = tokens / shape->ranks;
    for (; block.iteration < iterations; block.iteration++)
        for (block.layer = 0; block.layer < shape->layers; block.layer++) {
            assert_works(mp_load_give_routes(&block.load, shape->top_k, own, &error));
            memcpy(block.load.routes->expert, expert + block.layer * choices,
                   (size_t)choices * sizeof *expert);
            memset(block.load.count, 0,
                   (size_t)(shape->ranks * shape->experts) * sizeof *block.load.count);
            for (int r = 0; r < shape->ranks; r++)
                mp_routes_count(block.load.routes, r, block.load.count + r * shape->experts);
            assert_works(mp_token_statistics_add(statistics, &block, &error));
        }
    return statistics;
}

TEST_END(statistics, struct mp_token_statistics *, mp_token_statistics_destroy(*it))

static struct mp_token_summary summarise(const struct mp_token_statistics *statistics, int layer) {
    struct mp_token_summary summary;
    mp_token_statistics_summarise(statistics, layer, &summary);
    return summary;
}

TEST(what_is_certain_is_told) {
    const struct mp_trace_shape shape = {1, 4, 2, 1, 1};
    const int32_t expert[] = {0, 1, 2, 3, /**/ 3, 0, 1, 2};
    AUTO(statistics) struct mp_token_statistics *statistics = gather(&shape, 3, expert, 4);
    struct mp_token_summary summary = summarise(statistics, 0);
    assert_true(isnan(summary.most) && isnan(summary.entropy));
    assert_within(summary.ranks, 1, 0);
    summary = summarise(statistics, 1);
    assert_within(summary.most, 1, 0);
    assert_within(summary.most_independent, 0.25, 0);
    assert_within(summary.information, 2, 1e-12);
    assert_within(summary.entropy, 2, 1e-12);
}

TEST(what_is_drawn_is_not) {
    /* After either expert, as many go on to 0 as to 1, and half as many to 2. */
    const struct mp_trace_shape shape = {2, 4, 2, 1, 1};
    const int32_t expert[] = {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, /**/ 0, 0, 1, 1, 2, 0, 0, 1, 1, 2};
    AUTO(statistics) struct mp_token_statistics *statistics = gather(&shape, 1, expert, 10);
    struct mp_token_summary summary = summarise(statistics, 1);
    assert_within(summary.most, 0.4, 1e-12);
    assert_within(summary.most_independent, 0.4, 1e-12);
    assert_within(summary.information, 0, 1e-12);
    assert_within(summary.entropy, -0.8 * log2(0.4) - 0.2 * log2(0.2), 1e-12);
}

TEST(sets_of_ranks_differ_from_what_counts_say) {
    /* Tokens take both experts of a rank, or (where a choice is not taken) one. */
    const struct mp_trace_shape shape = {2, 4, 1, 1, 2};
    const int32_t expert[] = {0, 1, 2, 3, 1, 0, 3, 2};
    const int32_t apart[] = {0, 2, 3, 1, 0, -3, 2, 0};
    AUTO(statistics) struct mp_token_statistics *statistics = gather(&shape, 1, expert, 4);
    struct mp_token_summary summary = summarise(statistics, 0);
    assert_within(summary.ranks, 1, 0);
    assert_within(summary.ranks_independent, 5.0 / 3, 1e-6); /* 4 of 6 pairs are apart */
    AUTO(statistics) struct mp_token_statistics *others = gather(&shape, 1, apart, 4);
    summary = summarise(others, 0);
    assert_within(summary.ranks, 7.0 / 4, 1e-12);
}
