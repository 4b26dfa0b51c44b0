/* What is written of two processes, in the database: phases, GPU work, collectives, clocks. */
#include "harness/recordings/writer.h"

#include "tests/harness/record/kept.h"

static const char rules_text[] = "rules:\n"
                                 "  - {name: step, phase: iteration}\n"
                                 "  - {name: experts, domain: mine, phase: expert, layer: "
                                 "payload.layer, tokens: payload.tokens}\n"
                                 "  - {name: exchange, phase: dispatch, waits: all}\n";

enum { STEPS = 30, STEP_NS = 1000000, LATE_NS = 400000 };
static const int64_t shift_ns = INT64_C(5000000000); /* the second one's clock */

/* Of each step: experts until 100 us (the second process: 500 us), then an exchange until 600 us.
 */
static void say_step(struct mp_recording_process *process, int rank, int step, uint64_t schema) {
    const int64_t start_ns = RUNS_T0 + (int64_t)step * STEP_NS + (rank ? shift_ns : 0);
    const int64_t work_ns = 100000 + (rank ? LATE_NS : 0), field[] = {3, 40 + rank};
    const struct mp_recorded_range ranges[] = {
        {.start_ns = start_ns, .end_ns = start_ns + 700000, .name = "step", .thread = 9},
        {.start_ns = start_ns + 10,
         .end_ns = start_ns + work_ns,
         .name = "experts",
         .domain = "mine",
         .thread = 9,
         .schema = schema,
         .field = field},
        {.start_ns = start_ns + work_ns,
         .end_ns = start_ns + 600000,
         .name = "exchange",
         .thread = 9}};
    for (int i = 0; i < 3; i++)
        assert_works(mp_recording_range(process, &ranges[i], &error));
    const struct mp_recorded_collective collective = {
        .is = {.start_ns = start_ns + work_ns,
               .queued_ns = start_ns + work_ns + 5,
               .timer_start = (uint64_t)(start_ns + work_ns),
               .timer_end = (uint64_t)start_ns + 600000 + (uint64_t)(rank * (step % 5) * 10),
               .communicator = mp_recording_communicator("0", "[0, 1]"),
               .count = 8,
               .rank = rank},
        .function = "all_to_all",
        .datatype = "ncclFloat32"};
    assert_works(mp_recording_collective(process, &collective, &error));
    const struct mp_activity kernel = {.start_ns = start_ns + 20,
                                       .end_ns = start_ns + 60,
                                       .correlation = (uint32_t)step + 1,
                                       .kind = MP_ACTIVITY_KERNEL},
                             call = {.start_ns = start_ns + 15,
                                     .end_ns = start_ns + 18,
                                     .correlation = (uint32_t)step + 1,
                                     .kind = MP_ACTIVITY_CALL};
    assert_works(mp_recording_activity(process, &call, "cudaLaunchKernel", &error));
    assert_works(mp_recording_activity(process, &kernel, "gemm", &error));
}

static void write_process(struct mp_recording *recording, int rank) {
    static const char *const field[] = {"layer", "tokens"};
    struct mp_recording_process *process;
    uint64_t schema;
    const struct mp_recorded_process about = {.rank = rank, .source = rank ? "b.json" : "a.json"};
    assert_works(mp_recording_process(recording, &about, &process, &error));
    assert_works(mp_recording_fields(process, "mine", field, 2, &schema, &error));
    assert_works(mp_recording_text(process, "source", about.source, &error));
    for (int step = STEPS; step-- > 0;) /* in any order */
        say_step(process, rank, step, schema);
}

/* Writes both and adds them to the database. */
static void keep_both(struct runs_folder *folder, struct mp_recording_summary *summary) {
    struct mp_recording *recording;
    char spools[SPOOLS_SIZE], said[2000] = "";
    make_spools(folder, spools);
    assert_works(mp_recording_create(spools, "test", &recording, &error));
    write_process(recording, 1);
    write_process(recording, 0);
    assert_works(mp_recording_finish(recording, summary, &error));
    const struct mp_record_run run = {.spools = spools, .importer = "test", .is_earlier = true};
    assert_works(keep_run(folder, run, rules_text, said, sizeof said, &error));
    assert_contains(said, "moeperf import: run 1");
    mp_recording_destroy(recording);
    assert_int_equal(access(spools, F_OK), -1); /* nothing has stayed */
}

RUNS_TEST(what_is_said_is_in_the_database) {
    struct mp_recording_summary summary;
    keep_both(folder, &summary);
    assert_numbers(summary.processes, 2, summary.ranges, 2 * 3 * STEPS);
    assert_numbers(summary.activities, 2 * 2 * STEPS, summary.collectives, 2 * STEPS);
    assert_numbers(summary.clocks.aligned, 1, summary.clocks.matched, STEPS);
    assert_in_range(summary.clocks.offset_ns, shift_ns, shift_ns + 40);
    assert_in_range(summary.clocks.error_ns, 0, 40);
    assert_rows(folder->store, "SELECT status, ranks_recorded, iterations FROM v_run",
                "complete|2|30");
    assert_rows(
        folder->store,
        "SELECT count(*), min(layer), max(layer), sum(tokens) FROM v_span WHERE phase = 'expert'",
        "60|3|3|2430");
    assert_rows(folder->store, "SELECT sum(wait_ns) FROM span WHERE wait_ns > 0", "18000000");
    assert_rows(folder->store,
                "SELECT group_concat(round(ms, 4)) FROM (SELECT sum(wait_ms) AS ms FROM "
                "v_collective GROUP BY rank ORDER BY rank)",
                "11.9994,0.0");
    assert_rows(folder->store,
                "SELECT min(communicator_size), max(ordinal), min(bytes) FROM v_collective",
                "2|30|32");
    assert_rows(folder->store,
                "SELECT sum(kernels), count(DISTINCT rank) FROM v_gpu WHERE phase = 'expert'",
                "60|2");
    assert_rows(folder->store, "SELECT count(DISTINCT clock), max(clock) FROM v_rank", "2|samples");
    assert_rows(folder->store,
                "SELECT max(abs(a.start_ns - b.start_ns)) <= 20 FROM v_span a JOIN v_span b "
                "USING (iteration, phase) WHERE a.rank = 0 AND b.rank = 1 AND phase = 'iteration'",
                "1");
    assert_rows(folder->store, "SELECT count(*) FROM v_fact WHERE name = 'source'", "2");
}

RUNS_TEST(a_rank_is_recorded_once) {
    struct mp_recording *recording;
    struct mp_recording_process *process;
    struct mp_recorded_process about = {.rank = 4, .source = "a.json"};
    assert_works(mp_recording_create(folder->path, "test", &recording, &error));
    assert_works(mp_recording_process(recording, &about, &process, &error));
    about.source = "b.json";
    assert_fails(mp_recording_process(recording, &about, &process, &error), MP_EINVAL,
                 "b.json: rank 4, which a.json has");
    about.rank = -2;
    assert_fails(mp_recording_process(recording, &about, &process, &error), MP_EINVAL, "");
    mp_recording_destroy(recording);
}
