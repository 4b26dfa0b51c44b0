/* Arbitrary records of GPU work beside a run: all of them get into the database, once, belong to
 * spans of their run, and leave it whole, with views that answer.
 *
 * The input chooses whether the run has spans of its own, then the records of two spools.  One
 * database serves many inputs: what an input added is taken out again. */
#include "tests/fuzz/spool_input.h"
#include "tests/fuzz/store_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

enum { RANKS = 2, SPOOLS = 2, SPANS = 40, INPUTS_BETWEEN_CHECKS = 500 };
enum { ACTIVITY, COLLECTIVE, TIMER, NAME, TEXT, STREAM, NUMBER, END, OPERATIONS };

static const char *const hosts[] = {"first", "second", "elsewhere"};

static char recording[RANKS][64], spool_path[SPOOLS][64];
static struct spool_bytes spool;
static struct mp_store *store;
static int64_t run_with_spans, run_without, strings_before;

/* Records that become rows. */
struct rows {
    int64_t activities[MP_ACTIVITIES], collectives;
};

static void leave(void) {
    mp_store_close(store);
}

static int64_t ask(const char *sql) {
    return store_ask(store, sql);
}

static void read_all(const char *sql) {
    sqlite3_stmt *rows = NULL;
    int step;
    expect(sqlite3_prepare_v2(mp_store_connection(store), sql, -1, &rows, NULL) == SQLITE_OK, sql);
    while ((step = sqlite3_step(rows)) == SQLITE_ROW)
        continue;
    expect(step == SQLITE_DONE, sqlite3_errmsg(mp_store_connection(store)));
    sqlite3_finalize(rows);
}

/* ---- the runs ---- */

/* Rank 1's clock is 1000 ns ahead and drifts. */
static void record_rank(int rank) {
    static const char *const streams[] = {"compute", "comm"};
    spool_start(&spool, rank, rank + 1, 1, hosts[rank]);
    for (int s = 0; s < 2; s++)
        spool_add(&spool, &(struct mp_spool_record){.type = MP_SPOOL_STREAM,
                                                    .as.stream = {s, 0, streams[s]}});
    for (int i = 0; i < SPANS; i++) {
        const struct mp_span span = {.start_ns = i * 8 - 16,
                                     .end_ns = i * 8 + i % 3 * 100 - 16,
                                     .layer = (int16_t)(i % 4 - 1),
                                     .phase = (uint8_t)(i % MP_PHASES),
                                     .direction = i % 3u,
                                     .stream = i % 5 == 0};
        spool_add(&spool, &(struct mp_spool_record){.type = MP_SPOOL_SPAN, .as.span = span});
    }
    for (int i = 0; i < 2 * rank; i++)
        spool_add(&spool, &(struct mp_spool_record){.type = MP_SPOOL_CLOCK,
                                                    .as.clock = {1000 * i, 1000 + i, 5}});
    store_write_file(recording[rank], spool.bytes, spool.size);
}

static int64_t add_run(const char *job, const char *const paths[], int count) {
    const struct mp_store_run run = store_run(job, "complete", RANKS);
    struct mp_error error = {0};
    int64_t run_id = 0;
    expect(mp_store_ingest(store, &run, paths, count, &run_id, &error) == MP_OK, error.text);
    return run_id;
}

static void prepare(void) {
    const char *const paths[RANKS] = {recording[0], recording[1]};
    char database[64];
    struct mp_error error = {0};
    if (store)
        return;
    store_enter();
    snprintf(database, sizeof database, "%s/results.db", store_folder);
    for (int i = 0; i < RANKS; i++)
        store_name_file(recording[i], i, "spool");
    for (int i = 0; i < SPOOLS; i++)
        store_name_file(spool_path[i], i, "device");
    atexit(leave);
    for (int r = 0; r < RANKS; r++)
        record_rank(r);
    expect(mp_store_open(database, &store, &error) == MP_OK, error.text);
    /* No power fails here, and thousands of commits wait for no disk. */
    expect(sqlite3_exec(mp_store_connection(store), "PRAGMA synchronous = OFF", NULL, NULL, NULL) ==
               SQLITE_OK,
           "synchronous");
    run_with_spans = add_run("spans", paths, RANKS);
    run_without = add_run("none", NULL, 0);
    strings_before = ask("SELECT max(id) FROM StringIds");
}

static void take_out(void) {
    char sql[1024];
    snprintf(sql, sizeof sql,
             "BEGIN; DELETE FROM device_spool; DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL; "
             "DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY; DELETE FROM CUPTI_ACTIVITY_KIND_MEMSET; "
             "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME; DELETE FROM gpu_overhead; "
             "DELETE FROM collective; DELETE FROM number; DELETE FROM StringIds WHERE id > %lld; "
             "UPDATE run SET origin_ns = 0 WHERE run_id = %lld; COMMIT",
             (long long)strings_before, (long long)run_without);
    expect(sqlite3_exec(mp_store_connection(store), sql, NULL, NULL, NULL) == SQLITE_OK,
           sqlite3_errmsg(mp_store_connection(store)));
}

/* ---- the spools ---- */

static void add_activity(struct choices *choices, struct rows *rows) {
    struct mp_activity activity = {.kind = choose_byte(choices) % (MP_ACTIVITIES + 1),
                                   .correlation = choose_byte(choices) % 8,
                                   .name = choose_byte(choices)};
    uint8_t more = choose_byte(choices);
    activity.start_ns = choose_number(choices);
    activity.end_ns = choose_number(choices);
    if (more & 1)
        activity.value = (uint64_t)choose_number(choices);
    if (more & 2)
        activity.result = activity.detail = (uint32_t)choose_number(choices);
    if (more & 4)
        choose_bytes(choices, &activity.registers,
                     sizeof activity - offsetof(struct mp_activity, registers));
    if (more & 8) {
        activity.graph_node = (uint64_t)choose_number(choices);
        activity.stream = activity.thread = (uint32_t)choose_number(choices);
    }
    if (spool_add(&spool,
                  &(struct mp_spool_record){.type = MP_SPOOL_ACTIVITY, .as.activity = activity}) &&
        activity.kind < MP_ACTIVITIES)
        rows->activities[activity.kind]++;
}

static void add_collective(struct choices *choices, struct rows *rows) {
    uint8_t more = choose_byte(choices);
    struct mp_collective is = {.communicator = more & 1u,
                               .is_pair = more >> 1 & 1,
                               .sequence = more >> 2 & 1u,
                               .group = more >> 3 & 1u,
                               .rank = more >> 4 & 1,
                               .ranks = RANKS,
                               .function = more >> 5 & 1u,
                               .channels = 1,
                               .timed_channels = more >> 6 & 1};
    is.start_ns = choose_number(choices);
    is.queued_ns = choose_number(choices);
    is.timer_start = (uint64_t)choose_number(choices);
    is.timer_end = (uint64_t)choose_number(choices);
    is.count = (uint64_t)choose_number(choices);
    is.datatype = is.algorithm = is.protocol = choose_byte(choices);
    if (more & 0x80)
        choose_bytes(choices, &is.communicator,
                     sizeof is - offsetof(struct mp_collective, communicator));
    rows->collectives += spool_add(
        &spool, &(struct mp_spool_record){.type = MP_SPOOL_COLLECTIVE, .as.collective = is});
}

static void add_named(struct choices *choices, uint8_t operation) {
    char text[256], name[256];
    const struct mp_timer timer = {choose_number(choices), choose_number(choices), 1};
    const uint32_t id = choose_byte(choices);
    const int64_t iteration = choose_byte(choices) - 1;
    struct mp_spool_record record = {.type = MP_SPOOL_END, .as.end.reason = text};
    choose_text(choices, text);
    switch (operation) {
    case TIMER:
        record = (struct mp_spool_record){.type = MP_SPOOL_TIMER, .as.timer = timer};
        break;
    case NAME:
        record = (struct mp_spool_record){
            .type = MP_SPOOL_NAME,
            .as.name = {.id = id > 0xF0 ? (uint32_t)timer.at_ns : id, .text = text}};
        break;
    case TEXT:
        snprintf(name, sizeof name, "%.40s.status", text);
        record = (struct mp_spool_record){.type = MP_SPOOL_TEXT, .as.text = {name, text}};
        break;
    case STREAM:
        record = (struct mp_spool_record){.type = MP_SPOOL_STREAM, .as.stream.name = text};
        break;
    case NUMBER:
        record = (struct mp_spool_record){
            .type = MP_SPOOL_NUMBER,
            .as.number = {.iteration = iteration, .layer = id < 8 ? -1 : (int)id, .name = text}};
        memcpy(&record.as.number.value, &timer.offset_ns, sizeof record.as.number.value);
        break;
    default:
        break;
    }
    spool_add(&spool, &record);
}

static void make_spool(struct choices *choices, int number, struct rows *rows) {
    size_t rest = number + 1 < SPOOLS ? choices->left / 2 : 0;
    int rank = (int)choose_number(choices), pid = (int)choose_number(choices);
    const char *host = hosts[choose_byte(choices) % 3];
    int64_t clock_ns = choose_number(choices);
    /* The lowest bit tells one spool from the other. */
    spool_start(&spool, rank, pid, (clock_ns & ~(int64_t)1) + number, host);
    while (choices->left > rest) {
        uint8_t operation = choose_byte(choices) % OPERATIONS;
        if (operation == ACTIVITY)
            add_activity(choices, rows);
        else if (operation == COLLECTIVE)
            add_collective(choices, rows);
        else
            add_named(choices, operation);
    }
    store_write_file(spool_path[number], spool.bytes, spool.size);
}

/* ---- what came of it ---- */

static void check_rows(const struct rows *rows) {
    static const struct {
        const char *table;
        int kind;
        bool has_span;
    } tables[] = {{"CUPTI_ACTIVITY_KIND_KERNEL", MP_ACTIVITY_KERNEL, true},
                  {"CUPTI_ACTIVITY_KIND_MEMCPY", MP_ACTIVITY_COPY, true},
                  {"CUPTI_ACTIVITY_KIND_MEMSET", MP_ACTIVITY_SET, true},
                  {"CUPTI_ACTIVITY_KIND_RUNTIME", MP_ACTIVITY_CALL, true},
                  {"gpu_overhead", MP_ACTIVITY_OVERHEAD, false},
                  {"collective", -1, true}};
    char sql[256];
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", tables[i].table);
        expect(ask(sql) ==
                   (tables[i].kind < 0 ? rows->collectives : rows->activities[tables[i].kind]),
               tables[i].table);
        if (!tables[i].has_span)
            continue;
        snprintf(sql, sizeof sql,
                 "SELECT count(*) FROM %s AS work LEFT JOIN span USING (span_id) WHERE "
                 "work.span_id IS NOT NULL AND (span.run_id, span.rank) IS NOT (work.run_id, "
                 "work.rank)",
                 tables[i].table);
        expect(ask(sql) == 0, "work belongs to spans of its rank");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    static int inputs;
    struct choices choices = {input, size};
    const char *const paths[SPOOLS] = {spool_path[0], spool_path[1]};
    struct rows rows = {0};
    struct mp_error error = {0};
    if (size < 2)
        return 0;
    prepare();
    int64_t run_id = choose_byte(&choices) % 2 ? run_without : run_with_spans;
    for (int i = 0; i < SPOOLS; i++)
        make_spool(&choices, i, &rows);
    for (int again = 0; again < 2; again++) {
        expect(mp_store_add_device(store, run_id, paths, SPOOLS, &error) == MP_OK, error.text);
        check_rows(&rows);
    }
    expect(ask("SELECT count(*) FROM device_spool") == SPOOLS, "each spool once");
    read_all("SELECT * FROM v_gpu");
    read_all("SELECT * FROM v_collective");
    take_out();
    if (++inputs % INPUTS_BETWEEN_CHECKS == 0)
        store_expect_whole(store);
    return 0;
}
