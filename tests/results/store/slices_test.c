/* Iterations of a run that was stopped at times: those that were interrupted don't count. */
#include "tests/results/runs.h"

enum { ITERATIONS = 6 };

static const struct runs_standard standard = {
    .count = ITERATIONS, .ms = {30, 20, 28, 24, 22, 26}, .loss = {6, 5, 4, 3, 2.5, 2}};

/* ns after RUNS_T0 when iteration `i` begins on the first rank. */
static int64_t start_of(int i) {
    int64_t at = 0;
    for (int k = 0; k < i; k++)
        at += standard.ms[k] * 1000000 + 500000;
    return at;
}

static int64_t end_of(int i) {
    return start_of(i) + standard.ms[i] * 1000000;
}

/* What counts of a run with these slices, relative to RUNS_T0. */
static const char *steady_with(struct runs_folder *folder, const struct mp_store_slice slice[],
                               int slices) {
    struct mp_store_slice absolute[8];
    struct mp_store_run run = runs_description("ep", "text");
    assert_true(slices <= 8);
    for (int i = 0; i < slices; i++)
        absolute[i] =
            (struct mp_store_slice){RUNS_T0 + slice[i].start_ns, RUNS_T0 + slice[i].end_ns};
    run.slice = slice ? absolute : NULL;
    run.slices = slices;
    runs_add(folder, &run, &standard);
    runs_execute(folder->store,
                 "CREATE TEMP VIEW IF NOT EXISTS last AS SELECT max(run_id) AS run_id FROM run");
    return runs_query(folder->store,
                      "SELECT (SELECT group_concat(iteration, ' ') FROM v_iteration JOIN last "
                      "USING (run_id) WHERE steady), steady_iterations, round(ms_per_iteration, 3) "
                      "FROM v_speedup JOIN last USING (run_id)");
}

RUNS_TEST(only_whole_iterations_count) {
    int64_t some = 300000;
    assert_string_equal(steady_with(folder, NULL, 0), "1 2 3 4 5|5|24.0");
    /* From before the first to after the last. */
    const struct mp_store_slice all[] = {{-some, end_of(5) + some}};
    assert_string_equal(steady_with(folder, all, 1), "1 2 3 4 5|5|24.0");
    /* Stopped within iteration 2, and between 3 and 4, which harms neither. */
    const struct mp_store_slice two[] = {{-some, start_of(2) + some},
                                         {end_of(2) - some, end_of(3) + some / 3},
                                         {end_of(3) + some, end_of(5) + some}};
    assert_string_equal(steady_with(folder, two, 3), "1 3 4 5|4|23.0");
    /* The last rank of iteration 1 ended too late, and the first one of iteration 5 too early. */
    const struct mp_store_slice late[] = {{-some, end_of(1) - some},
                                          {start_of(3) - some, start_of(4) + some},
                                          {start_of(5) + some, end_of(5) + some}};
    assert_string_equal(steady_with(folder, late, 3), "3|1|24.0");
    /* The warm-up counts as much as before: the first is none even where it was not interrupted. */
    const struct mp_store_slice first[] = {{-some, end_of(0) + some / 3}};
    assert_string_equal(steady_with(folder, first, 1), "NULL|0|NULL");
    /* Slices, but none: not the same as a run without any. */
    assert_string_equal(steady_with(folder, first, 0), "NULL|0|NULL");
}

RUNS_TEST(counts_stay_as_they_were) {
    const struct mp_store_slice slice[] = {{start_of(3) - 1, end_of(3) + 1}};
    steady_with(folder, NULL, 0);
    assert_string_equal(steady_with(folder, slice, 1), "3|1|24.0");
    assert_rows(folder->store,
                "SELECT count(DISTINCT total) FROM (SELECT run_id, sum(routes) AS total FROM load "
                "GROUP BY 1)",
                "1");
    assert_rows(folder->store, "SELECT count(DISTINCT iterations), min(iterations) FROM v_run",
                "1|6");
}

RUNS_TEST(phases_are_those_of_whole_iterations) {
    static const char sql[] =
        "SELECT phase, round(iteration_ms, 3), round(exposed_ms, 3), round(wait_ms, 3) FROM "
        "v_phase JOIN last USING (run_id) WHERE phase IN ('attention', 'validate') ORDER BY 1";
    int64_t some = 300000;
    steady_with(folder, NULL, 0);
    assert_rows(folder->store, sql, "attention|144.0|12.0|0.0\nvalidate|NULL|8.0|3.0");
    /* Without iteration 2, whose ranks took 27 ms each; what lies between iterations stays. */
    const struct mp_store_slice two[] = {{-some, start_of(2) + some},
                                         {end_of(2) - some, end_of(5) + some}};
    steady_with(folder, two, 2);
    assert_rows(folder->store, sql, "attention|140.4|12.0|0.0\nvalidate|NULL|8.0|3.0");
    /* Where nothing is whole, everything is what there is. */
    const struct mp_store_slice none[] = {{-2, -1}};
    assert_string_equal(steady_with(folder, none, 1), "NULL|0|NULL");
    assert_rows(folder->store, sql, "attention|144.0|12.0|0.0\nvalidate|NULL|8.0|3.0");
}
