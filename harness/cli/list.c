/* moeperf list: what there is. */
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/suite/paths.h"
#include "reference/base/characters.h"
#include "results/report/query.h"
#include "results/report/table.h"

/* A listing is a JSON array of objects with "name" and "title" at least; its text is two columns,
 * and further lines under the title for what else a system says of itself. */

static int add_row(json_t *rows, json_t *row, struct mp_error *error) {
    if (!row || json_array_append_new(rows, row))
        return mp_no_memory(error);
    return MP_OK;
}

/* Those of a kind, with some of what there is about them. */
static int list_kind(const struct mp_systems *systems, const char *kind, json_t *rows,
                     struct mp_error *error) {
    static const char *const members[] = {"name", "title", "source", "capabilities",
                                          "unattainable"};
    MP_AUTO(json) json_t *catalog = cli_catalog(systems);
    json_t *entry;
    size_t i;
    if (!catalog)
        return mp_no_memory(error);
    json_array_foreach(catalog, i, entry) {
        const bool is_system = json_object_get(entry, "capabilities");
        if (strcmp(json_string_value(json_object_get(entry, "kind")), kind) != 0)
            continue;
        json_t *row = json_object();
        for (int m = 0; m < (is_system ? 5 : 2); m++)
            json_object_set(row, members[m], json_object_get(entry, members[m]));
        MP_TRY(add_row(rows, row, error));
    }
    return MP_OK;
}

static int list_files(enum mp_ready_made kind, json_t *rows, struct mp_error *error) {
    MP_AUTO(names) char **names = NULL;
    MP_TRY(mp_path_names(kind, &names, error));
    for (int i = 0; names[i]; i++) {
        /* The own words of a ready-made file about itself.  Only its description is wanted, so a
         * suite's default text that is not there yet does not matter. */
        char path[MP_PATH_SIZE];
        MP_AUTO(yaml) struct mp_yaml *document = NULL;
        MP_TRY(mp_path_file(kind, names[i], path, error));
        MP_TRY(mp_yaml_load(path, &document, error));
        const struct mp_yaml *description = mp_yaml_get(document, "description");
        const char *title = description && description->text ? description->text : "";
        MP_TRY(add_row(rows,
                       json_pack("{s:s, s:s, s:s}", "name", names[i], "title", title, "path", path),
                       error));
    }
    return MP_OK;
}

static int list_devices(json_t *rows, struct mp_error *error) {
    char library[256], title[640];
    struct cli_machine machine;
    MP_TRY(cli_machine_compute(library, sizeof library, error));
    cli_machine_read(&machine);
    snprintf(title, sizeof title, "%s, %d core%s, %s", machine.processor, machine.cores,
             machine.cores == 1 ? "" : "s", library);
    return add_row(rows,
                   json_pack("{s:s, s:s, s:s, s:i, s:s, s:I}", "name", "cpu", "title", title,
                             "processor", machine.processor, "cores", machine.cores, "library",
                             library, "memory_bytes", (json_int_t)machine.memory),
                   error);
}

/* Of each: TOPIC(its name, blanks up to help's next column, what is listed, and who lists it). */
#define EACH_TOPIC(TOPIC)                                                                          \
    TOPIC(systems, "     ", "planners that can be compared", .kind = "system")                     \
    TOPIC(gates, "       ", "what chooses the experts of a token", .kind = "gate")                 \
    TOPIC(exchanges, "   ", "ways of tokens' rows to their experts and back", .kind = "exchange")  \
    TOPIC(workloads, "   ", "where a job's loads come from, as its routing: says",                 \
          .kind = "workload")                                                                      \
    TOPIC(generators, "  ", "kinds of computed traces, of moeperf generate", .kind = "generator")  \
    TOPIC(suites, "      ", "ready-made comparisons", .of_files = true, .files = MP_SUITES)        \
    TOPIC(clusters, "    ", "machines that times are predicted for", .of_files = true,             \
          .files = MP_CLUSTERS)                                                                    \
    TOPIC(rules, "       ",                                                                        \
          "which range of an annotated program is which phase, for moeperf record",                \
          .of_files = true, .files = MP_RULES)                                                     \
    TOPIC(devices, "     ", "what this machine computes on", .kind = NULL)
#define TOPIC_ROW(name, blanks, what, ...) {#name, __VA_ARGS__},
#define TOPIC_HELP(name, blanks, what, ...) "\n  " #name blanks what

static const struct topic {
    const char *name, *kind;
    bool of_files;
    enum mp_ready_made files;
} topics[] = {EACH_TOPIC(TOPIC_ROW)};
enum { TOPICS = MP_LENGTH(topics) };

/* Under a system's title: where it comes from, and "replicates experts, drops routes". */
static void print_system_lines(const json_t *row, int indent) {
    char words[512] = "";
    const json_t *capabilities = json_object_get(row, "capabilities");
    for (size_t i = 0; i < json_array_size(capabilities); i++) {
        const struct cli_capability *capability =
            cli_capability_find(json_string_value(json_array_get(capabilities, i)));
        if (capability->brief)
            mp_text_add(words, sizeof words, ", ", "%s", capability->brief);
    }
    table_filled(stdout, 0, indent, json_string_value(json_object_get(row, "source")));
    table_filled(stdout, 0, indent, *words ? words : "moves and copies nothing");
}

/* What does not fit behind the name goes on under the title. */
static void print_title(const char *name, int width, const char *title) {
    cli_print_clean(stdout, name, strlen(name));
    table_filled(stdout, (int)strlen(name), width + 2, title);
}

static void print_text(const json_t *rows) {
    size_t i;
    json_t *row;
    int width = 4;
    json_array_foreach(rows, i, row) {
        int length = (int)json_string_length(json_object_get(row, "name"));
        width = length > width ? length : width;
    }
    json_array_foreach(rows, i, row) {
        print_title(json_string_value(json_object_get(row, "name")), width,
                    json_string_value(json_object_get(row, "title")));
        if (json_object_get(row, "capabilities"))
            print_system_lines(row, width + 2);
    }
}

/* `name` is NULL where none was given. */
static const struct topic *find_topic(const char *name, struct mp_error *error) {
    const char *known[TOPICS + 1] = {NULL};
    char all[256] = "";
    for (int i = 0; i < TOPICS; i++) {
        if (name && !strcmp(topics[i].name, name))
            return &topics[i];
        known[i] = topics[i].name;
        mp_text_add(all, sizeof all, ", ", "%s", known[i]);
    }
    if (name)
        mp_fail(error, MP_EINVAL, "can't list \"%.80s\"; it is one of %s%s", name, all,
                mp_meant(name, known).text);
    else
        mp_fail(error, MP_EINVAL, "an argument is missing: what to list, one of %s", all);
    return NULL;
}

static bool json;

static const struct cli_flag known_flags[] = {
    {"--json", CLI_SWITCH, &json, NULL, "prints a JSON array"}, {0}};
static const struct cli_usage usage = {
    "moeperf list TOPIC [--json]",
    "Lists what there is: names for suites, moeperf run, moeperf generate and moeperf\n"
    "show.  The topics:\n" EACH_TOPIC(TOPIC_HELP),
    known_flags,
    0,
    1,
    "  moeperf list systems\n"
    "  moeperf list suites --json\n"};

static int list(const struct cli_call *call, struct mp_error *error) {
    const struct cli_words *words = call->words;
    const struct topic *topic = find_topic(words->count ? words->word[0] : NULL, error);
    if (!topic)
        return MP_EINVAL;
    MP_AUTO(json) json_t *rows = json_array();
    MP_TRY(topic->kind       ? list_kind(call->systems, topic->kind, rows, error)
           : topic->of_files ? list_files(topic->files, rows, error)
                             : list_devices(rows, error));
    if (json)
        return cli_print_json(json_incref(rows), error);
    print_text(rows);
    return MP_OK;
}

const struct cli_command cli_list = {
    "list", "lists systems, workloads, generators, suites, clusters and more", list,
    .usage = &usage};
