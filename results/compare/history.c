/* History: see history.h. */
#include "results/compare/history.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "reference/base/arena.h"
#include "reference/base/median.h"
#include "reference/base/random.h"
#include "results/compare/counts.h"
#include "results/compare/internal.h"
#include "results/report/query.h"

/* ---- changes of level ---- */

struct search {
    const double *value;
    double *shuffled, *sorted; /* [count] */
    struct mp_change *change;  /* [count] */
    int changes;
};

struct split {
    int at;        /* values in front of it; 0: none */
    double energy; /* distance of its sides */
};

/* Sum of |value - other| over [count] others. */
static double distance_to(double value, const double other[], int count) {
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += fabs(value - other[i]);
    return sum;
}

/* The farthest split: one value after the other goes from the right side to the left. */
static struct split find_split(const double value[], int count) {
    struct split best = {0, 0};
    double left = 0, between = 0, right = 0; /* sums over pairs inside and across */
    for (int i = 1; i < count; i++)
        right += distance_to(value[i], value, i);
    for (int m = 1; m < count; m++) {
        const double moved = value[m - 1], to_left = distance_to(moved, value, m - 1),
                     to_right = distance_to(moved, value + m, count - m);
        const double n = count - m;
        left += to_left;
        right -= to_right;
        between += to_right - to_left;
        if (m < MP_CHANGES_LEAST || count - m < MP_CHANGES_LEAST)
            continue;
        const double energy =
            m * n / count *
            (2 * between / (m * n) - 2 * left / (m * (m - 1.)) - 2 * right / (n * (n - 1)));
        if (energy > best.energy)
            best = (struct split){m, energy};
    }
    return best;
}

/* Fisher and Yates. */
static void shuffle(double value[], int count, uint64_t stream) {
    for (int i = count - 1; i > 0; i--) {
        const int other = (int)mp_random_below(1, stream, (uint64_t)i, (uint64_t)i + 1);
        const double kept = value[i];
        value[i] = value[other];
        value[other] = kept;
    }
}

/* How rare such a split is by chance; 1 as soon as it can't be rare any more. */
static double chance_of(const struct search *search, const double value[], int count,
                        double energy) {
    int as_far = 0;
    for (int i = 0; i < MP_CHANGES_SHUFFLES; i++) {
        memcpy(search->shuffled, value, (size_t)count * sizeof *value);
        shuffle(search->shuffled, count, (uint64_t)i);
        as_far += find_split(search->shuffled, count).energy >= energy;
        if (as_far + 1 > MP_CHANGES_SIGNIFICANCE * (MP_CHANGES_SHUFFLES + 1))
            return 1;
    }
    return (as_far + 1.) / (MP_CHANGES_SHUFFLES + 1);
}

static void find_changes(struct search *search, int first, int count) {
    if (count < 2 * MP_CHANGES_LEAST)
        return;
    const struct split split = find_split(search->value + first, count);
    if (split.at == 0)
        return;
    const double p = chance_of(search, search->value + first, count, split.energy);
    if (p > MP_CHANGES_SIGNIFICANCE)
        return;
    find_changes(search, first, split.at);
    search->change[search->changes++] = (struct mp_change){.index = first + split.at, .p = p};
    find_changes(search, first + split.at, count - split.at);
}

static double level(const struct search *search, int first, int end) {
    memcpy(search->sorted, search->value + first, (size_t)(end - first) * sizeof *search->sorted);
    return mp_median_of(search->sorted, end - first);
}

static void find_levels(const struct search *search, int count) {
    for (int i = 0; i < search->changes; i++) {
        struct mp_change *change = &search->change[i];
        change->before = level(search, i > 0 ? search->change[i - 1].index : 0, change->index);
        change->after = level(search, change->index,
                              i + 1 < search->changes ? search->change[i + 1].index : count);
    }
}

int mp_changes_find(const double value[], int count, struct mp_change **change, int *changes,
                    struct mp_error *error) {
    const size_t values = (size_t)count + 1;
    *change = NULL;
    *changes = 0;
    if (count > MP_CHANGES_VALUES)
        return mp_fail(error, MP_ELIMIT, "a series of %d values; at most %d are looked at", count,
                       MP_CHANGES_VALUES);
    for (int i = 0; i < count; i++)
        if (!isfinite(value[i]))
            return mp_fail(error, MP_EINVAL, "value %d of a series is no number", i);
    MP_AUTO(arena) struct mp_arena arena = {0};
    struct search search = {.value = value, .change = calloc(values, sizeof *search.change)};
    MP_TAKE_EACH(&arena, values, search.shuffled, search.sorted);
    if (!search.change || arena.lacking) {
        free(search.change);
        return mp_no_memory(error);
    }
    find_changes(&search, 0, count);
    find_levels(&search, count);
    *change = search.change;
    *changes = search.changes;
    return MP_OK;
}

#define TIMED "ms per iteration"

static const char *text_of(const json_t *row, const char *name) {
    const char *text = json_string_value(json_object_get(row, name));
    return text ? text : "";
}

/* ---- rows ---- */

static int add_row(struct mp_history *history, json_t *row, struct mp_error *error) {
    size_t i;
    json_t *other;
    if (!history->rows)
        history->rows = json_array();
    json_array_foreach(history->rows, i, other) {
        if (row && !strcmp(text_of(other, "id"), text_of(row, "id"))) {
            json_decref(row);
            return MP_OK;
        }
    }
    return !row || json_array_append_new(history->rows, row) ? mp_no_memory(error) : MP_OK;
}

/* {"dispatch-bytes": [total, "hash"], ...} */
static int pack_counts(struct mp_store *store, const struct side_run *run, json_t *packed,
                       struct mp_error *error) {
    MP_AUTO(counts) struct counts counts = {0};
    char hash[20];
    MP_TRY(counts_load(store, run->run_id, run->predicted, &counts, error));
    for (int i = 0; i < counts.count; i++) {
        const struct count *count = &counts.item[i];
        snprintf(hash, sizeof hash, "%016" PRIx64, count->hash);
        if (!count->is_loss &&
            json_object_set_new(packed, count->name,
                                json_pack("[o, s]", number_value(count->total), hash)))
            return mp_no_memory(error);
    }
    return MP_OK;
}

static int add_run(struct mp_history *history, struct mp_store *store,
                   struct mp_gate_defaults defaults, int64_t run_id, const char *suite,
                   const char *started_at, const char *identity, struct mp_error *error) {
    const struct mp_gate_side from = {.store = store, .run = &run_id, .runs = 1};
    MP_AUTO(side) struct side side = {0};
    MP_AUTO(json) json_t *counts = json_object();
    char digest[20], id[400];
    MP_TRY(side_load(&from, "history", defaults, &side, error));
    const struct side_run *run = side.run;
    if (!run->complete)
        return MP_OK;
    MP_TRY(side_digest(run, digest, error));
    MP_TRY(pack_counts(store, run, counts, error));
    snprintf(id, sizeof id, "%s/%s/%d/%s", run->suite_run, run->job, run->round, identity);
    const char *machine = json_string_value(json_object_get(run->machine, "environment.cpu"));
    return add_row(history,
                   json_pack("{s:s, s:s, s:o, s:o, s:o, s:i, s:o, s:o, s:o, s:o, s:O}", "id", id,
                             "key", digest, "suite", text_value(suite), "job", text_value(run->job),
                             "system", text_value(run->system), "ranks", run->ranks, "machine",
                             text_value(run->predicted ? "predicted"
                                        : machine      ? machine
                                                       : "unknown machine"),
                             "revision", text_value(side_about(run, "environment.revision")),
                             "started_at", text_value(started_at), "ms",
                             number_value(run->shares_cores ? NAN : run->ms), "counts", counts),
                   error);
}

int mp_history_add_store(struct mp_history *history, struct mp_store *store,
                         struct mp_gate_defaults defaults, struct mp_error *error) {
    struct query query =
        query_begin(store,
                    "SELECT run_id, suite, started_at, coalesce((SELECT value FROM fact WHERE "
                    "fact.run_id = run.run_id AND name = 'run.identity'), '') FROM run "
                    "ORDER BY started_at, run_id",
                    0, error);
    while (query_next(&query))
        query.code = add_run(history, store, defaults, sqlite3_column_int64(query.row, 0),
                             query_text(query.row, 1), query_text(query.row, 2),
                             query_text(query.row, 3), error);
    return query_end(&query);
}

static const char *lacks(const json_t *row) {
    static const char *const names[] = {"id",     "key",     "suite",    "job",
                                        "system", "machine", "revision", "started_at"};
    for (size_t i = 0; i < MP_LENGTH(names); i++)
        if (!json_is_string(json_object_get(row, names[i])))
            return names[i];
    return json_is_object(json_object_get(row, "counts")) ? NULL : "counts";
}

/* What a run of a line can't have: a time that is none, a day without a date; NULL: nothing. */
static const char *wrong_in(const json_t *row) {
    const json_t *ms = json_object_get(row, "ms");
    struct tm day = {0};
    if (json_is_number(ms) && !(json_number_value(ms) > 0 && json_number_value(ms) < 1e12))
        return "\"ms\": should be milliseconds, above 0 and below 1e12";
    if (!strptime(text_of(row, "started_at"), "%Y-%m-%dT%H:%M:%S", &day))
        return "\"started_at\": should be a date, as 2026-11-02T03:00:00Z";
    return NULL;
}

int mp_history_add_lines(struct mp_history *history, const char *path, struct mp_error *error) {
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t capacity = 0;
    int code = MP_OK;
    if (!file)
        return mp_fail_errno(error, "%s", path);
    for (int number = 1; !code && getline(&line, &capacity, file) > 0; number++) {
        json_error_t at;
        MP_AUTO(json) json_t *row = json_loads(line, 0, &at);
        const char *missing = row ? lacks(row) : NULL;
        const char *wrong = row && !missing ? wrong_in(row) : NULL;
        if (!row)
            code = mp_fail(error, MP_EFORMAT,
                           "%s:%d: %s; a line is a run, and one that is not whole, of an --append "
                           "that was stopped, can be deleted",
                           path, number, at.text);
        else if (missing)
            code =
                mp_fail(error, MP_EFORMAT, "%s:%d: no \"%s\": is it of moeperf history --append?",
                        path, number, missing);
        else if (wrong)
            code = mp_fail(error, MP_EFORMAT, "%s:%d: %s", path, number, wrong);
        else
            code = add_row(history, json_incref(row), error);
    }
    if (!code && ferror(file))
        code = mp_fail_errno(error, "%s", path);
    free(line);
    fclose(file);
    return code;
}

int mp_history_write_lines(const struct mp_history *history, size_t first, FILE *out,
                           struct mp_error *error) {
    for (size_t i = first; i < json_array_size(history->rows); i++)
        if (json_dumpf(json_array_get(history->rows, i), out, JSON_COMPACT) || fputc('\n', out) < 0)
            return mp_fail_errno(error, "can't write a line of a history");
    return MP_OK;
}

/* ---- series ---- */

/* A run's value of a measure. */
struct sample {
    const json_t *row;
    const char *measure;
    bool exact;
    double value;
    uint64_t hash;
    const char *first; /* when its revision was first run in its series */
};
MP_END(samples, struct sample *, free(*it))

static int compare_series(const struct sample *a, const struct sample *b) {
    static const char *const fields[] = {"suite", "job", "machine", "key"};
    for (size_t i = 0; i < MP_LENGTH(fields); i++) {
        int order = strcmp(text_of(a->row, fields[i]), text_of(b->row, fields[i]));
        if (order)
            return order;
    }
    return a->exact != b->exact ? a->exact - b->exact : strcmp(a->measure, b->measure);
}

static int compare_revisions(const void *left, const void *right) {
    const struct sample *a = left, *b = right;
    return compare_series(a, b)
           ?: strcmp(text_of(a->row, "revision"), text_of(b->row, "revision"))
           ?: strcmp(text_of(a->row, "started_at"), text_of(b->row, "started_at"));
}

static int compare_times(const void *left, const void *right) {
    const struct sample *a = left, *b = right;
    return compare_series(a, b) ?: strcmp(a->first, b->first) ?: compare_revisions(left, right);
}

/* Runs that say no revision, as of others' programs, may each be of another. */
static bool same_point(const struct sample *a, const struct sample *b) {
    return !compare_series(a, b) && *text_of(a->row, "revision") &&
           !strcmp(text_of(a->row, "revision"), text_of(b->row, "revision"));
}

static int list_samples(const struct mp_history *history, const char *suite, const char *job,
                        struct sample **sample, size_t *count, struct mp_error *error) {
    size_t i, capacity = 0;
    json_t *row, *value;
    const char *name;
    *count = 0;
    json_array_foreach(history->rows, i, row) {
        capacity += 1 + json_object_size(json_object_get(row, "counts"));
    }
    MP_TRY(MP_NEW(*sample, capacity + 1, error));
    json_array_foreach(history->rows, i, row) {
        if ((suite && strcmp(suite, text_of(row, "suite")) != 0) ||
            (job && strcmp(job, text_of(row, "job")) != 0))
            continue;
        if (json_is_number(json_object_get(row, "ms")))
            (*sample)[(*count)++] = (struct sample){
                row, TIMED, false, json_number_value(json_object_get(row, "ms")), 0, ""};
        if (!*text_of(row, "revision")) /* exact measures tell revisions apart */
            continue;
        json_object_foreach(json_object_get(row, "counts"), name, value) {
            const char *hash = json_string_value(json_array_get(value, 1));
            (*sample)[(*count)++] = (struct sample){row,
                                                    name,
                                                    true,
                                                    json_number_value(json_array_get(value, 0)),
                                                    hash ? strtoull(hash, NULL, 16) : 0,
                                                    ""};
        }
    }
    return *count > 0
               ? MP_OK
               : mp_fail(error, MP_ENOTFOUND, "no complete run%s%s%s%s", suite ? " of suite " : "",
                         suite ? suite : "", job ? " of job " : "", job ? job : "");
}

/* One revision's runs. */
static int add_point(struct mp_history_series *series, const struct sample sample[], size_t count,
                     struct mp_error *error) {
    MP_AUTO(memory) double *value = NULL;
    MP_TRY(MP_NEW(value, count, error));
    struct mp_history_point *point = &series->point[series->points++];
    *point = (struct mp_history_point){.revision = text_of(sample->row, "revision"),
                                       .started_at = sample->first,
                                       .hash = sample->hash,
                                       .runs = (int)count};
    for (size_t i = 0; i < count; i++) {
        value[i] = sample[i].value;
        point->differs |= sample[i].hash != sample->hash;
    }
    point->value = mp_median_of(value, (int64_t)count);
    point->low = value[0];
    point->high = value[count - 1];
    return MP_OK;
}

static int find_steps(struct mp_history_series *series, struct mp_error *error) {
    MP_TRY(MP_NEW(series->change, (size_t)series->points + 1, error));
    for (int i = 1; i < series->points; i++) {
        const struct mp_history_point *now = &series->point[i], *before = now - 1;
        if (now->hash != before->hash)
            series->change[series->changes++] =
                (struct mp_change){.index = i, .before = before->value, .after = now->value};
    }
    return MP_OK;
}

static int series_changes(struct mp_history_series *series, struct mp_error *error) {
    MP_AUTO(memory) double *value = NULL;
    if (series->exact)
        return find_steps(series, error);
    MP_TRY(MP_NEW(value, series->points + 1, error));
    for (int i = 0; i < series->points; i++)
        value[i] = series->point[i].value;
    return mp_changes_find(value, series->points, &series->change, &series->changes, error);
}

static int add_series(struct mp_history *history, const struct sample sample[], size_t count,
                      struct mp_error *error) {
    const json_t *row = sample->row;
    struct mp_history_series *series = &history->series[history->count++];
    *series =
        (struct mp_history_series){.key = text_of(row, "key"),
                                   .suite = text_of(row, "suite"),
                                   .job = text_of(row, "job"),
                                   .system = text_of(row, "system"),
                                   .machine = text_of(row, "machine"),
                                   .measure = sample->measure,
                                   .exact = sample->exact,
                                   .ranks = (int)json_integer_value(json_object_get(row, "ranks")),
                                   .point = calloc(count, sizeof *series->point)};
    if (!series->point)
        return mp_no_memory(error);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && same_point(&sample[first], &sample[end]);)
            end++;
        MP_TRY(add_point(series, sample + first, end - first, error));
    }
    return series_changes(series, error);
}

int mp_history_find(struct mp_history *history, const char *suite, const char *job,
                    struct mp_error *error) {
    MP_AUTO(samples) struct sample *sample = NULL;
    size_t count = 0;
    MP_TRY(list_samples(history, suite, job, &sample, &count, error));
    MP_TRY(MP_NEW(history->series, count + 1, error));
    MP_SORT(sample, count, compare_revisions);
    for (size_t i = 0; i < count; i++)
        sample[i].first = i > 0 && same_point(&sample[i], &sample[i - 1])
                              ? sample[i - 1].first
                              : text_of(sample[i].row, "started_at");
    MP_SORT(sample, count, compare_times);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && !compare_series(&sample[first], &sample[end]);)
            end++;
        MP_TRY(add_series(history, sample + first, end - first, error));
    }
    return MP_OK;
}

void mp_history_destroy(struct mp_history *history) {
    for (int i = 0; i < history->count; i++) {
        free(history->series[i].point);
        free(history->series[i].change);
    }
    free(history->series);
    json_decref(history->rows);
    *history = (struct mp_history){0};
}
