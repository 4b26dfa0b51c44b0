/* Loads beside a recording: what tables say is in the database by rank, iteration and layer. */
#include "harness/record/recorded_loads.h"

#include <errno.h>
#include <sys/stat.h>

#include "profiler/record/format.h"
#include "tests/harness/record/kept.h"
#include "tests/harness/workload/streams.h"
#include "tests/records.h"

enum { RANKS = 2, ITERATIONS = 5, LAYERS = 3, EXPERTS = 4, STEP = 1, MS = 1000000 };

static const char rules_text[] = "rules:\n  - {name: step, phase: iteration}\n";

/* More iterations than are recorded: a hook counts warm-up that no profiler sees. */
enum { COUNTED = ITERATIONS + 2 };
struct counts {
    uint32_t of[COUNTED][2][LAYERS][RANKS][EXPERTS]; /* [2]: micro-batches */
};

static void draw(struct counts *counts) {
    uint64_t random = test_seed();
    uint32_t *count = &counts->of[0][0][0][0][0];
    for (size_t i = 0; i < sizeof counts->of / sizeof *count; i++)
        count[i] = (uint32_t)test_random_int(&random, 0, 999);
}

static void record(const char *spools, int rank, int iterations) {
    struct mp_recorder *recorder = NULL;
    struct mp_record_thread *thread = NULL;
    char path[120];
    snprintf(path, sizeof path, "%s/%d.spool", spools, rank);
    const struct mp_recorder_config config = {.path = path, .rank = rank, .ranks = RANKS};
    assert_works(mp_recorder_create(&config, &recorder, &error));
    assert_works(mp_recorder_thread(recorder, "nvtx", &thread, &error));
    put_name(thread, STEP, MP_NAME_STRING, "step");
    const int64_t start_ns = mp_clock_ns();
    for (int i = 0; i < iterations; i++) {
        const struct mp_range is = {.start_ns = start_ns + (int64_t)i * MS,
                                    .end_ns = start_ns + (int64_t)i * MS + MS / 2,
                                    .name = STEP,
                                    .thread = 1};
        put_range(thread, is);
    }
    assert_works(mp_recorder_finish(&recorder, MP_OK, "", &error));
}

/* A rank's table; with `micro_batches` both, else the first. */
static void write_table(const char *path, const struct counts *counts, int rank, int first,
                        bool micro_batches) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "iteration,%slayer,rank,e0,e1,e2,e3\n", micro_batches ? "micro_batch," : "");
    for (int i = first; i < COUNTED; i++)
        for (int m = 0; m < 1 + micro_batches; m++)
            for (int layer = 0; layer < LAYERS; layer++) {
                const uint32_t *of = counts->of[i][m][layer][rank];
                fprintf(file, "%d,", i);
                if (micro_batches)
                    fprintf(file, "%d,", m);
                fprintf(file, "%d,%d,%u,%u,%u,%u\n", layer, rank, of[0], of[1], of[2], of[3]);
            }
    assert_int_equal(fclose(file), 0);
}

/* Those of all ranks; `path` is the last one's. */
static void write_tables(const char *folder, const struct counts *counts, int first,
                         bool micro_batches, char path[120]) {
    for (int rank = 0; rank < RANKS; rank++) {
        snprintf(path, 120, "%s/experts-%d.csv", folder, rank);
        write_table(path, counts, rank, first, micro_batches);
    }
}

/* A recording, and what is said when it is kept. */
struct recording {
    struct counts counts;
    char spools[SPOOLS_SIZE], path[120], said[2048]; /* path: of a table */
};

/* With drawn counts; the last rank ends `fewer` iterations before the others. */
static struct recording *record_all(const struct runs_folder *folder, int fewer) {
    static struct recording recording;
    draw(&recording.counts);
    make_spools(folder, recording.spools);
    for (int rank = 0; rank < RANKS; rank++)
        record(recording.spools, rank, ITERATIONS - (rank == RANKS - 1 ? fewer : 0));
    return &recording;
}

/* With the loads of a path; NULL: those that are found among the spools. */
static int keep(struct runs_folder *folder, struct recording *recording, const char *loads,
                struct mp_error *error) {
    const struct mp_record_run run = {.spools = recording->spools,
                                      .keep_spools = true,
                                      .is_earlier = true,
                                      .loads.path = loads,
                                      .job_text = "system: ep\n"};
    return keep_run(folder, run, rules_text, recording->said, sizeof recording->said, error);
}

/* Those of iterations first .. first + iterations - 1, and no others. */
static void expect_loads(struct runs_folder *folder, const struct counts *counts, int first,
                         int iterations, bool micro_batches) {
    char sql[160];
    snprintf(sql, sizeof sql, "SELECT count(*), max(iteration) FROM load");
    assert_rows(folder->store, sql,
                formatted("%d|%d", iterations * LAYERS * RANKS, first + iterations - 1));
    for (int i = first; i < first + iterations; i++)
        for (int layer = 0; layer < LAYERS; layer++)
            for (int rank = 0; rank < RANKS; rank++) {
                uint32_t sum[EXPERTS];
                for (int e = 0; e < EXPERTS; e++)
                    sum[e] = counts->of[i][0][layer][rank][e] +
                             (micro_batches ? counts->of[i][1][layer][rank][e] : 0);
                snprintf(
                    sql, sizeof sql,
                    "SELECT routes FROM load WHERE iteration = %d AND layer = %d AND rank = %d", i,
                    layer, rank);
                assert_rows(folder->store, sql,
                            formatted("[%u,%u,%u,%u]", sum[0], sum[1], sum[2], sum[3]));
            }
}

RUNS_TEST(tables_among_the_spools_are_the_runs) {
    struct recording *own = record_all(folder, 0);
    write_tables(own->spools, &own->counts, 0, false, own->path);
    assert_works(keep(folder, own, NULL, &error));
    assert_contains(own->said, "loads: 5 iterations, 3 layers, 4 experts\n");
    expect_loads(folder, &own->counts, 0, ITERATIONS, false);
    assert_rows(folder->store, "SELECT count(*), job_text FROM run", "1|system: ep\n");
}

RUNS_TEST(micro_batches_of_a_named_folder_are_added_up) {
    struct recording *own = record_all(folder, 0);
    char tables[80];
    snprintf(tables, sizeof tables, "%s/tables", folder->path);
    assert_int_equal(mkdir(tables, 0700), 0);
    write_tables(tables, &own->counts, 1, true, own->path);
    assert_works(keep(folder, own, tables, &error));
    expect_loads(folder, &own->counts, 1, ITERATIONS - 1, true);
}

/* A table that ends inside iteration 3 gives 0 to 2. */
RUNS_TEST(a_cut_table_gives_what_is_whole) {
    struct recording *own = record_all(folder, 0);
    char line[256];
    write_tables(own->spools, &own->counts, 0, false, own->path);
    FILE *file = fopen(own->path, "r");
    for (int lines = 0; lines < 1 + 3 * LAYERS + 1; lines++)
        assert_non_null(fgets(line, sizeof line, file));
    assert_int_equal(truncate(own->path, ftell(file)), 0);
    fclose(file);
    assert_works(keep(folder, own, NULL, &error));
    assert_contains(own->said, "iteration 3", "what is before it is taken\n");
    expect_loads(folder, &own->counts, 0, 3, false);
}

/* What was named is an error and adds nothing; what was found is left out. */
RUNS_TEST(tables_of_other_ranks) {
    struct recording *own = record_all(folder, 0);
    snprintf(own->path, sizeof own->path, "%s/only.csv", own->spools);
    write_table(own->path, &own->counts, 0, 0, false);
    assert_fails(keep(folder, own, own->path, &error), MP_EINVAL,
                 "only.csv: has the loads of 1 rank or of all together, and 2 recorded");
    assert_rows(folder->store, "SELECT count(*) FROM run", "0");
    assert_works(keep(folder, own, NULL, &error));
    assert_contains(own->said, "loads: left out: ");
    assert_rows(folder->store, "SELECT count(*) FROM run", "1");
    assert_rows(folder->store, "SELECT count(*) FROM load", "0");
}

RUNS_TEST(iterations_that_nobody_recorded) {
    struct mp_record_loads loads;
    static struct counts counts;
    char path[120];
    draw(&counts);
    snprintf(path, sizeof path, "%s/loads.csv", folder->path);
    write_table(path, &counts, 0, 0, false);
    const struct mp_record_loads_source source = {.path = path};
    FILE *nowhere = fopen("/dev/null", "w");
    assert_works(mp_record_loads_read(&source, 1, 2, 3, nowhere, &loads, &error));
    assert_numbers(loads.iterations, 2, loads.iteration[0], 2);
    assert_memory_equal(mp_record_loads_of(&loads, 1, 2, 0), counts.of[3][0][2][0],
                        sizeof counts.of[3][0][2][0]);
    mp_record_loads_destroy(&loads);
    assert_fails(mp_record_loads_read(&source, 1, 90, 99, nowhere, &loads, &error), MP_EINVAL,
                 "no loads of the recorded iterations, 90 to 99");
    fclose(nowhere);
}

/* A trace is cut at frames, which end inside iterations. */
RUNS_TEST(a_cut_trace_gives_whole_iterations) {
    enum { WIDE = 65536, DEEP = 10 };
    struct mp_trace_writer *writer = NULL;
    AUTO(block) struct mp_trace_block block = block_of(2, WIDE, 0);
    struct mp_record_loads loads;
    struct stat status;
    char path[120], said[512];
    snprintf(path, sizeof path, "%s/loads.mptrace", folder->path);
    char source_text[] = "a test", notes[] = "";
    const struct mp_trace_info info = {
        .shape = {2, WIDE, DEEP, 1, 0}, .source = source_text, .notes = notes, .ragged = true};
    assert_works(mp_trace_writer_create(path, &info, &writer, &error));
    for (int i = 0; i < 4 * DEEP; i++) {
        block.iteration = i / DEEP;
        block.layer = i % DEEP;
        block.load.count[WIDE + 7] = (uint32_t)i;
        assert_works(mp_trace_write(writer, &block, &error));
    }
    assert_works(mp_trace_writer_finish(writer, true, &error));
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(truncate(path, status.st_size - 100), 0);
    FILE *stream = fmemopen(said, sizeof said, "w");
    const struct mp_record_loads_source source = {.path = path};
    assert_works(mp_record_loads_read(&source, 2, 0, 9, stream, &loads, &error));
    fclose(stream);
    assert_contains(said, "what is before it is taken");
    assert_int_equal(loads.iterations, 3);
    assert_int_equal(mp_record_loads_of(&loads, 2, 4, 1)[7], 24);
    mp_record_loads_destroy(&loads);
}

/* A rank has no loads of iterations that it has not recorded. */
RUNS_TEST(a_rank_that_ended_earlier) {
    struct recording *own = record_all(folder, 2);
    write_tables(own->spools, &own->counts, 0, false, own->path);
    assert_works(keep(folder, own, NULL, &error));
    assert_rows(folder->store, "SELECT rank, max(iteration) FROM load GROUP BY rank", "0|4\n1|2");
}
