/* What the tests of this folder share: the analysis of a run, and how what they make is ended (AUTO
 * of tests/support.h). */
#pragma once

#include "profiler/record/record.h"
#include "profiler/straggler/analysis.h"
#include "profiler/straggler/straggler.h"
#include "tests/errors.h"

TEST_END(causes, struct mp_causes, mp_causes_destroy(it))
TEST_END(graph, struct mp_graph *, mp_graph_destroy(*it))
TEST_END(straggler, struct mp_straggler, mp_straggler_destroy(it))
TEST_END(waits, struct mp_waits, mp_waits_destroy(it))

static inline struct mp_straggler analysed(const struct mp_straggler_input *input) {
    struct mp_straggler found;
    assert_works(mp_straggler_analyse(input, &found, &error));
    return found;
}

/* A share of runs is right; the fewer ones under sanitizers don't show how large it is. */
static inline void assert_most(int right, double share, int runs) {
    assert_true(TEST_SANITIZED || right >= share * runs);
}

/* Of times alone, on a common clock. */
static inline struct mp_straggler analysed_times(int ranks, int iterations,
                                                 const struct mp_recorded_rank rank[],
                                                 const struct mp_recorded_span span[],
                                                 size_t spans) {
    const struct mp_straggler_input input = {.times = {ranks, iterations, rank, span, spans},
                                             .common_clock = true};
    return analysed(&input);
}

/* The at-th finding. */
static inline const struct mp_straggler_finding *finding_of(const struct mp_straggler *found,
                                                            int at, int rank, enum mp_cause cause) {
    assert_true(at < found->findings);
    assert_numbers(found->finding[at].rank, rank, found->finding[at].cause, cause);
    return &found->finding[at];
}

/* About normal. */
static inline double test_normal(uint64_t *random) {
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += test_random_double(random);
    return sum;
}

/* Closes up the ranks' spans, which have more room than they need; how many they are. */
static inline size_t close_up(struct mp_recorded_rank rank[], size_t ranks,
                              struct mp_recorded_span span[], double collected[]) {
    size_t kept = 0;
    for (size_t i = 0; i < ranks; i++) {
        const size_t first = rank[i].first, count = (size_t)rank[i].count;
        memmove(span + kept, span + first, count * sizeof *span);
        memmove(collected + kept, collected + first, count * sizeof *collected);
        rank[i].first = kept;
        kept += count;
    }
    return kept;
}
