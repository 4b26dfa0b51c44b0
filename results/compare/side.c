/* Side: see internal.h. */
#include "results/compare/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"
#include "reference/base/digest.h"
#include "reference/base/median.h"
#include "results/compare/statistics.h"
#include "results/report/query.h"

/* ---- key ---- */

/* Lines of a job file that say where things are and not what they are; contents have digests. */
static bool is_place(const char *name) {
    static const char *const places[] = {"name",        "text",       "trace",
                                         "trace-loads", "checkpoint", "checkpoint-every",
                                         "record",      "check-plans"};
    return MP_ANY(i, MP_LENGTH(places), strcmp(places[i], name) == 0);
}

static int set_text(json_t *object, const char *name, const char *value) {
    return json_object_set_new(object, name, text_value(value));
}

/* "name: value" lines; those under a line without a value are "its.name". */
static int add_job_lines(json_t *key, const char *text) {
    char section[520] = "";
    int failed = 0;
    while (*text && !failed) {
        char line[512], name[1100], *value;
        size_t length = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)(length < 500 ? length : 500), text);
        text += length + (text[length] == '\n');
        value = strchr(line, ':');
        if (!value)
            continue;
        *value++ = '\0';
        value += strspn(value, " ");
        if (!*value)
            snprintf(section, sizeof section, "%s.", line);
        snprintf(name, sizeof name, "%s%s", *line == ' ' ? section : "", line + strspn(line, " "));
        if (*value && !is_place(name))
            failed = set_text(key, name, value);
    }
    return failed;
}

/* What a job file that an earlier build wrote does not name is what it is without. */
static int add_defaults(struct side_run *run, const struct mp_gate_defaults *defaults) {
    const json_t *gate = json_object_get(run->key, "gate");
    char *text = defaults->text(defaults->systems, run->system, gate ? json_string_value(gate) : "",
                                run->predicted);
    int failed = text ? add_job_lines(run->defaults, text) : 0;
    free(text);
    return failed || json_object_update_missing(run->key, run->defaults);
}

#define RUN(member) offsetof(struct side_run, member)
static const struct query_field fields[] = {
    {"job", QUERY_TEXT, RUN(job)},
    {"system", QUERY_TEXT, RUN(system)},
    {"status", QUERY_TEXT, RUN(status)},
    {"reason", QUERY_TEXT, RUN(reason)},
    {"suite_run", QUERY_TEXT, RUN(suite_run)},
    {"run_id", QUERY_LARGE, RUN(run_id)},
    {"round", QUERY_COUNT, RUN(round)},
    {"ranks", QUERY_COUNT, RUN(ranks)},
    {"status = 'complete'", QUERY_FLAG, RUN(complete)},
    {"executor = 'predicted'", QUERY_FLAG, RUN(predicted)},
    {"suite IN ('record', 'import')", QUERY_FLAG, RUN(foreign)},
    {"ranks_share_cores", QUERY_FLAG, RUN(shares_cores)},
    {"(SELECT processor_taken FROM v_run WHERE v_run.run_id = run.run_id)", QUERY_NUMBER,
     RUN(taken)},
};
enum { FIELDS = MP_LENGTH(fields), JOB_TEXT = FIELDS, MODEL, KEY };

/* Behind the fields the job's file, the model where there is none, and what else is in the key. */
#define RUNS                                                                                       \
    ", job_text, model, suite, system, executor, workload, gate, nodes, ranks, "                   \
    "ranks_per_node AS \"ranks-per-node\", "                                                       \
    "iif(ranks_share_cores = 1, 'yes', 'no') AS \"ranks share cores\" "                            \
    "FROM run JOIN run_summary USING (run_id) WHERE "
static const char run_sql[] = RUNS "run_id = ?1";
static const char runs_sql[] = RUNS "suite_run = coalesce(?2, (SELECT suite_run FROM run "
                                    "ORDER BY run_id DESC LIMIT 1)) ORDER BY run_id";

static int fill_key(struct side_run *run, sqlite3_stmt *row,
                    const struct mp_gate_defaults *defaults) {
    int failed = add_job_lines(run->key, query_text(row, JOB_TEXT));
    if (!*query_text(row, JOB_TEXT))
        failed |= set_text(run->key, "model", query_text(row, MODEL));
    else if (defaults->text)
        failed |= add_defaults(run, defaults);
    for (int c = KEY; c < sqlite3_column_count(row); c++)
        failed |= set_text(run->key, sqlite3_column_name(row, c), query_text(row, c));
    return failed;
}

/* Which facts go where; the rest is no part of a comparison. */
static json_t *place_of_fact(struct side_run *run, const char *name) {
    static const char *const machine[] = {"environment.cpu",    "environment.cores",
                                          "environment.kernel", "environment.memory-bytes",
                                          "environment.mpi",    "environment.device"};
    static const char *const about[] = {MP_FACT_PAIRS, MP_FACT_PAIRS_SIDE, MP_FACT_PAIRS_SAME,
                                        MP_FACT_PAIRS_SLICE, "environment.revision"};
    if (MP_ANY(i, MP_LENGTH(machine), strcmp(machine[i], name) == 0))
        return run->machine;
    if (MP_ANY(i, MP_LENGTH(about), strcmp(about[i], name) == 0))
        return run->about;
    return strcmp(name, "environment.compiler") == 0 || strcmp(name, "text.digest") == 0 ? run->key
                                                                                         : NULL;
}

static int read_facts(struct mp_store *store, struct side_run *run, struct mp_error *error) {
    int failed = 0;
    struct query query =
        query_begin(store,
                    "SELECT name, group_concat(value, ' and ') FROM (SELECT name, value FROM "
                    "v_fact WHERE run_id = ?1 ORDER BY name, value) GROUP BY name",
                    run->run_id, error);
    while (!failed && query_next(&query)) {
        char value[512];
        json_t *place = place_of_fact(run, query_text(query.row, 0));
        snprintf(value, sizeof value, "%s", query_text(query.row, 1));
        char *host = strstr(value, ", host "); /* is no hardware; containers' are new each time */
        if (host)
            *host = '\0';
        if (place)
            failed = set_text(place, query_text(query.row, 0), value);
    }
    MP_TRY(query_end(&query));
    return failed ? mp_no_memory(error) : MP_OK;
}

void side_differences(const json_t *base, const json_t *head, char *text, size_t size) {
    const char *name;
    json_t *value;
    size_t length = 0;
    text[0] = '\0';
    for (int pass = 0; pass < 2; pass++) {
        json_object_foreach((json_t *)(pass ? head : base), name, value) {
            const char *own = json_string_value(value);
            const char *other = json_string_value(json_object_get(pass ? base : head, name));
            bool is_known = pass && other; /* named in the first pass already */
            if (is_known || (other && strcmp(own, other) == 0) || length + 1 >= size)
                continue;
            length += (size_t)snprintf(text + length, size - length, "%s%s (%.60s, %.60s)",
                                       length ? ", " : "", name, pass ? "none" : own,
                                       pass    ? own
                                       : other ? other
                                               : "none");
        }
    }
}

int side_digest(const struct side_run *run, char digest[20], struct mp_error *error) {
    uint64_t hash = MP_DIGEST;
    MP_AUTO(json) json_t *key = json_copy(run->key);
    const json_t *const parts[] = {key, run->machine};
    const char *name;
    json_t *value;
    json_object_foreach(run->defaults, name, value) {
        if (json_equal(value, json_object_get(key, name)))
            json_object_del(key, name);
    }
    for (int i = 0; i < 2; i++) {
        char *text = json_dumps(parts[i], JSON_COMPACT | JSON_SORT_KEYS);
        if (!text)
            return mp_no_memory(error);
        hash = mp_digest_text(hash, text);
        free(text);
    }
    snprintf(digest, 20, "%016llx", (unsigned long long)hash);
    return MP_OK;
}

/* ---- samples ---- */

/* The latest that are steady; counts all that there are. */
static int read_iterations(struct mp_store *store, struct side_run *run, double **values,
                           int *count, struct mp_error *error) {
    struct query query = query_begin(store,
                                     "SELECT ms, steady = 1 FROM v_iteration WHERE run_id = ?1 "
                                     "ORDER BY iteration",
                                     run->run_id, error);
    while (query_next(&query)) {
        run->recorded++;
        if (!sqlite3_column_int(query.row, 1))
            continue;
        query.code = MP_APPEND(*values, *count, error, query_double(query.row, 0));
    }
    if (*count > MP_MOST_SAMPLES) {
        memmove(*values, *values + *count - MP_MOST_SAMPLES, MP_MOST_SAMPLES * sizeof **values);
        *count = MP_MOST_SAMPLES;
    }
    return query_end(&query);
}

/* The sample: the median from the first steady window on, of all where none is steady.  Pairs that
 * ran in slices count from the beginning: the same times of the machine for both. */
static int judge_iterations(struct mp_store *store, struct side_run *run, struct mp_error *error) {
    double *values = NULL;
    int count = 0, code = read_iterations(store, run, &values, &count, error);
    run->iterations = count;
    for (int i = 0; i < count; i++)
        if (!(isfinite(values[i]) && values[i] > 0))
            count = 0; /* no time at all: ms stays NAN */
    int first = mp_steady_from(values, count, MP_STEADY_WINDOW, MP_STEADY_SLOPE_PERCENT);
    run->steady = first >= 0;
    if (first < 0 || *side_about(run, MP_FACT_PAIRS_SLICE))
        first = 0;
    run->ms = mp_median_of(values + first, count - first);
    run->outliers = mp_outliers(values, count);
    free(values);
    return code;
}

/* ---- runs ---- */

static void fill_run(struct side_run *run, struct query *query,
                     const struct mp_gate_defaults *defaults) {
    *run = (struct side_run){.ms = NAN,
                             .key = json_object(),
                             .defaults = json_object(),
                             .machine = json_object(),
                             .about = json_object()};
    query_struct(query, fields, FIELDS, run);
    if (!query->code && (!run->machine || !run->about || fill_key(run, query->row, defaults)))
        query->code = mp_no_memory(query->error);
}

/* Appends what a query yields. */
static int append_runs(struct side *side, const char *sql, int64_t run_id, const char *suite_run,
                       struct mp_error *error) {
    struct query query = query_fields(side->store, fields, FIELDS, sql, run_id, error);
    if (suite_run)
        sqlite3_bind_text(query.row, 2, suite_run, -1, SQLITE_STATIC);
    while (query_next(&query) && !(query.code = MP_GROW(side->run, side->count, error)))
        fill_run(&side->run[side->count++], &query, &side->defaults);
    return query_end(&query);
}

static int load_by_suite_run(const struct mp_gate_side *from, struct side *side,
                             struct mp_error *error) {
    MP_TRY(append_runs(side, runs_sql, 0, from->suite_run, error));
    return side->count > 0 ? MP_OK
                           : mp_fail(error, MP_ENOTFOUND,
                                     "%s: %s: there is no suite run \"%.100s\"; moeperf "
                                     "report --runs lists them",
                                     side->name, mp_store_path(from->store),
                                     from->suite_run ? from->suite_run : "(latest)");
}

static int load_by_run(const struct mp_gate_side *from, struct side *side, struct mp_error *error) {
    for (int i = 0; i < from->runs; i++) {
        const int before = side->count;
        MP_TRY(append_runs(side, run_sql, from->run[i], NULL, error));
        if (side->count == before)
            return mp_fail(error, MP_ENOTFOUND, "%s: %s: there is no run %lld", side->name,
                           mp_store_path(from->store), (long long)from->run[i]);
    }
    return MP_OK;
}

const struct side_run *side_find(const struct side *side, const char *job, bool complete) {
    return MP_FIND(side->run, i, side->count,
                   strcmp(side->run[i].job, job) == 0 && (side->run[i].complete || !complete));
}

/* All complete runs of a job have one key. */
static int check_keys(const struct side *side, struct mp_error *error) {
    char differences[400];
    for (int i = 0; i < side->count; i++) {
        const struct side_run *run = &side->run[i];
        const struct side_run *first = run->complete ? side_find(side, run->job, true) : NULL;
        if (!first)
            continue;
        side_differences(first->key, run->key, differences, sizeof differences);
        if (*differences)
            return mp_fail(error, MP_EINVAL,
                           "%s: runs %lld and %lld of job \"%.60s\" are not of one kind: %s",
                           side->name, (long long)first->run_id, (long long)run->run_id, run->job,
                           differences);
    }
    return MP_OK;
}

int side_load(const struct mp_gate_side *from, const char *name, struct mp_gate_defaults defaults,
              struct side *side, struct mp_error *error) {
    *side = (struct side){.store = from->store, .name = name, .defaults = defaults};
    MP_TRY(from->runs > 0 ? load_by_run(from, side, error) : load_by_suite_run(from, side, error));
    for (int i = 0; i < side->count; i++) {
        MP_TRY(read_facts(side->store, &side->run[i], error));
        if (side->run[i].complete)
            MP_TRY(judge_iterations(side->store, &side->run[i], error));
    }
    return check_keys(side, error);
}

void side_free(struct side *side) {
    for (int i = 0; i < side->count; i++) {
        struct side_run *run = &side->run[i];
        query_free_texts(fields, FIELDS, run);
        json_decref(run->key);
        json_decref(run->defaults);
        json_decref(run->machine);
        json_decref(run->about);
    }
    free(side->run);
    *side = (struct side){0};
}

const char *side_about(const struct side_run *run, const char *name) {
    const char *value = json_string_value(json_object_get(run->about, name));
    return value ? value : "";
}
