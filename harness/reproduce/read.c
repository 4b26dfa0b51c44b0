/* Papers' files: see reproduce.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/reproduce/reproduce.h"

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

/* ---- rows ---- */

#define FIELD(member) offsetof(struct mp_reproduce_window, member)
static const struct mp_option window_rows[] = {
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
static const struct mp_option_form window = {"a window", window_rows,
                                             sizeof(struct mp_reproduce_window), NULL};

#undef FIELD
#define FIELD(member) offsetof(struct mp_reproduce_part, member)
static const struct mp_option part_rows[] = {
    {"", MP_OPTION_ITSELF, .offset = FIELD(mapping)},
    {"name", MP_OPTION_STRING, FIELD(name), "", NULL, 0, 0, NULL, "beside options of its jobs"},
    {0},
};
static const struct mp_option_form part = {"a machine, model or job", part_rows,
                                           sizeof(struct mp_reproduce_part), NULL};

#undef FIELD
#define FIELD(member) offsetof(struct mp_reproduce_reason, member)
#define REASON(key, help)                                                                          \
    {"", MP_OPTION_LINE, .offset = FIELD(line)},                                                   \
        {key, MP_OPTION_STRING, FIELD(what), "", NULL, 0, 0, NULL, help}, {                        \
        "because", MP_OPTION_STRING, FIELD(because), "", NULL, 0, 0, NULL, "why"                   \
    }
static const struct mp_option assumption_rows[] = {REASON("what", "that the paper does not say"),
                                                   {0}};
static const struct mp_option_form assumption = {"an assumption", assumption_rows,
                                                 sizeof(struct mp_reproduce_reason), NULL};
static const struct mp_option left_out_rows[] = {REASON("row", "of the published ones"), {0}};
static const struct mp_option_form left_out = {"a row left out", left_out_rows,
                                               sizeof(struct mp_reproduce_reason), NULL};

#undef FIELD
#define FIELD(member) offsetof(struct mp_reproduce_unknown, member)
static const struct mp_option word_rows[] = {
    {"", MP_OPTION_STRING, .unit = "bytes", .minimum = 0, .maximum = MP_REPRODUCE_VALUE - 1}, {0}};
static const struct mp_option_form word = {"a short word", word_rows, sizeof(char *), NULL};
static const struct mp_option unknown_rows[] = {
    {"", MP_OPTION_LINE, .offset = FIELD(line)},
    {"key", MP_OPTION_STRING, FIELD(key), "", NULL, 0, 0, NULL, "what is unknown"},
    {"why", MP_OPTION_STRING, FIELD(why), "", NULL, 0, 0, NULL, "why it is"},
    {"from", MP_OPTION_DOUBLE, FIELD(from), "", "", -1e300, 1e300, NULL, "begin of its range"},
    {"to", MP_OPTION_DOUBLE, FIELD(to), "", "", -1e300, 1e300, NULL, "end of it"},
    {"choices", MP_OPTION_LIST, FIELD(choice), "", "", 2, MP_REPRODUCE_CHOICES, &word, "instead"},
    {"of", MP_OPTION_NODE, FIELD(of), "", "", 0, 0, NULL, "the jobs that it is for; else all"},
    {0},
};
static const struct mp_option_form unknown = {"an unknown", unknown_rows,
                                              sizeof(struct mp_reproduce_unknown), NULL};

#undef FIELD
#define FIELD(member) offsetof(struct mp_reproduce_row, member)
static const struct mp_option row_rows[] = {
    {"", MP_OPTION_LINE, .offset = FIELD(line)},
    {"row", MP_OPTION_STRING, FIELD(id), "", NULL, 0, 0, NULL, "of the published ones"},
    {"figure", MP_OPTION_WORD, FIELD(figure), "", "seconds", 0, 0, figure_words, "what it is of"},
    {"combine", MP_OPTION_WORD, FIELD(combine), "", "each", 0, 0, combine_words,
     "combinations of machines, models and jobs"},
    {"single", MP_OPTION_WORD, FIELD(single), "", "none", 0, 0, single_words,
     "compared one by one, and combined"},
    {"use", MP_OPTION_WORD, FIELD(use), "", "score", 0, 0, use_words,
     "what inferring does with it"},
    {"machines", MP_OPTION_NODE, FIELD(names[0]), "", "", 0, 0, NULL, "names; else all"},
    {"models", MP_OPTION_NODE, FIELD(names[1]), "", "", 0, 0, NULL, "names; else all"},
    {"of", MP_OPTION_NODE, FIELD(names[2]), "", NULL, 0, 0, NULL, "names of the jobs it is about"},
    {"over", MP_OPTION_NODE, FIELD(names[3]), "", "", 0, 0, NULL, "names of jobs it divides by"},
    {0},
};
static const struct mp_option_form row_form = {"a row", row_rows, sizeof(struct mp_reproduce_row),
                                               NULL};

#undef FIELD
#define FIELD(member) offsetof(struct mp_reproduce_value, member)
static const struct mp_option value_rows[] = {
    {"", MP_OPTION_KEY, .offset = FIELD(key)},
    {"", MP_OPTION_LINE, .offset = FIELD(line)},
    {"", MP_OPTION_STRING, FIELD(text), "bytes", NULL, 0, MP_REPRODUCE_VALUE - 1, NULL, ""},
    {0},
};
static const struct mp_option_form value = {"a number or a word", value_rows,
                                            sizeof(struct mp_reproduce_value), NULL};
static const struct mp_option line_rows[] = {{"", MP_OPTION_STRING, .unit = ""}, {0}};
static const struct mp_option_form line = {"a row, or \"row, label\"", line_rows, sizeof(char *),
                                           NULL};

#undef FIELD
#define FIELD(member) offsetof(struct mp_reproduction, member)
static const struct mp_option inferred_rows[] = {
    {"command", MP_OPTION_STRING, FIELD(inferred_by), "", NULL, 0, 0, NULL, "that did it"},
    {"values", MP_OPTION_NAMED, FIELD(inferred), "", NULL, 0, MP_REPRODUCE_UNKNOWNS, &value,
     "of unknowns; the others stand in the middle"},
    {"inside", MP_OPTION_LIST, FIELD(inside), "", "", 0, MP_REPRODUCE_INSIDE, &line,
     "lines that are inside with them, and are to stay so"},
    {0},
};
static const struct mp_option_form inferred = {"what is inferred", inferred_rows,
                                               sizeof(struct mp_reproduction), NULL};

const struct mp_option mp_reproduction_rows[] = {
    {"paper", MP_OPTION_STRING, FIELD(name), "", NULL, 0, 0, NULL, "whose figures are published"},
    {"description", MP_OPTION_STRING, FIELD(description), "", NULL, 0, 0, NULL, "one line"},
    {"assumptions", MP_OPTION_LIST, FIELD(assumption), "", "", 0, MP_REPRODUCE_ROWS, &assumption,
     "what the paper does not say"},
    {"common", MP_OPTION_NODE, FIELD(common), "", "", 0, 0, NULL, "options of every job"},
    {"unknowns", MP_OPTION_LIST, FIELD(unknown), "", "", 0, MP_REPRODUCE_UNKNOWNS, &unknown,
     "what moeperf infers"},
    {"budget", MP_OPTION_INT64, FIELD(budget), "predictions", "0", 0, 1e12, NULL,
     "that inferring takes"},
    {"inferred", MP_OPTION_MAPPING, 0, "", "", 0, 3, &inferred, "the best set"},
    {"windows", MP_OPTION_LIST, FIELD(window), "", NULL, 1, MP_REPRODUCE_WINDOWS, &window,
     "iterations that are looked at"},
    {"largest-batch", MP_OPTION_NODE, FIELD(largest), "", "", 0, 0, NULL,
     "jobs: sequences per rank are the most that none of them runs out of memory with"},
    {"machines", MP_OPTION_LIST, FIELD(machines), "", NULL, 1, MP_REPRODUCE_PARTS, &part,
     "over common and models"},
    {"models", MP_OPTION_LIST, FIELD(models), "", NULL, 1, MP_REPRODUCE_PARTS, &part,
     "over common"},
    {"jobs", MP_OPTION_LIST, FIELD(jobs), "", NULL, 1, MP_REPRODUCE_PARTS, &part,
     "over common, models and machines"},
    {"rows", MP_OPTION_LIST, FIELD(row), "", NULL, 1, MP_REPRODUCE_ROWS, &row_form,
     "how a published row is computed"},
    {"left-out", MP_OPTION_LIST, FIELD(left_out), "", "", 0, MP_REPRODUCE_ROWS, &left_out,
     "published rows that are not"},
    {0},
};

const char *mp_reproduce_figure_name(enum mp_reproduce_figure figure) {
    return figure_words[figure];
}

/* ---- what rows can't say ---- */

static int word_index(const char *const list[], const char *known) {
    for (int i = 0; list[i]; i++)
        if (!strcmp(list[i], known))
            return i;
    return -1;
}

static int fail_unknown(const struct mp_reading *reading, int at, const char *what,
                        const char *name, const char *const known[]) {
    return mp_reading_fail(reading, at, "unknown %s \"%.80s\"%s", what, name,
                           mp_meant(name, known).text);
}

static int check_names(const struct mp_reading *reading, const struct mp_reproduce_parts *parts) {
    for (int i = 0; i < parts->count; i++)
        for (int j = 0; j < i; j++)
            if (!strcmp(parts->part[j].name, parts->part[i].name))
                return mp_reading_fail(reading, parts->part[i].mapping->line,
                                       "name: \"%.80s\" is there already", parts->part[i].name);
    return MP_OK;
}

/* The set of parts that a name, or a list of names, means; absent: all, or none. */
static int read_set(const struct mp_reading *reading, const struct mp_yaml *names,
                    const struct mp_reproduce_parts *parts, const char *what, bool all,
                    uint32_t *set) {
    const char *known[MP_REPRODUCE_PARTS + 1] = {NULL};
    *set = all && !names ? UINT32_MAX >> (32 - parts->count) : 0;
    if (!names)
        return MP_OK;
    if (names->kind == MP_YAML_MAPPING)
        return mp_reading_fail(reading, names->line, "should be the names of %ss", what);
    for (int i = 0; i < parts->count; i++)
        known[i] = parts->part[i].name;
    int count = names->kind == MP_YAML_SCALAR ? 1 : names->count;
    for (int i = 0; i < count; i++) {
        const struct mp_yaml *name = names->kind == MP_YAML_SCALAR ? names : names->item[i];
        const char *text = name->text ? name->text : "";
        int found = word_index(known, text);
        if (found < 0)
            return fail_unknown(reading, name->line, what, text, known);
        *set |= UINT32_C(1) << found;
    }
    return MP_OK;
}

/* The published row of this id. */
static int find_published(const struct mp_reading *reading, const struct mp_reproduction *all,
                          int at, const char *id, const struct mp_paper_row **found) {
    const char *known[MP_PAPER_ROWS + 1] = {NULL};
    for (int i = 0; i < all->published->rows; i++)
        known[i] = all->published->row[i].id;
    int index = word_index(known, id);
    *found = index < 0 ? NULL : &all->published->row[index];
    return *found ? MP_OK : fail_unknown(reading, at, "row", id, known);
}

static int finish_row(const struct mp_reading *reading, const struct mp_reproduction *all,
                      struct mp_reproduce_row *row) {
    const struct {
        const struct mp_reproduce_parts *parts;
        const char *what;
        bool all;
        uint32_t *set;
    } sets[4] = {{&all->machines, "machine", true, &row->machines},
                 {&all->models, "model", true, &row->models},
                 {&all->jobs, "job", false, &row->of},
                 {&all->jobs, "job", false, &row->over}};
    const struct mp_paper_row *published;
    MP_TRY(find_published(reading, all, row->line, row->id, &published));
    if (row->single &&
        (row->combine == MP_COMBINE_EACH ||
         row->figure != (row->single == MP_SINGLE_LAYER ? MP_FIGURE_MOE : MP_FIGURE_SECONDS)))
        return mp_reading_fail(reading, row->line,
                               "single: goes with figure %s and another combine than each",
                               row->single == MP_SINGLE_LAYER ? "moe" : "seconds");
    for (int i = 0; i < 4; i++)
        MP_TRY(read_set(reading, row->names[i], sets[i].parts, sets[i].what, sets[i].all,
                        sets[i].set));
    if (!row->of)
        return mp_reading_fail(reading, row->line, "of: a row is about some job");
    row->published = *published;
    return MP_OK;
}

/* Nothing published is passed over in silence. */
static int check_complete(const struct mp_reading *reading, const struct mp_reproduction *all) {
    const struct mp_paper_row *published;
    for (int i = 0; i < all->left_outs; i++)
        if (find_published(reading, all, all->left_out[i].line, all->left_out[i].what, &published))
            return MP_EINVAL;
    for (int i = 0; i < all->published->rows; i++) {
        const char *id = all->published->row[i].id;
        bool is_there = false, is_left_out = false;
        for (int j = 0; j < all->rows; j++)
            is_there = is_there || !strcmp(all->row[j].id, id);
        for (int j = 0; j < all->left_outs; j++)
            is_left_out = is_left_out || !strcmp(all->left_out[j].what, id);
        if (is_there == is_left_out)
            return mp_fail(
                reading->error, MP_EINVAL, "%s: the published row \"%s\" is %s", all->path, id,
                is_there ? "both in rows and in left-out" : "neither in rows nor in left-out");
    }
    return MP_OK;
}

/* The ranges of unknowns, whose they are, and what was inferred of them. */
static int finish_unknowns(const struct mp_reading *reading, struct mp_reproduction *all) {
    const char *known[MP_REPRODUCE_UNKNOWNS + 1] = {NULL};
    int code = MP_OK;
    for (int i = 0; i < all->unknowns && !code; i++) {
        struct mp_reproduce_unknown *one = &all->unknown[i];
        known[i] = one->key;
        if (!one->choices && !(one->from < one->to))
            return mp_reading_fail(reading, one->line, "from %g to %g is no range", one->from,
                                   one->to);
        code = read_set(reading, one->of, &all->jobs, "job", true, &one->jobs);
        mp_reproduction_value(one, 0.5, one->value);
    }
    for (int i = 0; i < all->inferreds && !code; i++) {
        const struct mp_reproduce_value *said = &all->inferred[i];
        int found = word_index(known, said->key);
        if (found < 0)
            return fail_unknown(reading, said->line, "unknown", said->key, known);
        snprintf(all->unknown[found].value, MP_REPRODUCE_VALUE, "%s", said->text);
    }
    return code;
}

static int find_paper(const struct mp_reading *reading, struct mp_reproduction *all) {
    const struct mp_paper *paper = mp_paper_find(all->name);
    return paper ? mp_published_parse(all->name, paper->text, &all->published, reading->error)
                 : mp_fail(reading->error, MP_ENOTFOUND,
                           "%s: there are no published figures of \"%.80s\"", all->path, all->name);
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
                MP_TRY(mp_reproduction_job(all, &settings, place, &job, NULL, error));
                mp_predict_job_destroy(&job);
            }
    return MP_OK;
}

static int read_all(struct mp_reproduction *all, const struct mp_systems *systems,
                    struct mp_error *error) {
    const struct mp_reading reading = {all->path, error};
    all->insides = -1;
    MP_TRY(mp_options_read(&reading, mp_reproduction_rows, "a paper's file", all->document, all));
    MP_TRY(find_paper(&reading, all));
    const struct mp_reproduce_parts *parts[] = {&all->machines, &all->models, &all->jobs};
    for (int i = 0; i < 3; i++)
        MP_TRY(check_names(&reading, parts[i]));
    MP_TRY(read_set(&reading, all->largest, &all->jobs, "job", false, &all->largest_batch));
    MP_TRY(finish_unknowns(&reading, all));
    for (int i = 0; i < all->rows; i++)
        MP_TRY(finish_row(&reading, all, &all->row[i]));
    MP_TRY(check_complete(&reading, all));
    return check_jobs(all, systems, error);
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
    if (code)
        mp_reproduction_destroy(all);
    else
        *reproduction = all;
    return code;
}

void mp_reproduction_destroy(struct mp_reproduction *all) {
    if (!all)
        return;
    if (all->cell && all->batch)
        mp_reproduction_forget(all);
    mp_arena_release(&all->arena);
    free(all->line);
    mp_published_destroy(all->published);
    mp_yaml_destroy(all->document);
    free((char *)all->path);
    free(all);
}
