/* Spools of a long run into a database, and what a report and a timeline of them take.
 *
 * Each step runs in a process of its own, so that its processor time and its memory are its own.
 * The floor is what SQLite takes for the same rows and nothing else: the same tables and settings,
 * filled row by row from the store's. */
#include <sqlite3.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "profiler/record/record.h"
#include "profiler/record/spool.h"
#include "results/export/export.h"
#include "results/report/report.h"
#include "results/store/store.h"
#include "tests/bench/bench.h"
#include "tests/records.h"

enum { RANKS = 4, LAYERS = 24, SPANS_PER_LAYER = 16, EXPERTS = 16, PATH_SIZE = 256 };
enum {
    SPANS_PER_ITERATION = LAYERS * SPANS_PER_LAYER + 1,
    FIRST_NS = 1000000000,
    MEAN_NS = 219500
};

struct work {
    char folder[MP_BENCH_FOLDER], database[PATH_SIZE];
    char spool[RANKS][PATH_SIZE], device[RANKS][PATH_SIZE];
    int64_t iterations;
    int64_t device_rows; /* of all ranks together */
};

/* What one step took. */
struct cost {
    double seconds, processor_s, megabytes;
};

/* ---- what steps share ---- */

typedef int spool_writer(const struct work *work, int rank, struct mp_recorder *recorder,
                         struct mp_record_thread *thread, struct mp_error *error);

/* A spool per rank. */
static int write_spools(const struct work *work, const char path[RANKS][PATH_SIZE],
                        const char *thread_name, spool_writer *write, struct mp_error *error) {
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

typedef int spool_reader(struct mp_store *store, const struct work *work, const char *const paths[],
                         struct mp_error *error);

/* Hands them to the store. */
static int read_spools(const struct work *work, const char path[RANKS][PATH_SIZE],
                       spool_reader *read, struct mp_error *error) {
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

/* A column of a row is a statement. */
static int execute(void *floor, int columns, char **values, char **names) {
    (void)columns;
    (void)names;
    return sqlite3_exec(floor, values[0], NULL, NULL, NULL);
}

/* The store's tables of these names in a database of their own, with their indexes or without:
 * first they are made, then filled.  ("WHERE true": row by row, not as pages.) */
static int fill_floor(const struct work *work, const char *ending, const char *names, bool indexed,
                      struct mp_error *error) {
    static const char settings[] =
        "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; "
        "PRAGMA cache_size = -65536; PRAGMA journal_size_limit = 16777216; ";
    static const char statements[] =
        "SELECT sql FROM results.sqlite_schema WHERE tbl_name GLOB %Q AND type IN ('table', %Q) "
        "UNION ALL SELECT 'INSERT INTO main.' || name || ' SELECT * FROM results.' || name || "
        "' WHERE true' FROM results.sqlite_schema WHERE name GLOB %Q AND type = 'table'";
    char path[PATH_SIZE + 24];
    sqlite3 *floor = NULL;
    snprintf(path, sizeof path, "%.200s%s", work->database, ending);
    char *begin = sqlite3_mprintf("%s ATTACH %Q AS results; BEGIN", settings, work->database);
    char *fill = sqlite3_mprintf(statements, names, indexed ? "index" : "table", names);
    int code = sqlite3_open(path, &floor);
    if (code == SQLITE_OK)
        code = sqlite3_exec(floor, begin, NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_exec(floor, fill, execute, floor, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_exec(floor, "COMMIT", NULL, NULL, NULL);
    int closed = sqlite3_close(floor);
    sqlite3_free(begin);
    sqlite3_free(fill);
    return code == SQLITE_OK && closed == SQLITE_OK
               ? MP_OK
               : mp_fail(error, MP_EIO, "%s: %s", path, sqlite3_errstr(code));
}

/* ---- spans: steps, each in a process of its own ---- */

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
static int64_t time_at(const struct work *work, double share) {
    double length_ns = (double)work->iterations * (SPANS_PER_ITERATION - 1) * MEAN_NS;
    return FIRST_NS + (int64_t)(share * length_ns);
}

static int record_rank(const struct work *work, int rank, struct mp_recorder *recorder,
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

static int record(const struct work *work, struct mp_error *error) {
    return write_spools(work, work->spool, "compute", record_rank, error);
}

static int add_run(struct mp_store *store, const struct work *work, const char *const paths[],
                   struct mp_error *error) {
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

static int ingest(const struct work *work, struct mp_error *error) {
    return read_spools(work, work->spool, add_run, error);
}

/* What moeperf report prints, to nowhere. */
static int report(const struct work *work, struct mp_error *error) {
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

static int export_timeline(const struct work *work, struct mp_error *error) {
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

static int insert_only(const struct work *work, struct mp_error *error) {
    return fill_floor(work, ".floor", "span", false, error);
}

/* ---- GPU work, too ----
 *
 * Sixteen records in a row are six launches with their calls, a copy and a set with theirs, in the
 * order in which CUPTI hands them over: calls, external ids, work. */

enum { LAUNCHES = 8, ROWS_PER_GROUP = 2 * LAUNCHES, KERNEL_NAMES = 100 };
enum { CALL_NAME = 1, FIRST_KERNEL_NAME };

static int64_t groups_of(const struct work *work) {
    return (work->device_rows + ROWS_PER_GROUP * RANKS - 1) / (ROWS_PER_GROUP * RANKS);
}

/* Launch `l` of a group, on the host and on the GPU. */
static void make_launch(const struct work *work, int64_t group, int l, struct mp_activity *call,
                        struct mp_activity *piece) {
    int64_t at_ns = time_at(work, ((double)group + l / (double)LAUNCHES) / (double)groups_of(work));
    uint32_t correlation = (uint32_t)(group * LAUNCHES + l + 1);
    *call = (struct mp_activity){.start_ns = at_ns,
                                 .end_ns = at_ns + 4000,
                                 .correlation = correlation,
                                 .thread = 4711,
                                 .name = CALL_NAME,
                                 .kind = MP_ACTIVITY_CALL};
    *piece = (struct mp_activity){.start_ns = at_ns + 9000,
                                  .end_ns = at_ns + 9000 + (group * 131 + l * 17) % 400 * 100,
                                  .correlation = correlation,
                                  .context = 1,
                                  .stream = 7,
                                  .kind = MP_ACTIVITY_KERNEL};
    if (l < LAUNCHES - 2) {
        piece->name = FIRST_KERNEL_NAME + (uint32_t)(group + l) % KERNEL_NAMES;
        piece->registers = 128;
        piece->dynamic_shared = 98304;
        for (int d = 0; d < 3; d++) {
            piece->grid[d] = d ? 1 : 1024 + l;
            piece->block[d] = d ? 1 : 256;
        }
    } else {
        piece->kind = l == LAUNCHES - 2 ? MP_ACTIVITY_COPY : MP_ACTIVITY_SET;
        piece->value = 65536;
        piece->detail = 1;
        piece->result = 1;
    }
}

/* ---- spools ---- */

static void record_group(const struct work *work, struct mp_record_thread *thread, int64_t group) {
    struct mp_activity call[LAUNCHES], piece[LAUNCHES];
    for (int l = 0; l < LAUNCHES; l++) {
        make_launch(work, group, l, &call[l], &piece[l]);
        put_activity(thread, call[l]);
    }
    const struct mp_activity link = {.value = (uint64_t)call[0].start_ns,
                                     .correlation = call[0].correlation,
                                     .kind = MP_ACTIVITY_LINK};
    put_activity(thread, link);
    for (int l = 0; l < LAUNCHES; l++)
        put_activity(thread, piece[l]);
}

static int record_device_rank(const struct work *work, int rank, struct mp_recorder *recorder,
                              struct mp_record_thread *thread, struct mp_error *error) {
    (void)rank; /* all have the same */
    put_name(thread, CALL_NAME, MP_NAME_STRING, "cudaLaunchKernel");
    for (uint32_t i = 0; i < KERNEL_NAMES; i++) {
        char text[64];
        snprintf(text, sizeof text, "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tile%u", i);
        put_name(thread, FIRST_KERNEL_NAME + i, MP_NAME_STRING, text);
    }
    for (int64_t group = 0; group < groups_of(work); group++) {
        record_group(work, thread, group);
        if (group % 1000 == 0)
            MP_TRY(mp_recorder_flush(recorder, error));
    }
    return MP_OK;
}

static int record_device(const struct work *work, struct mp_error *error) {
    return write_spools(work, work->device, "cupti", record_device_rank, error);
}

static int add_activities(struct mp_store *store, const struct work *work,
                          const char *const paths[], struct mp_error *error) {
    (void)work;
    return mp_store_add_device(store, 1, paths, RANKS, error);
}

static int add_device(const struct work *work, struct mp_error *error) {
    return read_spools(work, work->device, add_activities, error);
}

static int insert_device(const struct work *work, struct mp_error *error) {
    return fill_floor(work, ".floor-device0", "CUPTI_ACTIVITY_*", false, error);
}

static int insert_device_indexed(const struct work *work, struct mp_error *error) {
    return fill_floor(work, ".floor-device1", "CUPTI_ACTIVITY_*", true, error);
}

/* ---- measuring ---- */

static int measure(const struct work *work,
                   int (*step)(const struct work *work, struct mp_error *error), struct cost *cost,
                   struct mp_error *error) {
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

static void remove_files(const struct work *work) {
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
    int (*run)(const struct work *work, struct mp_error *error);
};

/* Adds a table `name` of all steps. */
static int measure_steps(const struct work *work, const struct step steps[], int count, double rows,
                         double processor_s[], json_t *result, const char *name,
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

static int measure_spans(const struct work *work, json_t *result, struct mp_error *error) {
    static const struct step steps[] = {{"record", record},
                                        {"ingest", ingest},
                                        {"floor", insert_only},
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
                                  processor_s[1] / processor_s[2]),
                        error);
}

static int measure_device(const struct work *work, json_t *result, struct mp_error *error) {
    static const struct step steps[] = {{"record", record_device},
                                        {"add", add_device},
                                        {"floor", insert_device},
                                        {"floor with indexes", insert_device_indexed}};
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

static const struct mp_option ingest_options[] = {
    MP_BENCH_NUMBER("spans", spans, "1000000", 10000, 100000000, "spans of all ranks together"),
    MP_BENCH_NUMBER("device", device, "0", 0, 100000000,
                    "rows of GPU work beside them: calls, kernels, copies, sets"),
    {0},
};

static int run(const struct mp_bench_options *options, json_t *result, struct mp_error *error) {
    enum { SPANS_AT_ONCE = SPANS_PER_ITERATION * RANKS };
    struct work work = {.device_rows = options->device,
                        .iterations = (options->spans + SPANS_AT_ONCE - 1) / SPANS_AT_ONCE};
    char folder[MP_BENCH_FOLDER];
    MP_TRY(mp_bench_make_folder(folder, error));
    memcpy(work.folder, folder, sizeof folder);
    snprintf(work.database, sizeof work.database, "%s/results.db", folder);
    for (int r = 0; r < RANKS; r++) {
        snprintf(work.spool[r], sizeof work.spool[r], "%s/%d.spool", folder, r);
        snprintf(work.device[r], sizeof work.device[r], "%s/%d.device", folder, r);
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
    .run = run,
};
