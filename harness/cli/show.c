/* moeperf show: one thing in full. */
#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/trace_file.h"
#include "harness/cluster/cluster.h"
#include "harness/record/recorded_loads.h"
#include "harness/record/rules.h"
#include "harness/reproduce/reproduce.h"
#include "harness/suite/paths.h"
#include "harness/suite/suite.h"
#include "harness/workload/generate.h"
#include "reference/base/characters.h"
#include "reference/base/error.h"
#include "reference/plan/system.h"
#include "results/report/table.h"

/* ---- workloads and capabilities in words ---- */

/* Ends with a row whose name is NULL. */
static const struct workload {
    const char *name;
    const char *title;  /* one line */
    const char *models; /* some sentences */
    const char *use;    /* what to write into a job */
} workloads[] = {
    {"text", "the gate routes real text",
     "The gate chooses, so loads are those of the model as it learns: they move from iteration to "
     "iteration and differ between layers and ranks.",
     "routing: gate"},
    {"balanced", "every expert gets the same number of routes",
     "Replays equal loads in every layer and iteration. The gate still gives the weights, so "
     "gradients stay real. What is left of a system's time when nobody has to wait for a hot "
     "expert.",
     "routing: balanced"},
    {"skewed", "the first few experts get a fixed share of all routes",
     "Replays constant skew: skew-share of the routes spread evenly over the first skew-experts "
     "experts, the rest over the others. Every system meets exactly these loads.",
     "routing: skewed, skew-share: 0.7, skew-experts: 4"},
    {"load", "a given load matrix",
     "Replays a row of routes per source rank and a column per expert, scaled to the routes of an "
     "iteration. No expert can get more than every token, with k experts per token a kth of a "
     "row. Every system meets exactly these loads.",
     "routing: load, load: [[5, 1, 1, 3], [2, 4, 3, 1]]"},
    {"trace", "the loads of a recorded or generated trace",
     "Replays every count of a trace, iteration by iteration, layer by layer and rank by rank; "
     "after its last iteration it begins again. The trace has the job's shape: its layers, experts "
     "and ranks, one micro-batch, and top-k routes of every token. Which token goes where is "
     "arbitrary. Every system meets exactly these loads.",
     "routing: trace, trace: loads.mptrace (or: trace: zipf exponent=1 seed=3)"},
    {0},
};

static const struct cli_capability capabilities[] = {
    {MP_SYSTEM_REPLICATES, "replicates experts",
     "Experts may be on other ranks than their owner's too, for an iteration or for longer."},
    {MP_SYSTEM_DROPS, "drops routes",
     "Routes may be dropped: what they would have taught is not learnt, so losses differ from "
     "those of other systems. Tables show the share beside the speed-up."},
    {MP_SYSTEM_CHANGES_GATE, "may change the gate",
     "With some of its options tokens go to other experts than the gate chose; losses then differ "
     "from those of other systems."},
    {MP_SYSTEM_MOVES_OWNERS, "moves experts",
     "Where experts are kept between iterations changes during training."},
    {MP_SYSTEM_PLANS_BEFORE_GATE, NULL,
     "It decides something before a layer's loads are known, as what is copied during attention."},
    {MP_SYSTEM_UNEVEN_EXPERTS, NULL, "Works when experts can't be divided evenly over ranks."},
    {MP_SYSTEM_MORE_RANKS, NULL, "Works with more ranks than experts."},
    {MP_SYSTEM_UNATTAINABLE, "a yardstick, no system",
     "For comparison. Tables call it unattainable. What it does at no cost takes time on every "
     "machine."},
    {MP_SYSTEM_USES_TRANSITIONS, NULL,
     "It looks at how tokens go from an expert of one layer to an expert of the next."},
};
enum { CAPABILITIES = MP_LENGTH(capabilities) };

const struct cli_capability *cli_capability_find(const char *name) {
    const struct cli_capability *found = capabilities;
    while (strcmp(mp_system_capability_name(found->bit), name) != 0)
        found++;
    return found;
}

/* Array of the names of all bits that are set; NULL: no memory. */
static json_t *pack_capabilities(unsigned set) {
    json_t *names = json_array();
    for (int i = 0; i < CAPABILITIES; i++)
        if (set & capabilities[i].bit)
            json_array_append_new(names,
                                  json_string(mp_system_capability_name(capabilities[i].bit)));
    return names;
}

enum { INDENT = 2, KNOWN_LIMIT = 256 };

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

/* ---- what is built in ---- */

/* Options as an array of {name, accepts, unit, default, help}, with "options" of what is inside. */
static json_t *pack_options(const struct mp_option table[]) {
    char accepts[512];
    json_t *rows = json_array();
    for (const struct mp_option *option = table; option && option->name; option++) {
        const struct mp_option *inside = mp_options_inside(option);
        if (!*option->name)
            continue;
        mp_options_describe(option, accepts, sizeof accepts);
        json_array_append_new(
            rows, json_pack("{s:s, s:s, s:s, s:s?, s:s, s:o*}", "name", option->name, "accepts",
                            accepts, "unit", option->unit, "default", option->default_value, "help",
                            option->help, "options", inside ? pack_options(inside) : NULL));
    }
    return rows;
}

/* use: NULL: nothing is said of it. */
static json_t *pack_entry(const char *kind, const char *name, const char *title, const char *source,
                          const char *models, const char *use) {
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s*}", "kind", kind, "name", name, "title", title,
                     "source", source, "models", models, "use", use);
}

static json_t *pack_system(const struct mp_system *system) {
    json_t *object =
        pack_entry("system", system->name, system->title, system->source, system->models, NULL);
    json_object_set_new(object, "capabilities", pack_capabilities(system->capabilities));
    json_object_set_new(object, "unattainable",
                        json_boolean(system->capabilities & MP_SYSTEM_UNATTAINABLE));
    json_object_set_new(object, "options", pack_options(system->options));
    return object;
}

static json_t *pack_gate(const struct mp_gate_kind *gate) {
    const bool chooses = gate->least < gate->most;
    json_t *object = pack_entry("gate", gate->name, gate->title, gate->source, gate->models, NULL);
    json_object_set_new(
        object, "top_k",
        chooses ? json_sprintf("%d to %d, usually %d", gate->least, gate->most, gate->usual)
                : json_sprintf("%d", gate->most));
    json_object_set_new(object, "use",
                        chooses ? json_sprintf("gate: %s, top-k: %d", gate->name, gate->usual)
                                : json_sprintf("gate: %s", gate->name));
    json_object_set_new(object, "options", pack_options(gate->options));
    return object;
}

static json_t *pack_generator(const struct mp_generator *kind) {
    json_t *object =
        pack_entry("generator", kind->name, kind->title, kind->source, kind->models, NULL);
    json_object_set_new(object, "options", pack_options(kind->options));
    json_object_set_new(object, "common_options", pack_options(mp_generate_options));
    return object;
}

static json_t *pack_text(const char *kind, const char *name, const char *text) {
    return json_pack("{s:s, s:s, s:s}", "kind", kind, "name", name, "text", text);
}

/* "  window: default 5 iterations; a number 1 .. 1000 iterations", on two lines if it is long. */
static void print_option_head(int indent, const json_t *row) {
    char value[1024];
    const char *accepts = text_of(row, "accepts"), *text = text_of(row, "default");
    const char *unit = text_of(row, "unit");
    if (!text)
        snprintf(value, sizeof value, "must be given");
    else if (!*text)
        snprintf(value, sizeof value, "empty by default");
    else
        snprintf(value, sizeof value, "default %s%s%s", text, *unit ? " " : "", unit);
    int length = printf("%*s%s: %s;", indent, "", text_of(row, "name"), value);
    if (length + 1 + (int)strlen(accepts) <= table_width(stdout)) {
        printf(" %s\n", accepts);
        return;
    }
    putchar('\n');
    table_filled(stdout, 0, indent + INDENT, accepts);
}

static void print_rows(int indent, const json_t *rows) {
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        print_option_head(indent, row);
        table_filled(stdout, 0, indent + INDENT, text_of(row, "help"));
        print_rows(indent + INDENT, json_object_get(row, "options"));
    }
}

static void print_options(const json_t *object, const char *heading) {
    const json_t *rows = json_object_get(object, "options");
    putchar('\n');
    table_paragraph(stdout, "%s", json_array_size(rows) > 0 ? heading : "no options");
    print_rows(INDENT, rows);
}

/* What all of these have: members as headed paragraphs, empty ones left out.  Systems say first
 * what of their source they model, then what they don't. */
static void print_entry(const json_t *object) {
    static const char *const members[] = {"source", "models", "use"};
    const bool is_system = json_object_get(object, "capabilities");
    char heading[512];
    snprintf(heading, sizeof heading, "%s: %s", text_of(object, "name"), text_of(object, "title"));
    table_filled(stdout, INDENT, INDENT, heading);
    for (size_t i = 0; i < MP_LENGTH(members); i++) {
        const char *text = text_of(object, members[i]);
        if (!text || !*text)
            continue;
        const char *rest = is_system ? strstr(text, "Not modelled:") : NULL;
        char *first = rest ? strndup(text, (size_t)(rest - text)) : NULL;
        printf("\n%s\n", members[i]);
        table_filled(stdout, 0, INDENT, first ? first : text);
        if (first)
            table_filled(stdout, 0, INDENT, rest);
        free(first);
    }
}

static void print_system(const json_t *object) {
    const json_t *names = json_object_get(object, "capabilities");
    size_t i;
    json_t *name;
    print_entry(object);
    puts("\ncapabilities");
    if (json_array_size(names) == 0)
        printf("%*snone: experts stay where they are and compute every route\n", INDENT, "");
    json_array_foreach(names, i, name) {
        printf("%*s%s\n", INDENT, "", json_string_value(name));
        table_filled(stdout, 0, 2 * INDENT, cli_capability_find(json_string_value(name))->words);
    }
    print_options(object, "options (in a job: options: {key: value}; for a suite: --set "
                          "options.key=value)");
}

static void print_gate(const json_t *object) {
    print_entry(object);
    printf("\nexperts of a token: %s\n", text_of(object, "top_k"));
    print_options(object, "options (in a job: gate-options: {key: value}; for a suite: "
                          "--set gate-options.key=value)");
}

static void print_table(const json_t *object) {
    print_entry(object);
    print_options(object, "options");
}

static void print_generator(const json_t *object) {
    const json_t *options = json_object_get(object, "options");
    print_entry(object);
    printf("\noptions (moeperf generate %s -o FILE --key value)\n", text_of(object, "name"));
    if (json_array_size(options) == 0)
        printf("%*snone of its own\n", INDENT, "");
    print_rows(INDENT, options);
    puts("\noptions of all generators");
    print_rows(INDENT, json_object_get(object, "common_options"));
}

static void print_member(const char *before, const json_t *object, const char *key) {
    const json_t *member = json_object_get(object, key);
    fputs(before, stdout);
    cli_print_clean(stdout, json_string_value(member), json_string_length(member));
}

/* A file as it stands: its comments say what its options can't. */
static json_t *pack_file(const char *kind, const char *name, const char *path,
                         struct mp_error *error) {
    char *text;
    size_t size;
    if (mp_yaml_read_file(path, &text, &size, error))
        return NULL;
    const bool is_empty = strspn(text, " \t\r\n") == size;
    json_t *object = is_empty || strlen(text) < size
                         ? NULL
                         : json_pack("{s:s, s:s, s:s, s:s}", "kind", kind, "name", name, "path",
                                     path, "text", text);
    free(text);
    if (!object)
        mp_fail(error, MP_EFORMAT, "%s: %s", path,
                is_empty ? "is empty; it should be a suite, job, cluster or rules (moeperf show "
                           "suite, job, cluster and rules say what these may say)"
                         : "is no text in UTF-8 (moeperf report prints what a database has)");
    return object;
}

static void print_file(const json_t *object) {
    print_member("# ", object, "path");
    putchar('\n');
    for (const char *at = text_of(object, "text"); *at;) {
        size_t length = strcspn(at, "\n\t");
        cli_print_clean(stdout, at, length);
        at += length;
        if (*at)
            putchar(*at++);
    }
}

/* A file with a device or links is a cluster's; what can't be read as YAML is shown like a suite.
 */
static bool is_cluster(const char *path) {
    struct mp_yaml *document = NULL;
    mp_yaml_load(path, &document, NULL);
    bool found = document && document->kind == MP_YAML_MAPPING &&
                 (mp_yaml_get(document, "device") || mp_yaml_get(document, "levels"));
    mp_yaml_destroy(document);
    return found;
}

static void print_grammar(const json_t *object) {
    fputs(text_of(object, "text"), stdout);
}

/* ---- clusters ---- */

/* The tables of the two directions; the second one only where a file gives it. */
static const struct {
    const char *place, *heading;
} efficiency_tables[] = {
    {"device.efficiency.share.", "share of the peak that a matrix product reaches"},
    {"device.efficiency.backward.", "the same of products that give gradients"},
};

static void pack_quantity(void *context, const char *place, const char *unit,
                          const struct mp_quantity *quantity) {
    json_t *value = quantity->word ? json_string(quantity->word) : json_real(quantity->value);
    json_array_append_new(context,
                          json_pack("{s:s, s:o, s:s, s:s, s:i}", "place", place, "value", value,
                                    "unit", unit, quantity->assumed ? "assumed" : "source",
                                    quantity->origin, "line", quantity->line));
}

static json_t *pack_numbers(const double number[], int count) {
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_real(number[i]));
    return list;
}

/* A cluster's file as an object of kind "cluster": name, title, path, device, `quantities` as an
 * array of {place, value, unit, source or assumed, line}, and `tokens` and `width` of the
 * efficiency table.  NULL with an error. */
static json_t *pack_cluster(const char *name, const char *path, struct mp_error *error) {
    struct mp_cluster *cluster;
    if (mp_cluster_load(path, &cluster, error))
        return NULL;
    const struct mp_cluster_efficiency *table = &cluster->efficiency;
    json_t *quantities = json_array();
    mp_cluster_each(cluster, pack_quantity, quantities);
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "kind", "cluster", "name", name,
                  "title", cluster->description, "path", path, "device", cluster->device,
                  "quantities", quantities, "tokens", pack_numbers(table->tokens, table->rows),
                  "width", pack_numbers(table->width, table->columns));
    mp_cluster_destroy(cluster);
    if (!object)
        mp_fail(error, MP_ENOMEM, "%s: no memory to show the cluster", path);
    return object;
}

/* "12.5 GB/s", "5 us", "4": seconds get smaller units, everything else larger ones. */
static void format_value(const json_t *row, char *text, size_t size) {
    static const char larger[] = " kMGTPE";
    static const char *const smaller[] = {"s", "ms", "us", "ns"};
    const char *unit = text_of(row, "unit");
    const json_t *value = json_object_get(row, "value");
    double number = json_number_value(value);
    int steps = 0;
    if (json_is_string(value)) {
        mp_clean_text(text, size, json_string_value(value));
    } else if (!*unit) {
        snprintf(text, size, "%.10g", number);
    } else if (!strcmp(unit, "s")) {
        for (; number > 0 && number < 0.9999999 && steps < 3; steps++)
            number *= 1000;
        snprintf(text, size, "%.6g %s", number, smaller[steps]);
    } else {
        for (; number >= 1000 && steps < 6; steps++)
            number /= 1000;
        snprintf(text, size, "%.6g %.*s%s", number, steps > 0, &larger[steps], unit);
    }
}

static void print_origin(const json_t *row, int indent) {
    char text[1024];
    const char *source = text_of(row, "source");
    const char *assumed = text_of(row, "assumed");
    snprintf(text, sizeof text, "%s%s", source ? "" : "assumed: ", source ? source : assumed);
    table_filled(stdout, 0, indent, text);
}

static bool is_of(const json_t *row, const char *table) {
    const char *place = text_of(row, "place");
    return !strncmp(place, table, strlen(table));
}

/* The number of a table entry's origin among `origins`, in the order of first use. */
static int number_origin(json_t *origins, const json_t *row) {
    size_t i;
    const json_t *origin;
    json_t *own = json_pack("{s:O*, s:O*}", "source", json_object_get(row, "source"), "assumed",
                            json_object_get(row, "assumed"));
    json_array_foreach(origins, i, origin) {
        if (json_equal(origin, own))
            break;
    }
    if (i == json_array_size(origins))
        json_array_append(origins, own);
    json_decref(own);
    return (int)i;
}

static void print_table_origins(const json_t *origins) {
    size_t i;
    json_t *row;
    json_array_foreach(origins, i, row) {
        if (i > 0)
            printf("  [%zu]\n", i);
        print_origin(row, 4);
    }
}

/* A table, if it is there; [n] behind a share refers to the origins below it. */
static void print_shares(const json_t *object, const char *place, const char *heading) {
    const json_t *rows = json_object_get(object, "quantities");
    const json_t *tokens = json_object_get(object, "tokens");
    const json_t *widths = json_object_get(object, "width");
    const size_t columns = json_array_size(widths), count = columns * json_array_size(tokens);
    struct table_column column[1 + MP_CLUSTER_POINTS] = {{"", .kind = TABLE_RIGHT}};
    char header[MP_CLUSTER_POINTS][16];
    struct table table;
    const size_t first = MP_PLACE(i, json_array_size(rows), is_of(json_array_get(rows, i), place));
    if (first == json_array_size(rows))
        return;
    for (size_t c = 0; c < columns; c++) {
        snprintf(header[c], sizeof header[c], "%g", json_number_value(json_array_get(widths, c)));
        column[1 + c] = (struct table_column){header[c], .kind = TABLE_RIGHT};
    }
    table = table_of(column, 1 + (int)columns);
    json_t *origins = json_array();
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(rows, first + i);
        const double share = json_number_value(json_object_get(row, "value"));
        if (i % columns == 0) {
            if (table_add(&table, NULL, NULL))
                break;
            table_set(&table, 0, "%g", json_number_value(json_array_get(tokens, i / columns)));
        }
        int number = number_origin(origins, row);
        table_set(&table, 1 + (int)(i % columns), number ? "%.3g[%d]" : "%.3g", share, number);
    }
    putchar('\n');
    table_paragraph(stdout, "%s", heading);
    puts("  tokens of an expert by width");
    table_print(&table, stdout);
    table_free(&table);
    print_table_origins(origins);
    json_decref(origins);
}

/* The same for people, at most a page wide. */
static void print_cluster(const json_t *object) {
    size_t i;
    json_t *row;
    char value[128];
    const char *part = "";
    table_paragraph(stdout, "%s: %s", text_of(object, "name"), text_of(object, "title"));
    print_member("file: ", object, "path");
    print_member("\n\ndevice ", object, "device");
    putchar('\n');
    json_array_foreach(json_object_get(object, "quantities"), i, row) {
        const char *place = text_of(row, "place");
        if (is_of(row, "device.efficiency."))
            continue;
        if (!strncmp(place, "levels.", 7) && strncmp(part, "levels.", 7) != 0)
            puts("\nlinks");
        part = place;
        format_value(row, value, sizeof value);
        printf("  %s: %s\n", place, value);
        print_origin(row, 4);
    }
    for (size_t table = 0; table < MP_LENGTH(efficiency_tables); table++)
        print_shares(object, efficiency_tables[table].place, efficiency_tables[table].heading);
}

/* What lies in files of its own, but for the manual. */
enum { KINDS = MP_MANUAL };
static const char *const ready_made[KINDS] = {
    [MP_SUITES] = "suite", [MP_CLUSTERS] = "cluster", [MP_RULES] = "rules"};

static json_t *pack_ready_made(int kind, const char *name, struct mp_error *error) {
    char path[MP_PATH_SIZE];
    if (mp_path_file((enum mp_ready_made)kind, name, path, error))
        return NULL;
    return kind == MP_CLUSTERS ? pack_cluster(name, path, error)
                               : pack_file(ready_made[kind], name, path, error);
}

/* What files may say. */
static const struct {
    const char *name, *title;
    const struct mp_option *table;
} tables[] = {
    {"job",
     "what a job of a suite, or a job file, may say; beside these options: {...} of its system and "
     "gate-options: {...} of its gate (moeperf show fssdp, moeperf show gshard); in a suite also "
     "text: default, and executor: predicted with what moeperf show predict says",
     mp_job_options},
    {"predict",
     "what predict: of a predicted job may say (--set predict.KEY=VALUE); beside a job's options "
     "it has executor: predicted, cluster, change (nodes=2), loads and fit",
     mp_predict_options_table},
    {"suite",
     "what a suite may say; moeperf show quickstart > mine.yaml makes one to begin with, which "
     "moeperf run mine.yaml runs",
     mp_suite_options},
    {"cluster",
     "what a cluster's file may say, each number as {value: 8, source: \"whose\"} or {value: 8, "
     "assumed: \"why\"}; moeperf show h100 says which file to begin with",
     mp_cluster_rows},
    {"paper", "what a paper's file, for moeperf reproduce, may say", mp_reproduction_rows}};

json_t *cli_catalog(const struct mp_systems *systems) {
    json_t *all = json_array();
    for (int i = 0; i < systems->count; i++)
        json_array_append_new(all, pack_system(systems->item[i]));
    for (int i = 0; mp_gate_kinds[i]; i++)
        json_array_append_new(all, pack_gate(mp_gate_kinds[i]));
    for (const struct workload *workload = workloads; workload->name; workload++)
        json_array_append_new(all, pack_entry("workload", workload->name, workload->title, "",
                                              workload->models, workload->use));
    for (int kind = 0; kind < MP_EXCHANGE_KINDS; kind++) {
        const struct mp_exchange *exchange = mp_exchange_of((enum mp_exchange_kind)kind);
        json_array_append_new(all, pack_entry("exchange", exchange->name, exchange->title,
                                              exchange->source, exchange->models, exchange->use));
    }
    for (const struct mp_generator *kind = mp_generators; kind->name; kind++)
        json_array_append_new(all, pack_generator(kind));
    for (size_t i = 0; i < MP_LENGTH(tables); i++)
        json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:o}", "kind", "options", "name",
                                             tables[i].name, "title", tables[i].title, "options",
                                             pack_options(tables[i].table)));
    json_array_append_new(all, pack_text("grammar", "rules", mp_rules_grammar));
    json_array_append_new(all, pack_text("hook", MP_RECORD_HOOK, mp_record_hook));
    return all;
}

/* Without a folder of what lies in files the rest can still be shown. */
static int fail_unknown(const json_t *catalog, const char *name, struct mp_error *error) {
    const char *known[KNOWN_LIMIT + 1];
    char **names[KINDS] = {NULL};
    struct mp_error missing = {0};
    int count = 0;
    for (; count < (int)json_array_size(catalog) && count < KNOWN_LIMIT; count++)
        known[count] =
            json_string_value(json_object_get(json_array_get(catalog, (size_t)count), "name"));
    for (int kind = 0; kind < KINDS; kind++) {
        mp_path_names((enum mp_ready_made)kind, &names[kind], &missing);
        for (char **file = names[kind]; file && *file && count < KNOWN_LIMIT; file++)
            known[count++] = *file;
    }
    known[count] = NULL;
    const struct mp_meant meant = mp_meant(name, known);
    for (int kind = 0; kind < KINDS; kind++)
        mp_path_names_destroy(names[kind]);
    mp_fail(error, MP_ENOTFOUND, "nothing is called \"%.80s\"%s", name,
            *meant.text ? meant.text
                        : "; moeperf list systems, gates, exchanges, workloads, generators, "
                          "suites, clusters and rules name what there is");
    return missing.code ? mp_error_prefix(error, "%.300s", missing.text) : error->code;
}

/* What is built in has the name first; others and files of the same name come with it. */
static int find_among(const json_t *catalog, const char *name, json_t **object,
                      struct mp_error *error) {
    char path[MP_PATH_SIZE];
    size_t i;
    json_t *entry;
    json_array_foreach(catalog, i, entry) {
        if (strcmp(text_of(entry, "name"), name) != 0)
            continue;
        if (*object)
            json_object_set(*object, text_of(entry, "kind"), entry);
        else
            *object = json_incref(entry);
    }
    if (!*object && (strchr(name, '/') || strstr(name, ".yaml"))) {
        if (!strstr(name, ".yaml") && !access(name, F_OK)) /* whoever asked says what is right */
            return mp_fail(error, MP_ENOTFOUND, "%.300s: its name does not end in .yaml", name);
        *object = pack_ready_made(is_cluster(name) ? MP_CLUSTERS : MP_SUITES, name, error);
        return error->code;
    }
    for (int kind = 0; kind < KINDS && !error->code; kind++) {
        if (mp_path_file((enum mp_ready_made)kind, name, path, NULL))
            continue;
        json_t *file = pack_ready_made(kind, name, error);
        if (*object)
            json_object_set_new(*object, ready_made[kind], file);
        else
            *object = file;
    }
    return *object || error->code ? error->code : fail_unknown(catalog, name, error);
}

int cli_find(const struct mp_systems *systems, const char *name, json_t **object,
             struct mp_error *error) {
    json_t *catalog = cli_catalog(systems);
    *object = NULL;
    int code = catalog ? find_among(catalog, name, object, error) : mp_no_memory(error);
    json_decref(catalog);
    if (code) {
        json_decref(*object);
        *object = NULL;
    }
    return code;
}

/* The thing, then what others of its name are inside of it. */
static void print_text(const json_t *object) {
    static const struct {
        const char *kind;
        void (*print)(const json_t *object);
    } kinds[] = {
        {"system", print_system},   {"gate", print_gate},           {"exchange", print_entry},
        {"workload", print_entry},  {"generator", print_generator}, {"options", print_table},
        {"grammar", print_grammar}, {"hook", print_grammar},        {"suite", print_file},
        {"cluster", print_cluster}, {"rules", print_file}};
    enum { PRINTED = MP_LENGTH(kinds) };
    for (int i = 0; i < PRINTED; i++)
        if (!strcmp(text_of(object, "kind"), kinds[i].kind))
            kinds[i].print(object);
    for (int i = 0; i < PRINTED; i++) {
        const json_t *other = json_object_get(object, kinds[i].kind);
        if (!json_object_get(other, "kind")) /* there is none, or it is a member of another kind */
            continue;
        printf("\n%s of the same name\n", kinds[i].kind);
        kinds[i].print(other);
    }
}

static bool json;
static struct mp_page_output page;

static const struct cli_flag known_flags[] = {
    {"--json", CLI_SWITCH, &json, NULL, "prints a JSON object"},
    {"--html", CLI_VALUE, &page.html, "PAGE",
     "of a trace: writes one self-contained HTML file with heat\n"
     "maps instead"},
    {"--figures", CLI_VALUE, &page.figures, "FOLDER", "of a trace: " CLI_FIGURES_HELP},
    {0}};
static const struct cli_usage usage = {
    "moeperf show NAME [options]",
    "Shows a system, gate, exchange, workload, generator, suite, cluster or rules in full:\n"
    "options with defaults, ranges and units, source, what it models; a cluster's numbers\n"
    "with where they come from.  `job`, `suite`, `cluster`, `rules` and `paper` show what\n"
    "files may say, `" MP_RECORD_HOOK "` is a program that counts tokens per expert in\n"
    "PyTorch.  Of a trace, FILE.mptrace, it shows how uneven its loads are and how fast\n"
    "they change.",
    known_flags,
    1,
    1,
    "  moeperf show fssdp\n"
    "  moeperf show dynamics\n"
    "  moeperf show job\n"
    "  moeperf show quickstart\n"
    "  moeperf show hecate-a\n"
    "  moeperf show megatron-lm\n"
    "  moeperf generate dynamics -o d.mptrace --iterations 30 && moeperf show d.mptrace\n"};

static int show(const struct cli_call *call, struct mp_error *error) {
    json_t *object;
    const char *name = call->words->word[0];
    const char *draws = page.html ? "--html" : page.figures ? "--figures" : NULL;
    if (draws && json)
        return mp_fail(error, MP_EINVAL, "%s draws; --json does not go with it", draws);
    if (cli_is_trace(name))
        return cli_show_trace(name, json, &page, error);
    if (draws)
        return mp_fail(error, MP_EINVAL, "%s is for traces, FILE.mptrace", draws);
    struct mp_error unknown = {0};
    const int code = cli_find(call->systems, name, &object, &unknown);
    if (code == MP_ENOTFOUND && !access(name, F_OK))
        return mp_fail(error, MP_EINVAL,
                       "%.300s: of files those are shown whose names end in .mptrace (loads) or "
                       ".yaml (suites, clusters, rules); moeperf report --db shows databases, "
                       "moeperf import reads what other tools recorded",
                       name);
    if (code)
        return mp_fail(error, code, "%s", unknown.text);
    if (json)
        return cli_print_json(object, error);
    print_text(object);
    json_decref(object);
    return MP_OK;
}

const struct cli_command cli_show = {
    "show", "shows a system, workload, generator, suite, trace and more", show, .usage = &usage};
