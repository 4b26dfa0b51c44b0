/* moeperf list: what there is. */
#include <string.h>

#include "harness/cli/catalog.h"
#include "harness/cli/cli.h"
#include "harness/cli/machine.h"
#include "harness/suite/paths.h"
#include "harness/suite/suite.h"
#include "harness/workload/generate.h"

/* A listing is a JSON array of objects with "name" and "title" at least; its text is two columns,
 * and further lines under the title for what else a system says of itself. */
typedef int list_function(const struct mp_systems *systems, json_t *rows, struct mp_error *error);

static int add_row(json_t *rows, json_t *row, struct mp_error *error) {
    if (!row || json_array_append_new(rows, row))
        return mp_no_memory(error);
    return MP_OK;
}

static int list_systems(const struct mp_systems *systems, json_t *rows, struct mp_error *error) {
    int code = MP_OK;
    for (int i = 0; i < systems->count && !code; i++) {
        const struct mp_system *system = systems->item[i];
        bool yardstick = system->capabilities & MP_SYSTEM_UNATTAINABLE;
        code = add_row(rows,
                       json_pack("{s:s, s:s, s:s, s:o, s:b}", "name", system->name, "title",
                                 system->title, "source", system->source, "capabilities",
                                 cli_pack_capabilities(system->capabilities), "unattainable",
                                 yardstick),
                       error);
    }
    return code;
}

static int add_titled(json_t *rows, const char *name, const char *title, struct mp_error *error) {
    return add_row(rows, json_pack("{s:s, s:s}", "name", name, "title", title), error);
}

static int list_gates(const struct mp_systems *systems, json_t *rows, struct mp_error *error) {
    (void)systems;
    int code = MP_OK;
    for (int i = 0; mp_gate_kinds[i] && !code; i++)
        code = add_titled(rows, mp_gate_kinds[i]->name, mp_gate_kinds[i]->title, error);
    return code;
}

static int list_workloads(const struct mp_systems *systems, json_t *rows, struct mp_error *error) {
    (void)systems;
    int code = MP_OK;
    for (const struct cli_entry *entry = cli_workloads; entry->name && !code; entry++)
        code = add_titled(rows, entry->name, entry->title, error);
    return code;
}

static int list_exchanges(const struct mp_systems *systems, json_t *rows, struct mp_error *error) {
    int code = MP_OK;
    (void)systems;
    for (int kind = 0; kind < MP_EXCHANGE_KINDS && !code; kind++) {
        const struct mp_exchange *exchange = mp_exchange_of((enum mp_exchange_kind)kind);
        code = add_titled(rows, exchange->name, exchange->title, error);
    }
    return code;
}

static int list_generators(const struct mp_systems *systems, json_t *rows, struct mp_error *error) {
    (void)systems;
    int code = MP_OK;
    for (const struct mp_generator *kind = mp_generators; kind->name && !code; kind++)
        code = add_titled(rows, kind->name, kind->title, error);
    return code;
}

/* The own words of a ready-made file about itself.  Only its description is wanted, so a suite's
 * default text that is not there yet does not matter. */
static int list_file(enum mp_ready_made kind, const char *name, json_t *rows,
                     struct mp_error *error) {
    char path[MP_PATH_SIZE];
    struct mp_yaml *document = NULL;
    int code = mp_path_file(kind, name, path, error);
    if (!code)
        code = mp_yaml_load(path, &document, error);
    if (code)
        return code;
    const struct mp_yaml *description = mp_yaml_get(document, "description");
    const char *title = description && description->text ? description->text : "";
    code = add_row(rows, json_pack("{s:s, s:s, s:s}", "name", name, "title", title, "path", path),
                   error);
    mp_yaml_destroy(document);
    return code;
}

static int list_files(enum mp_ready_made kind, json_t *rows, struct mp_error *error) {
    char **names;
    int code = mp_path_names(kind, &names, error);
    if (code)
        return code;
    for (int i = 0; names[i] && !code; i++)
        code = list_file(kind, names[i], rows, error);
    mp_path_names_destroy(names);
    return code;
}

static int list_suites(const struct mp_systems *systems, json_t *rows, struct mp_error *error) {
    (void)systems;
    return list_files(MP_SUITES, rows, error);
}

static int list_clusters(const struct mp_systems *systems, json_t *rows, struct mp_error *error) {
    (void)systems;
    return list_files(MP_CLUSTERS, rows, error);
}

static int list_rules(const struct mp_systems *systems, json_t *rows, struct mp_error *error) {
    (void)systems;
    return list_files(MP_RULES, rows, error);
}

static int list_devices(const struct mp_systems *systems, json_t *rows, struct mp_error *error) {
    (void)systems;
    char library[256], title[640];
    struct cli_machine machine;
    int code = cli_machine_compute(library, sizeof library, error);
    if (code)
        return code;
    cli_machine_read(&machine);
    snprintf(title, sizeof title, "%s, %d cores, %s", machine.processor, machine.cores, library);
    return add_row(rows,
                   json_pack("{s:s, s:s, s:s, s:i, s:s, s:I}", "name", "cpu", "title", title,
                             "processor", machine.processor, "cores", machine.cores, "library",
                             library, "memory_bytes", (json_int_t)machine.memory),
                   error);
}

/* Of each: TOPIC(its name, blanks up to help's next column, what is listed). */
#define EACH_TOPIC(TOPIC)                                                                          \
    TOPIC(systems, "     ", "planners that can be compared")                                       \
    TOPIC(gates, "       ", "what chooses the experts of a token")                                 \
    TOPIC(exchanges, "   ", "ways of tokens' rows to their experts and back")                      \
    TOPIC(workloads, "   ", "where a job's loads come from, as its routing: says")                 \
    TOPIC(generators, "  ", "kinds of computed traces, of moeperf generate")                       \
    TOPIC(suites, "      ", "ready-made comparisons")                                              \
    TOPIC(clusters, "    ", "machines that times are predicted for")                               \
    TOPIC(rules, "       ",                                                                        \
          "which range of an annotated program is which phase, for moeperf record")                \
    TOPIC(devices, "     ", "what this machine computes on")
#define TOPIC_ROW(name, blanks, what) {#name, list_##name},
#define TOPIC_HELP(name, blanks, what) "\n  " #name blanks what

static const struct {
    const char *name;
    list_function *list;
} topics[] = {EACH_TOPIC(TOPIC_ROW)};
enum { TOPICS = sizeof topics / sizeof *topics };

/* Under a system's title: where it comes from, and "replicates experts, drops routes". */
static void print_system_lines(const json_t *row, int indent) {
    char words[512] = "";
    const json_t *capabilities = json_object_get(row, "capabilities");
    for (size_t i = 0; i < json_array_size(capabilities); i++) {
        const struct cli_capability *capability =
            cli_capability_find(json_string_value(json_array_get(capabilities, i)));
        size_t length = strlen(words);
        if (capability->brief)
            snprintf(words + length, sizeof words - length, "%s%s", length > 0 ? ", " : "",
                     capability->brief);
    }
    cli_print_filled(stdout, indent, json_string_value(json_object_get(row, "source")));
    cli_print_filled(stdout, indent, *words ? words : "moves and copies nothing");
}

/* What does not fit behind the name goes on under the title. */
static void print_title(const char *name, int width, const char *title) {
    size_t room = (size_t)(CLI_PAGE_COLUMNS - width - 2), length = strlen(title);
    if (length > room)
        for (length = room; length > 0 && title[length] != ' ';)
            length--;
    length = length ? length : strlen(title); /* no blank to break at */
    cli_print_clean(stdout, name, strlen(name));
    printf("%*s", width - (int)strlen(name) + 2, "");
    cli_print_clean(stdout, title, length);
    putchar('\n');
    cli_print_filled(stdout, width + 2, title + length);
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

static list_function *find_topic(const char *name, struct mp_error *error) {
    const char *known[TOPICS + 1] = {NULL};
    for (int i = 0; i < TOPICS; i++) {
        if (!strcmp(topics[i].name, name))
            return topics[i].list;
        known[i] = topics[i].name;
    }
    char all[256] = "";
    for (int i = 0; i < TOPICS; i++) {
        size_t length = strlen(all);
        snprintf(all + length, sizeof all - length, "%s%s", i > 0 ? ", " : "", known[i]);
    }
    mp_fail(error, MP_EINVAL, "can't list \"%.80s\"; it is one of %s%s", name, all,
            mp_meant(name, known).text);
    return NULL;
}

static int list(const struct mp_systems *systems, int argc, char *argv[], struct mp_error *error) {
    bool json = false;
    struct cli_words words;
    const struct cli_flag table[] = {{"--json", CLI_SWITCH, &json, NULL, "prints a JSON array"},
                                     {0}};
    const struct cli_usage usage = {
        "moeperf list TOPIC [--json]",
        "Lists what there is: names for suites, moeperf run, moeperf generate and moeperf\n"
        "show.  The topics:\n" EACH_TOPIC(TOPIC_HELP),
        table,
        1,
        1,
        "  moeperf list systems\n"
        "  moeperf list suites --json\n"};
    int code = cli_parse(&usage, argc, argv, &words, error);
    if (code)
        return code > 0 ? CLI_SUCCESS : code;
    list_function *topic = find_topic(words.word[0], error);
    if (!topic)
        return MP_EINVAL;
    json_t *rows = json_array();
    code = topic(systems, rows, error);
    if (!code && json)
        return cli_print_json(rows, error);
    if (!code)
        print_text(rows);
    json_decref(rows);
    return code;
}

const struct cli_command cli_list = {
    "list", "lists systems, workloads, generators, suites, clusters and more", list};
