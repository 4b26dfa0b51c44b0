/* Spools of a long run into a database, and what a report and a timeline of them take.
 *
 * Each step runs in a process of its own, so that its processor time and its memory are its own.
 * The floor is what SQLite takes for the same rows and nothing else: the same table and settings,
 * one prepared INSERT stepped once per row. */
#include "tests/bench/ingest_bench.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "results/export/export.h"
#include "results/report/report.h"
#include "tests/bench/bench.h"

enum {
    RANKS = INGEST_RANKS,
    LAYERS = 24,
    SPANS_PER_LAYER = 16,
    EXPERTS = 16,
    PATH_SIZE = INGEST_PATH_SIZE
};
enum {
    SPANS_PER_ITERATION = LAYERS * SPANS_PER_LAYER + 1,
    FIRST_NS = 1000000000,
    MEAN_NS = 219500
};

/* What one step took. */
struct cost {
    double seconds, processor_s, megabytes;
};

/* ---- steps, each in a process of its own ---- */

static void record_layer(struct mp_record_thread *thread, int rank, int iteration, int layer,
                         int64_t *at_ns) {
    uint32_t routes[EXPERTS];
    for (int s = 0; s < SPANS_PER_LAYER; s++) {
        int64_t length = 20000 + (iteration * 131 + layer * 17 + s * 7 + rank * 29) % 400 * 1000;
        mp_record_span(thread, &(struct mp_span){.start_ns = *at_ns,
                                                 .end_ns = *at_ns + length,
                                                 .wait_ns = s % 3 ? 0 : length / 2,
                                                 .cpu_ns = -1,
                                                 .tokens = 2048 + s,
                                                 .bytes = s % 4 ? -1 : 65536,
                                                 .flops = s % 3 ? -1 : 1000000000 + s,
                                                 .iteration = iteration,
                                                 .layer = (int16_t)layer,
                                                 .phase = (uint8_t)(MP_PHASE_ATTENTION + s % 8),
                                                 .direction = s < 8 ? MP_FORWARD : MP_BACKWARD});
        *at_ns += length;
    }
    for (int e = 0; e < EXPERTS; e++)
        routes[e] = (uint32_t)(e * 31 + iteration + layer) % 512;
    mp_record_load(thread, iteration, layer, EXPERTS, routes, NULL);
}

/* A span lasts 20000 + 0 .. 399 * 1000 ns, 219.5 us in the mean. */
int64_t ingest_time(const struct ingest_work *work, double share) {
    double length_ns = (double)work->iterations * (SPANS_PER_ITERATION - 1) * MEAN_NS;
    return FIRST_NS + (int64_t)(share * length_ns);
}

static int record_rank(const struct ingest_work *work, int rank, struct mp_recorder *recorder,
                       struct mp_record_thread *thread, struct mp_error *error) {
    int64_t at_ns = FIRST_NS;
    for (int i = 0; i < work->iterations; i++) {
        int64_t start_ns = at_ns;
        for (int l = 0; l < LAYERS; l++)
            record_layer(thread, rank, i, l, &at_ns);
        mp_record_span(thread, &(struct mp_span){.start_ns = start_ns,
                                                 .end_ns = at_ns,
                                                 .cpu_ns = -1,
                                                 .tokens = 2048,
                                                 .bytes = -1,
                                                 .flops = -1,
                                                 .iteration = i,
                                                 .layer = -1,
                                                 .phase = MP_PHASE_ITERATION,
                                                 .direction = MP_NO_DIRECTION});
        mp_record_number(thread, i, -1, "loss", 5.0 / (i + 1));
        MP_TRY(mp_recorder_flush(recorder, error));
    }
    return MP_OK;
}

int ingest_record(const struct ingest_work *work, const ingest_paths path, const char *thread_name,
                  ingest_writer *write, struct mp_error *error) {
    for (int rank = 0; rank < RANKS; rank++) {
        const struct mp_recorder_config config = {.path = path[rank], .rank = rank, .ranks = RANKS};
        struct mp_recorder *recorder = NULL;
        struct mp_record_thread *thread = NULL;
        MP_TRY(mp_recorder_create(&config, &recorder, error));
        int code = mp_recorder_thread(recorder, thread_name, &thread, error);
        if (!code)
            code = write(work, rank, recorder, thread, error);
        int finished = mp_recorder_finish(&recorder, code, "", error);
        if (code || finished)
            return code ? code : finished;
    }
    return MP_OK;
}

static int record(const struct ingest_work *work, struct mp_error *error) {
    return ingest_record(work, work->spool, "compute", record_rank, error);
}

int ingest_store(const struct ingest_work *work, const ingest_paths path, ingest_reader *read,
                 struct mp_error *error) {
    const char *paths[RANKS];
    struct mp_store *store = NULL;
    for (int r = 0; r < RANKS; r++)
        paths[r] = path[r];
    int code = mp_store_open(work->database, &store, error);
    if (!code)
        code = read(store, work, paths, error);
    mp_store_close(store);
    return code;
}

static int add_run(struct mp_store *store, const struct ingest_work *work,
                   const char *const paths[], struct mp_error *error) {
    const struct mp_store_run run = {.suite = "bench",
                                     .job = "ep",
                                     .suite_run = "bench-1",
                                     .system = "ep",
                                     .executor = "measured",
                                     .workload = "text",
                                     .status = "complete",
                                     .started_at = "2025-01-31T12:00:00Z",
                                     .ranks = RANKS,
                                     .nodes = 1,
                                     .ranks_per_node = RANKS,
                                     .iterations_wanted = work->iterations};
    return mp_store_ingest(store, &run, paths, RANKS, NULL, error);
}

static int ingest(const struct ingest_work *work, struct mp_error *error) {
    return ingest_store(work, work->spool, add_run, error);
}

/* What moeperf report prints, to nowhere. */
static int report(const struct ingest_work *work, struct mp_error *error) {
    static int (*const reports[])(struct mp_store *, const struct mp_report_selection *,
                                  enum mp_report_format, FILE *, struct mp_error *) = {
        mp_report_speedup, mp_report_convergence, mp_report_stragglers, mp_report_phases};
    const struct mp_report_selection latest = {0};
    struct mp_store *store = NULL;
    FILE *nowhere = fopen("/dev/null", "w");
    int code = nowhere ? mp_store_open_read_only(work->database, &store, error)
                       : mp_fail(error, MP_EIO, "ingest: cannot open /dev/null");
    for (size_t i = 0; i < sizeof reports / sizeof *reports && !code; i++)
        code = reports[i](store, &latest, MP_REPORT_TEXT, nowhere, error);
    mp_store_close(store);
    if (nowhere)
        fclose(nowhere);
    return code;
}

static int export_timeline(const struct ingest_work *work, struct mp_error *error) {
    const struct mp_results_selection only = {0};
    struct mp_results_exported exported;
    struct mp_store *store = NULL;
    char path[PATH_SIZE + 8];
    snprintf(path, sizeof path, "%.200s.json", work->database);
    int code = mp_store_open_read_only(work->database, &store, error);
    if (!code)
        code = mp_results_perfetto(store, &only, path, &exported, error);
    mp_store_close(store);
    return code;
}

static const char floor_schema[] =
    "CREATE TABLE span (span_id INTEGER PRIMARY KEY, run_id INTEGER NOT NULL, rank INTEGER NOT "
    "NULL, stream_id INTEGER NOT NULL, iteration INTEGER NOT NULL, layer INTEGER NOT NULL, "
    "phase_id INTEGER NOT NULL, direction INTEGER, start_ns INTEGER NOT NULL, end_ns INTEGER NOT "
    "NULL, wait_ns INTEGER NOT NULL, cpu_ns INTEGER, tokens INTEGER, bytes INTEGER, flops INTEGER) "
    "STRICT";

static int insert_rows(sqlite3_stmt *insert, int64_t rows) {
    int64_t at_ns = 0;
    int step = SQLITE_DONE;
    for (int64_t i = 0; i < rows && step == SQLITE_DONE; i++) {
        int s = (int)(i % SPANS_PER_LAYER);
        int64_t length = 20000 + i % 400 * 1000;
        const int64_t values[] = {1,
                                  i / (rows / RANKS + 1),
                                  1,
                                  i / SPANS_PER_ITERATION % 100000,
                                  i / SPANS_PER_LAYER % LAYERS,
                                  2 + s % 8,
                                  s >= 8,
                                  at_ns,
                                  at_ns + length,
                                  s % 3 ? 0 : length / 2,
                                  -1,
                                  2048 + s,
                                  s % 4 ? -1 : 65536,
                                  s % 3 ? -1 : 1000000000 + s};
        for (int c = 0; c < 14; c++)
            if (values[c] >= 0)
                sqlite3_bind_int64(insert, c + 1, values[c]);
            else
                sqlite3_bind_null(insert, c + 1);
        step = sqlite3_step(insert);
        sqlite3_reset(insert);
        at_ns += length;
    }
    return step;
}

static int fill_floor(const struct ingest_work *work, sqlite3 *floor, bool indexed) {
    sqlite3_stmt *insert = NULL;
    (void)indexed;
    int code = sqlite3_exec(floor, floor_schema, NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_prepare_v2(floor,
                                  "INSERT INTO span VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
                                  "?, ?, ?)",
                                  -1, &insert, NULL);
    if (code == SQLITE_OK)
        code = insert_rows(insert, work->iterations * SPANS_PER_ITERATION * RANKS);
    sqlite3_finalize(insert);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

int ingest_floor(const struct ingest_work *work, const char *ending, ingest_filler *fill,
                 bool indexed, struct mp_error *error) {
    static const char settings[] =
        "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; "
        "PRAGMA cache_size = -65536; PRAGMA journal_size_limit = 16777216; BEGIN";
    char path[PATH_SIZE + 24];
    sqlite3 *floor = NULL;
    snprintf(path, sizeof path, "%.200s%s", work->database, ending);
    int code = sqlite3_open(path, &floor);
    if (code == SQLITE_OK)
        code = sqlite3_exec(floor, settings, NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = fill(work, floor, indexed);
    if (code == SQLITE_OK)
        code = sqlite3_exec(floor, "COMMIT", NULL, NULL, NULL);
    int closed = sqlite3_close(floor);
    return code == SQLITE_OK && closed == SQLITE_OK
               ? MP_OK
               : mp_fail(error, MP_EIO, "%s: %s", path, sqlite3_errstr(code));
}

static int insert_only(const struct ingest_work *work, struct mp_error *error) {
    return ingest_floor(work, ".floor", fill_floor, false, error);
}

/* ---- measuring ---- */

static int measure(const struct ingest_work *work,
                   int (*step)(const struct ingest_work *work, struct mp_error *error),
                   struct cost *cost, struct mp_error *error) {
    struct rusage usage;
    int status = 0, ends[2];
    if (pipe(ends) != 0)
        return mp_fail(error, MP_EIO, "ingest: cannot make a pipe: %m");
    int64_t start_ns = mp_clock_ns();
    pid_t child = fork();
    if (child == 0) {
        struct mp_error own = {0};
        int code = step(work, &own);
        if (code && write(ends[1], own.text, strlen(own.text)) < 0)
            code = MP_EIO;
        _exit(code ? 1 : 0);
    }
    close(ends[1]);
    char text[sizeof error->text] = "";
    ssize_t length = child < 0 ? 0 : read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    if (child < 0 || wait4(child, &status, 0, &usage) != child || status != 0)
        return mp_fail(error, MP_EIO, "ingest: %s", length > 0 ? text : "a step did not end well");
    cost->seconds = (double)(mp_clock_ns() - start_ns) / 1e9;
    cost->processor_s = (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
                        (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    cost->megabytes = (double)usage.ru_maxrss / 1024;
    return MP_OK;
}

static void remove_files(const struct ingest_work *work) {
    static const char *const databases[] = {"", ".floor", ".floor-device0", ".floor-device1"};
    static const char *const endings[] = {"", "-wal", "-shm", ".json"};
    char path[PATH_SIZE + 32];
    for (size_t i = 0; i < sizeof databases / sizeof *databases; i++) {
        for (size_t j = 0; j < sizeof endings / sizeof *endings; j++) {
            snprintf(path, sizeof path, "%.200s%s%s", work->database, databases[i], endings[j]);
            unlink(path);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        unlink(work->spool[r]);
        unlink(work->device[r]);
    }
    rmdir(work->folder);
}

struct step {
    const char *name;
    int (*run)(const struct ingest_work *work, struct mp_error *error);
};

/* Adds a table `name` of all steps. */
static int measure_steps(const struct ingest_work *work, const struct step steps[], int count,
                         double rows, double processor_s[], json_t *result, const char *name,
                         struct mp_error *error) {
    json_t *table = json_array();
    MP_TRY(mp_bench_add(result, json_pack("{s:o}", name, table), error));
    for (int i = 0; i < count; i++) {
        struct cost cost = {0};
        MP_TRY(measure(work, steps[i].run, &cost, error));
        processor_s[i] = cost.processor_s;
        MP_TRY(mp_bench_add_row(table,
                                json_pack("{s:s, s:f, s:f, s:f, s:f}", "step", steps[i].name,
                                          "seconds", cost.seconds, "processor_s", cost.processor_s,
                                          "rows_per_processor_s", rows / cost.processor_s,
                                          "peak_MiB", cost.megabytes),
                                error));
    }
    return MP_OK;
}

static int measure_spans(const struct ingest_work *work, json_t *result, struct mp_error *error) {
    static const struct step steps[] = {{"record", record},
                                        {"floor", insert_only},
                                        {"ingest", ingest},
                                        {"report", report},
                                        {"timeline", export_timeline}};
    enum { STEPS = sizeof steps / sizeof *steps };
    double processor_s[STEPS], spans = (double)work->iterations * SPANS_PER_ITERATION * RANKS;
    struct stat status;
    MP_TRY(measure_steps(work, steps, STEPS, spans, processor_s, result, "steps", error));
    if (stat(work->database, &status) != 0)
        return mp_fail(error, MP_EIO, "%s: no database came of it", work->database);
    return mp_bench_add(result,
                        json_pack("{s:I, s:f, s:f}", "spans", (json_int_t)spans, "bytes_per_span",
                                  (double)status.st_size / spans, "ingest_over_floor",
                                  processor_s[2] / processor_s[1]),
                        error);
}

static int measure_device(const struct ingest_work *work, json_t *result, struct mp_error *error) {
    static const struct step steps[] = {{"record", ingest_device_record},
                                        {"floor", ingest_device_floor},
                                        {"floor with indexes", ingest_device_floor_indexed},
                                        {"add", ingest_device_add}};
    enum { STEPS = sizeof steps / sizeof *steps };
    double processor_s[STEPS], rows = (double)work->device_rows;
    if (work->device_rows == 0)
        return MP_OK;
    MP_TRY(measure_steps(work, steps, STEPS, rows, processor_s, result, "device_steps", error));
    return mp_bench_add(result,
                        json_pack("{s:I, s:f, s:f}", "device_rows", (json_int_t)work->device_rows,
                                  "device_over_floor", processor_s[3] / processor_s[1],
                                  "device_over_indexed_floor", processor_s[3] / processor_s[2]),
                        error);
}

struct ingest_options {
    int spans, device;
};
static const struct mp_option ingest_options[] = {
    MP_BENCH_NUMBER(struct ingest_options, "spans", spans, "1000000", 10000, 100000000,
                    "spans of all ranks together"),
    MP_BENCH_NUMBER(struct ingest_options, "device", device, "0", 0, 100000000,
                    "rows of GPU work beside them: calls, kernels, copies, sets"),
    {0},
};

static int run(const void *given, json_t *result, struct mp_error *error) {
    enum { SPANS_AT_ONCE = SPANS_PER_ITERATION * RANKS };
    const struct ingest_options *options = given;
    struct ingest_work work = {.device_rows = options->device,
                               .iterations = (options->spans + SPANS_AT_ONCE - 1) / SPANS_AT_ONCE};
    MP_TRY(mp_bench_make_folder(work.folder, error));
    snprintf(work.database, sizeof work.database, "%s/results.db", work.folder);
    for (int r = 0; r < RANKS; r++) {
        snprintf(work.spool[r], sizeof work.spool[r], "%s/%d.spool", work.folder, r);
        snprintf(work.device[r], sizeof work.device[r], "%s/%d.device", work.folder, r);
    }
    int code = measure_spans(&work, result, error);
    if (!code)
        code = measure_device(&work, result, error);
    remove_files(&work);
    return code;
}

const struct mp_bench mp_bench_ingest = {
    .name = "ingest",
    .help = "how fast spools get into a database, and what a report and a timeline take",
    .options = ingest_options,
    .options_size = sizeof(struct ingest_options),
    .run = run,
};
