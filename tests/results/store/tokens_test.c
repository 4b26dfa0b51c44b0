/* No tokens and no number of tokens are not the same, in every view that counts them. */
#include "tests/results/runs.h"

enum { RANKS = 3, UNCOUNTED = -1, NO_SPAN = -2 };

/* One iteration of 10 ms: all meet at the gate of layer 0, and each computes 1 ms for 100 tokens.
 */
static void record_rank(struct runs_rank *own, int64_t tokens) {
    const struct runs_span spans[] = {
        {MP_PHASE_ITERATION, MP_NO_DIRECTION, 0, 10000, 0, -1, tokens == UNCOUNTED ? UNCOUNTED : 50,
         -1, false},
        {MP_PHASE_GATE, MP_FORWARD, 0, 500, 0, 0, -1, -1, false},
        {MP_PHASE_EXPERT, MP_FORWARD, 1000, tokens > 0 ? tokens * 10 : 1000, 0, 0, tokens, -1,
         false},
    };
    static const uint32_t routes[] = {150, 150};
    runs_record_some(own, 0, spans, tokens == NO_SPAN ? 2 : 3);
    mp_record_load(own->compute, 0, 0, 2, routes, NULL);
    runs_clock_samples(own);
}

static const struct {
    int64_t tokens[RANKS];
    const char *straggler; /* ranks, min_ms, mean_ms, lost_ms, slowest tokens, mean tokens */
    const char *imbalance; /* of the iteration, of the ranks; tokens of the iteration */
} cases[] = {
    /* 6 and 3 ms, and 1 ms for none: 10 / 3, (6 - 3) + (6 - 1); 600 over 300. */
    {{600, 300, 0}, "3|1.0|3.333|8.0|600|300.0", "2.0|2.0|150"},
    /* The same without a span: no time either, and 6 more that the others are ahead. */
    {{600, 300, NO_SPAN}, "3|0.0|3.0|9.0|600|300.0", "2.0|2.0|150"},
    {{900, 0, NO_SPAN}, "3|0.0|3.333|17.0|900|300.0", "3.0|3.0|150"},
    /* One does not say: the slowest does, the mean is not known. */
    {{600, 300, UNCOUNTED}, "3|1.0|3.333|8.0|600|NULL", "NULL|NULL|NULL"},
    {{UNCOUNTED, 50, 50}, "3|0.5|0.667|1.0|NULL|NULL", "NULL|NULL|NULL"},
    /* Nobody says. */
    {{UNCOUNTED, UNCOUNTED, NO_SPAN}, "3|0.0|0.667|1.0|NULL|NULL", "NULL|NULL|NULL"},
    /* Nobody had any. */
    {{0, 0, 0}, "3|1.0|1.0|0.0|0|0.0", "NULL|NULL|150"},
};

RUNS_TEST(none_is_not_unknown) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mp_store_run description = runs_description("ep", "text");
        struct runs_rank ranks[RANKS];
        char sql[512];
        description.ranks = RANKS;
        for (int r = 0; r < RANKS; r++) {
            runs_rank_open(folder, r, RANKS, &ranks[r]);
            record_rank(&ranks[r], cases[i].tokens[r]);
        }
        const int64_t run_id = runs_ingest(folder, &description, ranks, RANKS);
        snprintf(
            sql, sizeof sql,
            "SELECT ranks, round(min_ms, 3), round(mean_ms, 3), round(lost_ms, 3), slowest_tokens, "
            "mean_tokens FROM v_straggler WHERE run_id = %lld AND phase = 'expert'",
            (long long)run_id);
        assert_rows(folder->store, sql, cases[i].straggler);
        snprintf(sql, sizeof sql,
                 "SELECT v_iteration.imbalance, rank_max_over_mean, v_iteration.tokens FROM "
                 "v_iteration JOIN v_imbalance USING (run_id) WHERE run_id = %lld",
                 (long long)run_id);
        assert_rows(folder->store, sql, cases[i].imbalance);
    }
}
