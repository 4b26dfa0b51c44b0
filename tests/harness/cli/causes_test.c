/* Causes beside uneven experts, planted into span tables: report and page say them in words. */
#include "tests/harness/cli/annotated.h"
#include "tests/profiler/straggler/pipeline.h"

enum { ITERATIONS = 8 };

static void write_row(FILE *file, int rank, int iteration, const struct mp_recorded_span *span) {
    const double begin = 10.0 * iteration;
    fprintf(file, "%d,%s,%.9f,%.9f,%d,%s,%d,%.9f,", rank, mp_phase_name((enum mp_phase)span->phase),
            begin + span->start, begin + span->end, span->layer,
            span->direction == MP_FORWARD    ? "forward"
            : span->direction == MP_BACKWARD ? "backward"
                                             : "",
            iteration, span->wait);
    if (span->tokens >= 0)
        fprintf(file, "%lld", (long long)span->tokens);
    fputc('\n', file);
}

/* Iterations begin at 0, 10, 20 s ...; `save_s`: rank 0 saves a checkpoint before each but the
 * first, and begins later by so much.  What an interpreter collects lies in the spans before. */
static void write_table(const struct pipeline *plan, double save_s) {
    uint64_t random = 1;
    struct pipeline_run run;
    const int ranks = plan->stages * plan->replicas;
    FILE *file = fopen("spans.csv", "w");
    assert_non_null(file);
    fputs("rank,phase,start,end,layer,direction,iteration,wait,tokens\n", file);
    pipeline_make(plan, &random, &run);
    for (int i = 0; i < plan->iterations * ranks; i++) {
        const struct mp_recorded_rank *own = &run.rank[i];
        const int iteration = i / ranks, rank = i % ranks;
        const double late = rank == 0 && iteration > 0 ? save_s : 0;
        struct mp_recorded_span whole = {late, own->end, 0, -1, -1, MP_PHASE_ITERATION, 2};
        write_row(file, rank, iteration, &whole);
        for (int s = 0; s < own->count; s++) {
            struct mp_recorded_span span = run.span[own->first + (size_t)s];
            if (s == 0 && late > 0) /* its data, which takes longer than that */
                span.start = late;
            if (s + 1 < own->count && span.phase != MP_PHASE_COLLECT &&
                run.span[own->first + (size_t)s + 1].phase == MP_PHASE_COLLECT)
                span.end = run.span[own->first + (size_t)s + 1].end; /* it collects in its work */
            write_row(file, rank, iteration, &span);
        }
        if (late > 0)
            fprintf(file, "0,checkpoint,%.9f,%.9f,-1,,%d,,\n", 10.0 * iteration - 1,
                    10.0 * iteration + late, iteration - 1);
    }
    fclose(file);
    pipeline_destroy(&run);
}

/* In which a rank (-1: none) has a cause of that strength. */
static struct pipeline plan_of(int rank, enum mp_cause cause, double strength) {
    return (struct pipeline){.stages = 2,
                             .replicas = 2,
                             .batches = 4,
                             .iterations = ITERATIONS,
                             .layers = {2, 2},
                             .rank = rank,
                             .cause = cause,
                             .strength = strength};
}

static void import(const struct pipeline *plan, double save_s) {
    assert_runs("rm -f spans.csv run.db");
    write_table(plan, save_s);
    assert_says("moeperf import spans.csv --db run.db", 0, "4 processes");
}

#define REPORT "moeperf report --db run.db --run 1 --stragglers | tr -s ' \\n' ' '"

/* The last stage has three layers beside two: half a layer
 * beyond their mean: 4 micro-batches of 1.25 ms forward and 2.5 back. */
TEST(a_large_stage_is_told) {
    struct pipeline plan = plan_of(-1, MP_CAUSE_LINK, 0);
    plan.layers[1] = 3;
    import(&plan, 0);
    assert_says(REPORT, 0, "for stage 1 of the pipeline, beyond what filling and draining it takes",
                "works 15.00 ms longer than a mean stage's, and none of them is slow "
                "(pipeline stage). It matters in 100 % of the iterations and is chronic; with even "
                "stages an iteration would take 11.25 ms less (10 %). Give the stages layers by",
                "Were the last of 2 pipeline stages as long as their mean, 133 % of that would be "
                "gone (M_S).");
    AUTO(json)
    json_t *report = json_of("moeperf report --db run.db --run 1 --stragglers --json", 0);
    const json_t *analysis = member(report, "rows/0/analysis");
    assert_has(analysis, "findings/#", "1", "findings/0/stage", "1", "findings/0/rank", "null");
    assert_true(number(analysis, "bubble_ms") > 0);
    /* Nothing says whether checkpoints, a collector or others at the processor made ranks late. */
    assert_has(analysis, "not_told/#", "3");
    assert_runs("moeperf report --db run.db --html run.html");
    assert_says("cat run.html", 0, "Ranks wait for pipeline stage 1");
}

TEST(a_slow_link_is_told) {
    const struct pipeline plan = plan_of(3, MP_CAUSE_LINK, 5e-3);
    import(&plan, 0);
    assert_says(REPORT, 0, "its transfers from rank 1 take 20.00 ms longer (slow link)");
}

/* 30 ms in the middle of rank 2's experts. */
TEST(garbage_is_told) {
    const struct pipeline plan = plan_of(2, MP_CAUSE_COLLECT, 30e-3);
    import(&plan, 0);
    assert_says(REPORT, 0, "for rank 2",
                "longer on collecting its interpreter's garbage (garbage collection)",
                "gc.collect every so many");
    assert_run("SELECT count(*) || ' ' || group_concat(DISTINCT stream) FROM v_span WHERE "
               "phase = 'collect'",
               "8 comm");
}

/* Rank 0 reads its data for 60 ms, and 40 ms of an iteration are gone before that in which it still
 * saves what it has: 40 ms late, and 20 more. */
TEST(data_and_checkpoints_are_told) {
    const struct pipeline plan = plan_of(0, MP_CAUSE_DATA, 60e-3);
    import(&plan, 40e-3);
    assert_says(REPORT, 0, "longer on checkpoints (checkpointing)",
                "longer to get its data (data loading)");
}

/* The same, of which nothing was recorded. */
TEST(a_late_start_is_told) {
    const struct pipeline plan = plan_of(0, MP_CAUSE_DATA, 60e-3);
    assert_runs("rm -f spans.csv run.db");
    write_table(&plan, 40e-3);
    assert_runs("sed -i /checkpoint/d spans.csv");
    assert_says("moeperf import spans.csv --db run.db", 0, "4 processes");
    assert_says(REPORT, 0, "for rank 0",
                "it is late already when its iterations begin, and nothing that was recorded "
                "before them says why (late start). It matters",
                " late start ");
    assert_says("moeperf report --db run.db --run 1 --stragglers --json", 0,
                "\"cause\": \"late from before\"");
    assert_says("moeperf report --help", 0, "says why (late start)");
}

TEST_GROUP(enter_shell, leave_folder);
