/* moeperf cite: the sources of what was run, as BibTeX. */
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/workload/trace.h"
#include "reference/base/characters.h"
#include "reference/trainer/version.h"
#include "results/paper/paper.h"
#include "results/report/query.h"

static const char *database;

static const struct cli_flag known_flags[] = {
    {"--db", CLI_VALUE, &database, "FILE",
     "what the runs of this database used; without names " CLI_DATABASE},
    {0},
};
static const struct cli_usage usage = {
    "moeperf cite [NAME ...] [options]",
    "Prints BibTeX of moeperf and of what runs were made of: systems, gates, exchanges,\n"
    "clusters, loads and papers' figures, each entry once, below lines that say what it is\n"
    "for.  NAME is what moeperf show or moeperf reproduce takes.",
    known_flags,
    0,
    CLI_WORDS_LIMIT,
    "  moeperf cite --db out/quickstart/results.db >moeperf.bib\n"
    "  moeperf cite fssdp gshard hecate-a\n"};

/* ---- what a thing's sources name ---- */

struct citing {
    const struct mp_systems *systems;
    uint64_t works;
    json_t *seen; /* names that were cited, as keys */
};

/* Of every member "source", however deep: each number of a cluster has one.  `alone`: not of other
 * things of the same name. */
static uint64_t works_in(const json_t *value, bool alone, char **words) {
    uint64_t works = 0;
    const char *key;
    size_t i;
    json_t *member;
    json_object_foreach((json_t *)value, key, member) {
        const char *source = strcmp(key, "source") != 0 ? NULL : json_string_value(member);
        if (source && !*words)
            *words = strdup(source);
        if (!alone || !json_object_get(member, "kind"))
            works |= source ? mp_works_named(source) : works_in(member, alone, words);
    }
    json_array_foreach(value, i, member) {
        works |= works_in(member, alone, words);
    }
    return works;
}

static void print_line(struct citing *citing, const char *name, uint64_t works, const char *words) {
    char clean[512];
    printf("%% %s: ", mp_clean_text(clean, sizeof clean, name));
    if (works)
        mp_works_print_keys(works, stdout);
    else
        fputs(mp_clean_text(clean, sizeof clean, words && *words ? words : "no source"), stdout);
    putchar('\n');
    citing->works |= works;
}

/* Once only. */
static bool is_new(struct citing *citing, const char *name) {
    return *name && !json_object_get(citing->seen, name) &&
           !json_object_set_new(citing->seen, name, json_true());
}

/* What this name stands for in `moeperf show` and what `moeperf reproduce` has of it; of one kind
 * ("gate"), or NULL for all. */
static int cite_name(struct citing *citing, const char *kind, const char *name,
                     struct mp_error *error) {
    const struct mp_paper *paper = kind && strcmp(kind, "system") != 0 ? NULL : mp_paper_find(name);
    MP_AUTO(json)
    json_t *object = NULL, *published = paper ? json_loads(paper->text, 0, NULL) : NULL;
    MP_AUTO(text) char *words = NULL;
    char title[MP_PATH_SIZE + 16];
    struct mp_error unknown = {0};
    snprintf(title, sizeof title, "%s%s%s", kind ? kind : "", kind ? " " : "", name);
    int code = cli_find(citing->systems, name, &object, &unknown);
    const json_t *of_kind = kind ? json_object_get(object, kind) : NULL;
    if (code && !paper)
        return mp_fail(error, code, "%s", unknown.text);
    if (!is_new(citing, title))
        return MP_OK;
    uint64_t works = works_in(of_kind ? of_kind : object, kind, &words);
    works |= works_in(published, false, &words);
    print_line(citing, title, works, words);
    return MP_OK;
}

/* ---- what runs used ---- */

/* Loads: a generator with its options, or a trace, which says itself where it comes from. */
static void cite_loads(struct citing *citing, const char *loads) {
    struct mp_trace_stream *stream = NULL;
    struct mp_error error = {0};
    char kind[64];
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(loads, " "), loads);
    if (!strchr(kind, '.') && !strchr(kind, '/') && !cite_name(citing, "generator", kind, &error))
        return;
    if (!is_new(citing, loads))
        return;
    if (mp_trace_open(loads, &stream, &error)) {
        print_line(citing, loads, 0, error.text);
        return;
    }
    const char *source = mp_trace_stream_info(stream)->source;
    print_line(citing, loads, mp_works_named(source), source);
    mp_trace_stream_destroy(stream);
}

/* The value of a key of a job's text ("\nexchange: two-level"), without quotes; "" if it has none.
 */
static void value_of(const char *text, const char *key, char value[MP_PATH_SIZE]) {
    char line[64];
    snprintf(line, sizeof line, "\n%s: ", key);
    const char *at = strstr(text, line);
    at += at ? strlen(line) : 0;
    at += at && *at == '"';
    snprintf(value, MP_PATH_SIZE, "%.*s", at ? (int)strcspn(at, "\"\n") : 0, at ? at : "");
}

static void cite_or_say(struct citing *citing, const char *kind, const char *name) {
    struct mp_error error = {0};
    if (*name && cite_name(citing, kind, name, &error) && is_new(citing, name))
        print_line(citing, name, 0, "not one of this moeperf's");
}

static int cite_runs(struct citing *citing, const char *path, struct mp_error *error) {
    static const char *const kinds[] = {"gate", "exchange", "cluster"};
    static const char *const loads[] = {"loads", "trace"};
    MP_AUTO(store) struct mp_store *store = NULL;
    char value[MP_PATH_SIZE];
    MP_TRY(cli_open_database(path, &store, error));
    struct query query =
        query_begin(store,
                    "SELECT DISTINCT system, char(10) || coalesce(job_text, (SELECT value "
                    "FROM fact WHERE fact.run_id = run.run_id AND name = 'job'), '') FROM "
                    "run ORDER BY run_id",
                    0, error);
    while (query_next(&query)) {
        cite_or_say(citing, "system", query_text(query.row, 0));
        for (int i = 0; i < 3; i++) {
            value_of(query_text(query.row, 1), kinds[i], value);
            cite_or_say(citing, kinds[i], value);
        }
        for (int i = 0; i < 2; i++) {
            value_of(query_text(query.row, 1), loads[i], value);
            if (*value)
                cite_loads(citing, value);
        }
    }
    return query_end(&query);
}

/* ---- the command ---- */

static void print_own(void) {
    printf("\n@software{moeperf,\n"
           "  title = {moeperf: stragglers of Mixture-of-Experts training, measured, explained, "
           "predicted},\n"
           "  author = {{The moeperf maintainers}},\n"
           "  version = {%s}\n}\n",
           mp_version());
}

static int cite(const struct cli_call *call, struct mp_error *error) {
    MP_AUTO(json) json_t *seen = json_object();
    struct citing citing = {call->systems, 0, seen};
    for (int i = 0; i < call->words->count; i++)
        MP_TRY(cite_name(&citing, NULL, call->words->word[i], error));
    if (database || call->words->count == 0)
        MP_TRY(cite_runs(&citing, database ? database : CLI_DATABASE, error));
    print_own();
    mp_works_print(citing.works, stdout);
    return check_printed(stdout, error);
}

const struct cli_command cli_cite = {"cite", "prints the sources of what was run as BibTeX", cite,
                                     .usage = &usage};
