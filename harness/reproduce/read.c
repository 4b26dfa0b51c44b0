/* Papers' files: see reproduce.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/reproduce/reproduce.h"

static const char *const top_keys[] = {"paper",    "description",   "assumptions", "common",
                                       "unknowns", "budget",        "inferred",    "windows",
                                       "machines", "largest-batch", "models",      "jobs",
                                       "rows",     "left-out",      NULL};
static const char *const row_keys[] = {"row",    "figure",  "of",     "over", "machines",
                                       "models", "combine", "single", "use",  NULL};
static const char *const unknown_keys[] = {"key", "from", "to", "choices", "of", "why", NULL};
static const char *const inferred_keys[] = {"command", "values", "inside", NULL};
static const char *const single_words[] = {"none", "iteration", "layer", NULL};
static const char *const use_words[] = {"fit", "score", "input", NULL};
static const char *const combine_words[] = {"each",  "mean", "geometric-mean",
                                            "least", "most", NULL};
static const char *const figure_words[MP_FIGURES + 1] = {"seconds",        "moe",
                                                         "exchange",       "expert",
                                                         "expert-max",     "attention",
                                                         "exposed",        "late",
                                                         "transfer",       "transfer-exposed",
                                                         "move",           "imbalance",
                                                         "copied",         "dropped",
                                                         "survival",       "memory",
                                                         "memory-experts", "memory-parameters",
                                                         "memory-copies",  "slowest",
                                                         "batch",          "iterations",
                                                         "to-loss",        NULL};

#define FIELD(member) offsetof(struct mp_reproduce_window, member)
static const struct mp_option window_options[] = {
    {"loads", MP_OPTION_TEXT, FIELD(loads), "", NULL, 0, 0, NULL,
     "a trace, or a generator with its options"},
    {"planners-from", MP_OPTION_INT, FIELD(planners_from), "iterations", "0", 0, 1e6, NULL,
     "number of the first iteration, as planners count"},
    {"warm-up", MP_OPTION_INT, FIELD(warm_up), "iterations", "0", 0, 1e6, NULL,
     "iterations before those that are counted"},
    {"iterations", MP_OPTION_INT, FIELD(iterations), "iterations", "40", 1, 1e6, NULL,
     "iterations that are counted"},
    {0},
};

const char *mp_reproduce_figure_name(enum mp_reproduce_figure figure) {
    return figure_words[figure];
}

static int word_index(const char *const words[], const char *word) {
    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], word))
            return i;
    return -1;
}

/* "path:line: doing: "word" is unknown; did you mean ...?" */
static int fail_unknown(const struct mp_reproduction *all, int line, const char *what,
                        const char *word, const char *const known[], struct mp_error *error) {
    return mp_fail(error, MP_EINVAL, "%s:%d: unknown %s \"%.80s\"%s", all->path, line, what, word,
                   mp_meant(word, known).text);
}

static int check_keys(const struct mp_reproduction *all, const struct mp_yaml *mapping,
                      const char *what, const char *const known[], struct mp_error *error) {
    if (mapping->kind != MP_YAML_MAPPING)
        return mp_fail(error, MP_EINVAL, "%s:%d: should be a mapping (%s)", all->path,
                       mapping->line, what);
    for (int i = 0; i < mapping->count; i++)
        if (word_index(known, mapping->key[i]) < 0)
            return fail_unknown(all, mapping->key_line[i], what, mapping->key[i], known, error);
    return MP_OK;
}

/* A list under a key of the document; NULL in *list where it is not given and need not be. */
static int get_list(const struct mp_reproduction *all, const char *key, int least, int most,
                    const struct mp_yaml **list, struct mp_error *error) {
    *list = mp_yaml_get(all->document, key);
    if (!*list && least == 0)
        return MP_OK;
    if (!*list)
        return mp_fail(error, MP_EINVAL, "%s: %s: not given", all->path, key);
    if ((*list)->kind != MP_YAML_SEQUENCE || (*list)->count < least || (*list)->count > most)
        return mp_fail(error, MP_EINVAL, "%s:%d: %s: should be a list of %d to %d entries",
                       all->path, (*list)->line, key, least, most);
    return MP_OK;
}

static int get_text(const struct mp_reproduction *all, const struct mp_yaml *mapping,
                    const char *key, const char **text, struct mp_error *error) {
    const struct mp_yaml *value =
        mapping->kind == MP_YAML_MAPPING ? mp_yaml_get(mapping, key) : NULL;
    *text = "";
    if (!value || value->kind != MP_YAML_SCALAR || !*value->text)
        return mp_fail(error, MP_EINVAL, "%s:%d: %s: should be some text", all->path,
                       value ? value->line : mapping->line, key);
    *text = value->text;
    return MP_OK;
}

static int read_parts(const struct mp_reproduction *all, const char *key,
                      struct mp_reproduce_parts *parts, struct mp_error *error) {
    const struct mp_yaml *list;
    int code = get_list(all, key, 1, MP_REPRODUCE_PARTS, &list, error);
    for (int i = 0; !code && i < list->count; i++) {
        struct mp_reproduce_part *part = &parts->part[i];
        part->mapping = list->item[i];
        code = get_text(all, part->mapping, "name", &part->name, error);
        for (int j = 0; !code && j < i; j++)
            if (!strcmp(parts->part[j].name, part->name))
                code = mp_fail(error, MP_EINVAL, "%s:%d: name: \"%.80s\" is there already",
                               all->path, part->mapping->line, part->name);
        parts->count = i + 1;
    }
    return code;
}

static int read_windows(struct mp_reproduction *all, struct mp_error *error) {
    const struct mp_yaml *list;
    char where[MP_REPRODUCE_LABEL * 4];
    int code = get_list(all, "windows", 1, MP_REPRODUCE_WINDOWS, &list, error);
    for (int i = 0; !code && i < list->count; i++) {
        const struct mp_yaml *entry = list->item[i];
        struct mp_reproduce_window *window = &all->window[all->windows++];
        code = mp_options_set_defaults(window_options, window, error);
        if (!code && entry->kind != MP_YAML_MAPPING)
            code =
                mp_fail(error, MP_EINVAL, "%s:%d: a window is a mapping", all->path, entry->line);
        for (int j = 0; !code && j < entry->count; j++) {
            snprintf(where, sizeof where, "%s:%d", all->path, entry->key_line[j]);
            code = mp_options_set(window_options, window, "a window", entry->key[j],
                                  entry->item[j]->text ? entry->item[j]->text : "", where, error);
        }
        if (!code && !*window->loads)
            code = mp_fail(error, MP_EINVAL, "%s:%d: loads: not given", all->path, entry->line);
    }
    return code;
}

/* The set of parts that a name, or a list of names, means; absent: `otherwise`. */
static int read_set(const struct mp_reproduction *all, const struct mp_yaml *value,
                    const struct mp_reproduce_parts *parts, const char *what, uint32_t otherwise,
                    uint32_t *set, struct mp_error *error) {
    const char *known[MP_REPRODUCE_PARTS + 1] = {NULL};
    *set = otherwise;
    if (!value)
        return MP_OK;
    if (value->kind == MP_YAML_MAPPING)
        return mp_fail(error, MP_EINVAL, "%s:%d: should be the names of %ss", all->path,
                       value->line, what);
    for (int i = 0; i < parts->count; i++)
        known[i] = parts->part[i].name;
    *set = 0;
    int count = value->kind == MP_YAML_SCALAR ? 1 : value->count;
    for (int i = 0; i < count; i++) {
        const struct mp_yaml *name = value->kind == MP_YAML_SCALAR ? value : value->item[i];
        int found = name->kind == MP_YAML_SCALAR ? word_index(known, name->text) : -1;
        if (found < 0)
            return fail_unknown(all, name->line, what, name->text ? name->text : "", known, error);
        *set |= UINT32_C(1) << found;
    }
    return MP_OK;
}

static int read_choice(const struct mp_reproduction *all, const struct mp_yaml *entry,
                       const char *key, const char *const words[], int otherwise, int *choice,
                       struct mp_error *error) {
    const struct mp_yaml *value = mp_yaml_get(entry, key);
    *choice = value ? word_index(words, value->text ? value->text : "") : otherwise;
    if (*choice >= 0)
        return MP_OK;
    return fail_unknown(all, value ? value->line : entry->line, key,
                        value && value->text ? value->text : "", words, error);
}

/* The published row of this id. */
static int find_published(const struct mp_reproduction *all, const struct mp_yaml *entry,
                          struct mp_paper_row *row, struct mp_error *error) {
    const json_t *rows = json_object_get(all->published, "rows");
    const char *known[MP_REPRODUCE_ROWS + 1] = {NULL}, *id;
    int code = get_text(all, entry, "row", &id, error);
    for (size_t i = 0; !code && i < json_array_size(rows) && i < MP_REPRODUCE_ROWS; i++) {
        code = mp_paper_row_read(all->name, json_array_get(rows, i), row, error);
        if (code || !strcmp(row->id, id))
            return code;
        known[i] = row->id;
    }
    return code ? code : fail_unknown(all, entry->line, "row", id, known, error);
}

static int read_row(struct mp_reproduction *all, const struct mp_yaml *entry,
                    struct mp_error *error) {
    struct mp_reproduce_row *row = &all->row[all->rows];
    int figure = 0, combine = 0, single = 0, use = 0;
    int code = check_keys(all, entry, "row's key", row_keys, error);
    if (!code)
        code = find_published(all, entry, &row->published, error);
    if (!code)
        code = read_choice(all, entry, "figure", figure_words, MP_FIGURE_SECONDS, &figure, error);
    if (!code)
        code = read_choice(all, entry, "combine", combine_words, MP_COMBINE_EACH, &combine, error);
    if (!code)
        code = read_set(all, mp_yaml_get(entry, "machines"), &all->machines, "machine",
                        UINT32_MAX >> (32 - all->machines.count), &row->machines, error);
    if (!code)
        code = read_choice(all, entry, "single", single_words, MP_SINGLE_NONE, &single, error);
    if (!code)
        code = read_choice(all, entry, "use", use_words, MP_USE_SCORE, &use, error);
    if (!code && single &&
        (combine == MP_COMBINE_EACH ||
         figure != (single == MP_SINGLE_LAYER ? MP_FIGURE_MOE : MP_FIGURE_SECONDS)))
        code = mp_fail(error, MP_EINVAL,
                       "%s:%d: single: goes with figure %s and another combine than each",
                       all->path, entry->line, single == MP_SINGLE_LAYER ? "moe" : "seconds");
    if (!code)
        code = read_set(all, mp_yaml_get(entry, "models"), &all->models, "model",
                        UINT32_MAX >> (32 - all->models.count), &row->models, error);
    if (!code)
        code = read_set(all, mp_yaml_get(entry, "of"), &all->jobs, "job", 0, &row->of, error);
    if (!code)
        code = read_set(all, mp_yaml_get(entry, "over"), &all->jobs, "job", 0, &row->over, error);
    if (!code && !row->of)
        code = mp_fail(error, MP_EINVAL, "%s:%d: of: not given; a row is about some job", all->path,
                       entry->line);
    row->figure = (enum mp_reproduce_figure)figure;
    row->combine = (enum mp_reproduce_combine)combine;
    row->single = (enum mp_reproduce_single)single;
    row->use = (enum mp_reproduce_use)use;
    all->rows++;
    return code;
}

/* A list of {row, because}. */
static int read_reasons(const struct mp_reproduction *all, const char *key,
                        const struct mp_yaml **list, struct mp_error *error) {
    const char *because;
    struct mp_paper_row row;
    int code = get_list(all, key, 0, MP_REPRODUCE_ROWS, list, error);
    for (int i = 0; !code && *list && i < (*list)->count; i++) {
        code = find_published(all, (*list)->item[i], &row, error);
        if (!code)
            code = get_text(all, (*list)->item[i], "because", &because, error);
    }
    return code;
}

static int read_rows(struct mp_reproduction *all, struct mp_error *error) {
    const struct mp_yaml *list;
    int code = get_list(all, "rows", 1, MP_REPRODUCE_ROWS, &list, error);
    for (int i = 0; !code && i < list->count; i++)
        code = read_row(all, list->item[i], error);
    if (!code)
        code = read_reasons(all, "left-out", &all->left_out, error);
    return code;
}

static bool is_named(const struct mp_yaml *list, const char *id) {
    for (int i = 0; list && i < list->count; i++)
        if (!strcmp(mp_yaml_get(list->item[i], "row")->text, id))
            return true;
    return false;
}

/* Nothing published is passed over in silence. */
static int check_complete(const struct mp_reproduction *all, struct mp_error *error) {
    const json_t *rows = json_object_get(all->published, "rows");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const char *id = json_string_value(json_object_get(json_array_get(rows, i), "id"));
        bool is_there = is_named(mp_yaml_get(all->document, "rows"), id);
        bool is_left_out = is_named(all->left_out, id);
        if (is_there == is_left_out)
            return mp_fail(error, MP_EINVAL, "%s: the published row \"%s\" is %s", all->path, id,
                           is_there ? "both in rows and in left-out"
                                    : "neither in rows nor in left-out");
    }
    return MP_OK;
}

static int read_assumptions(struct mp_reproduction *all, struct mp_error *error) {
    const char *text;
    int code = get_list(all, "assumptions", 0, MP_REPRODUCE_ROWS, &all->assumptions, error);
    for (int i = 0; !code && all->assumptions && i < all->assumptions->count; i++) {
        code = get_text(all, all->assumptions->item[i], "what", &text, error);
        if (!code)
            code = get_text(all, all->assumptions->item[i], "because", &text, error);
    }
    return code;
}

/* ---- unknowns ---- */

static int read_number(const struct mp_reproduction *all, const struct mp_yaml *entry,
                       const char *key, double *number, struct mp_error *error) {
    const char *text;
    char *end;
    int code = get_text(all, entry, key, &text, error);
    if (code)
        return code;
    *number = strtod(text, &end);
    if (*end || !isfinite(*number))
        return mp_fail(error, MP_EINVAL, "%s:%d: %s: \"%.80s\" is no number", all->path,
                       mp_yaml_get(entry, key)->line, key, text);
    return MP_OK;
}

static int read_range(const struct mp_reproduction *all, const struct mp_yaml *entry,
                      struct mp_reproduce_unknown *unknown, struct mp_error *error) {
    int code = read_number(all, entry, "from", &unknown->from, error);
    if (!code)
        code = read_number(all, entry, "to", &unknown->to, error);
    if (!code && !(unknown->from < unknown->to))
        code = mp_fail(error, MP_EINVAL, "%s:%d: from %g to %g is no range", all->path, entry->line,
                       unknown->from, unknown->to);
    return code;
}

static int read_choices(const struct mp_reproduction *all, const struct mp_yaml *list,
                        struct mp_reproduce_unknown *unknown, struct mp_error *error) {
    if (list->kind != MP_YAML_SEQUENCE || list->count < 2 || list->count > MP_REPRODUCE_CHOICES)
        return mp_fail(error, MP_EINVAL, "%s:%d: choices: should be 2 to %d words", all->path,
                       list->line, MP_REPRODUCE_CHOICES);
    for (int i = 0; i < list->count; i++) {
        const char *word = list->item[i]->text;
        if (!word || !*word || strlen(word) >= MP_REPRODUCE_VALUE)
            return mp_fail(error, MP_EINVAL, "%s:%d: choices: should be short words", all->path,
                           list->item[i]->line);
        unknown->choice[unknown->choices++] = word;
    }
    return MP_OK;
}

static int read_unknown(struct mp_reproduction *all, const struct mp_yaml *entry,
                        struct mp_error *error) {
    struct mp_reproduce_unknown *unknown = &all->unknown[all->unknowns++];
    int code = check_keys(all, entry, "unknown's key", unknown_keys, error);
    if (!code)
        code = get_text(all, entry, "key", &unknown->key, error);
    if (!code)
        code = get_text(all, entry, "why", &unknown->why, error);
    if (code)
        return code;
    const struct mp_yaml *choices = mp_yaml_get(entry, "choices");
    code = choices ? read_choices(all, choices, unknown, error)
                   : read_range(all, entry, unknown, error);
    if (!code)
        code = read_set(all, mp_yaml_get(entry, "of"), &all->jobs, "job",
                        UINT32_MAX >> (32 - all->jobs.count), &unknown->jobs, error);
    mp_reproduction_value(unknown, 0.5, unknown->value);
    return code;
}

/* What was inferred, of unknowns that there are. */
static int read_inferred(struct mp_reproduction *all, struct mp_error *error) {
    const struct mp_yaml *inferred = mp_yaml_get(all->document, "inferred");
    const char *known[MP_REPRODUCE_UNKNOWNS + 1] = {NULL};
    if (!inferred)
        return MP_OK;
    int code = check_keys(all, inferred, "key", inferred_keys, error);
    if (!code)
        code = get_text(all, inferred, "command", &all->inferred_by, error);
    const struct mp_yaml *values = code ? NULL : mp_yaml_get(inferred, "values");
    if (!code && (!values || values->kind != MP_YAML_MAPPING))
        code = mp_fail(error, MP_EINVAL, "%s:%d: inferred: values: should be a mapping", all->path,
                       inferred->line);
    all->inside = code ? NULL : mp_yaml_get(inferred, "inside");
    if (!code && all->inside && all->inside->kind != MP_YAML_SEQUENCE)
        code = mp_fail(error, MP_EINVAL, "%s:%d: inferred: inside: should be a list of rows",
                       all->path, all->inside->line);
    for (int i = 0; !code && all->inside && i < all->inside->count; i++)
        if (!all->inside->item[i]->text)
            code = mp_fail(error, MP_EINVAL, "%s:%d: inside: should be the names of rows",
                           all->path, all->inside->item[i]->line);
    for (int i = 0; i < all->unknowns; i++)
        known[i] = all->unknown[i].key;
    for (int i = 0; !code && i < values->count; i++) {
        int found = word_index(known, values->key[i]);
        const char *text = values->item[i]->text;
        if (found < 0)
            return fail_unknown(all, values->key_line[i], "unknown", values->key[i], known, error);
        if (!text || !*text || strlen(text) >= MP_REPRODUCE_VALUE)
            return mp_fail(error, MP_EINVAL, "%s:%d: %s: should be a number or a word", all->path,
                           values->key_line[i], values->key[i]);
        snprintf(all->unknown[found].value, MP_REPRODUCE_VALUE, "%s", text);
    }
    return code;
}

static int read_unknowns(struct mp_reproduction *all, struct mp_error *error) {
    const struct mp_yaml *list;
    double budget = 0;
    int code = get_list(all, "unknowns", 0, MP_REPRODUCE_UNKNOWNS, &list, error);
    for (int i = 0; !code && list && i < list->count; i++)
        code = read_unknown(all, list->item[i], error);
    if (!code && mp_yaml_get(all->document, "budget"))
        code = read_number(all, all->document, "budget", &budget, error);
    all->budget = (int64_t)budget;
    return code ? code : read_inferred(all, error);
}

static int read_head(struct mp_reproduction *all, struct mp_error *error) {
    int code = check_keys(all, all->document, "key", top_keys, error);
    if (!code)
        code = get_text(all, all->document, "paper", &all->name, error);
    if (!code)
        code = get_text(all, all->document, "description", &all->description, error);
    if (code)
        return code;
    all->paper = mp_paper_find(all->name);
    if (!all->paper)
        return mp_fail(error, MP_ENOTFOUND, "%s: there are no published figures of \"%.80s\"",
                       all->path, all->name);
    all->published = json_loads(all->paper->text, 0, NULL);
    if (!all->published)
        return mp_fail(error, MP_EFORMAT, "the published figures of %s are no JSON", all->name);
    all->common = mp_yaml_get(all->document, "common");
    return MP_OK;
}

/* Every job's options are applied once, so that a slip in the file shows before anything runs. */
static int check_jobs(const struct mp_reproduction *all, const struct mp_systems *systems,
                      struct mp_error *error) {
    const struct mp_reproduce_settings settings = {.systems = systems};
    struct mp_predict_job job;
    for (int machine = 0; machine < all->machines.count; machine++)
        for (int model = 0; model < all->models.count; model++)
            for (int i = 0; i < all->jobs.count; i++) {
                const int place[3] = {machine, model, i};
                struct mp_cluster *cluster;
                int code = mp_reproduction_job(all, &settings, place, &job, &cluster, error);
                if (code)
                    return code;
                mp_predict_job_destroy(&job);
            }
    return MP_OK;
}

static int read_all(struct mp_reproduction *all, const struct mp_systems *systems,
                    struct mp_error *error) {
    int code = read_head(all, error);
    if (!code)
        code = read_assumptions(all, error);
    if (!code)
        code = read_windows(all, error);
    if (!code)
        code = read_parts(all, "machines", &all->machines, error);
    if (!code)
        code = read_parts(all, "models", &all->models, error);
    if (!code)
        code = read_parts(all, "jobs", &all->jobs, error);
    if (!code)
        code = read_set(all, mp_yaml_get(all->document, "largest-batch"), &all->jobs, "job", 0,
                        &all->largest_batch, error);
    if (!code)
        code = read_unknowns(all, error);
    if (!code)
        code = read_rows(all, error);
    if (!code)
        code = check_complete(all, error);
    if (!code)
        code = check_jobs(all, systems, error);
    return code;
}

int mp_reproduction_load(const char *path, const struct mp_systems *systems,
                         struct mp_reproduction **reproduction, struct mp_error *error) {
    struct mp_reproduction *all = calloc(1, sizeof *all);
    char *kept = strdup(path);
    if (!all || !kept) {
        free(all);
        free(kept);
        return mp_fail(error, MP_ENOMEM, "%s: no memory for it", path);
    }
    all->path = kept;
    int code = mp_yaml_load(path, &all->document, error);
    if (!code)
        code = read_all(all, systems, error);
    if (!code) {
        size_t pairs = (size_t)all->machines.count * (size_t)all->models.count;
        MP_TAKE(&all->arena, all->cell, pairs * (size_t)all->jobs.count);
        MP_TAKE(&all->arena, all->batch, pairs);
        code = mp_arena_check(&all->arena, error);
    }
    if (code) {
        mp_reproduction_destroy(all);
        return code;
    }
    *reproduction = all;
    return MP_OK;
}

void mp_reproduction_destroy(struct mp_reproduction *all) {
    if (!all)
        return;
    if (all->cell && all->batch)
        mp_reproduction_forget(all);
    mp_arena_release(&all->arena);
    json_decref(all->published);
    mp_yaml_destroy(all->document);
    free((char *)all->path);
    free(all);
}
