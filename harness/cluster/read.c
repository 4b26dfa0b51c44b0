/* Reading a cluster's file: every number with its origin, every fault with its line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cluster/fields.h"
#include "profiler/record/record.h"
#include "reference/plan/option.h"

enum { KEYS = 16 }; /* a mapping's known keys, at most */

static int fail_kind(const struct mp_cluster *cluster, const struct mp_yaml *value,
                     const char *name, const char *right, struct mp_error *error) {
    return mp_fail(error, MP_EINVAL, "%s:%d: %s: should be %s", cluster->file, value->line, name,
                   right);
}

/* `value` must be a mapping whose keys are all known: `words`, then the fields' names. */
static int check_keys(const struct mp_cluster *cluster, const struct mp_yaml *value,
                      const char *name, const char *const words[],
                      const struct mp_cluster_field fields[], struct mp_error *error) {
    const char *known[KEYS + 1];
    int count = 0;
    for (; *words; words++)
        known[count++] = *words;
    for (; fields && fields->name; fields++)
        known[count++] = fields->name;
    known[count] = NULL;
    if (value->kind != MP_YAML_MAPPING)
        return fail_kind(cluster, value, name, "a mapping of keys and values", error);
    for (int i = 0; i < value->count; i++) {
        int at = 0;
        while (at < count && strcmp(known[at], value->key[i]) != 0)
            at++;
        if (at < count)
            continue;
        return mp_fail(error, MP_EINVAL, "%s:%d: %s: unknown key \"%.80s\"%s", cluster->file,
                       value->key_line[i], name, value->key[i],
                       mp_meant(value->key[i], known).text);
    }
    return MP_OK;
}

static int find_key(const struct mp_cluster *cluster, const struct mp_yaml *mapping,
                    const char *name, const char *key, const struct mp_yaml **value,
                    struct mp_error *error) {
    *value = mp_yaml_get(mapping, key);
    if (*value)
        return MP_OK;
    return mp_fail(error, MP_EINVAL, "%s:%d: %s: %s is not given", cluster->file, mapping->line,
                   name, key);
}

static int read_text(const struct mp_cluster *cluster, const struct mp_yaml *mapping,
                     const char *name, const char *key, const char **text, struct mp_error *error) {
    const struct mp_yaml *value;
    if (find_key(cluster, mapping, name, key, &value, error))
        return MP_EINVAL;
    if (value->kind != MP_YAML_SCALAR || !*value->text)
        return fail_kind(cluster, value, key, "a text", error);
    *text = value->text;
    return MP_OK;
}

/* The value itself; where it comes from is already known. */
static int read_value(const struct mp_cluster *cluster, const struct mp_yaml *scalar,
                      const char *name, const struct mp_cluster_field *field,
                      struct mp_quantity *quantity, struct mp_error *error) {
    char where[512];
    struct mp_option option[2] = {{.name = name,
                                   .type = field->choices ? MP_OPTION_CHOICE : MP_OPTION_DOUBLE,
                                   .offset = field->choices ? offsetof(struct mp_quantity, choice)
                                                            : offsetof(struct mp_quantity, value),
                                   .unit = field->unit,
                                   .minimum = field->minimum,
                                   .maximum = field->maximum,
                                   .choices = field->choices,
                                   .help = name}};
    if (scalar->kind != MP_YAML_SCALAR)
        return fail_kind(cluster, scalar, name, "a single value", error);
    snprintf(where, sizeof where, "%.480s:%d", cluster->file, scalar->line);
    if (mp_options_set(option, quantity, "a cluster", name, scalar->text, where, error))
        return MP_EINVAL;
    if (field->whole && quantity->value != floor(quantity->value))
        return mp_fail(error, MP_EINVAL, "%s:%d: %s: %.80s is not a whole number", cluster->file,
                       scalar->line, name, scalar->text);
    quantity->line = scalar->line;
    quantity->word = field->choices ? scalar->text : NULL;
    return MP_OK;
}

/* Exactly one of `source` and `assumed`. */
static int read_origin(const struct mp_cluster *cluster, const struct mp_yaml *mapping,
                       const char *name, struct mp_quantity *quantity, struct mp_error *error) {
    const struct mp_yaml *source = mp_yaml_get(mapping, "source");
    const struct mp_yaml *assumed = mp_yaml_get(mapping, "assumed");
    if (!source == !assumed)
        return mp_fail(error, MP_EINVAL,
                       "%s:%d: %s: has %s; give source: whose number it is, or assumed: why",
                       cluster->file, mapping->line, name,
                       source ? "both source and assumed" : "neither source nor assumed");
    quantity->assumed = assumed;
    return read_text(cluster, mapping, name, source ? "source" : "assumed", &quantity->origin,
                     error);
}

/* {value: 12.5e9, source: "..."} or {value: 12.5e9, assumed: "..."}. */
static int read_quantity(const struct mp_cluster *cluster, const struct mp_yaml *value,
                         const char *name, const struct mp_cluster_field *field,
                         struct mp_quantity *quantity, struct mp_error *error) {
    static const char *const words[] = {"value", "source", "assumed", NULL};
    const struct mp_yaml *scalar;
    if (value->kind != MP_YAML_MAPPING)
        return fail_kind(cluster, value, name,
                         "{value: ..., source: \"whose\"} or {value: ..., assumed: \"why\"}",
                         error);
    int code = check_keys(cluster, value, name, words, NULL, error);
    if (!code)
        code = find_key(cluster, value, name, "value", &scalar, error);
    if (!code)
        code = read_value(cluster, scalar, name, field, quantity, error);
    return code ? code : read_origin(cluster, value, name, quantity, error);
}

/* The fields of the mapping; those that are not optional must be there. */
static int read_fields(const struct mp_cluster *cluster, const struct mp_yaml *mapping,
                       const char *name, const struct mp_cluster_field fields[], void *object,
                       struct mp_error *error) {
    const struct mp_yaml *value;
    for (; fields->name; fields++) {
        if (fields->optional && !mp_yaml_get(mapping, fields->name))
            continue;
        if (find_key(cluster, mapping, name, fields->name, &value, error) ||
            read_quantity(cluster, value, fields->name, fields, mp_cluster_field_of(object, fields),
                          error))
            return MP_EINVAL;
    }
    return MP_OK;
}

/* The token counts or widths of the table: ascending numbers. */
static int read_axis(const struct mp_cluster *cluster, const struct mp_yaml *table,
                     const char *name, double points[], int *count, struct mp_error *error) {
    static const struct mp_cluster_field field = {.unit = "", .minimum = 1, .maximum = 1e9};
    const struct mp_yaml *list;
    if (find_key(cluster, table, "efficiency", name, &list, error))
        return MP_EINVAL;
    if (list->kind != MP_YAML_SEQUENCE || list->count < 1 || list->count > MP_CLUSTER_POINTS)
        return fail_kind(cluster, list, name, "a list of 1 to 32 ascending numbers", error);
    for (int i = 0; i < list->count; i++) {
        struct mp_quantity point = {0};
        int code = read_value(cluster, list->item[i], name, &field, &point, error);
        if (code)
            return code;
        points[i] = point.value;
        if (i > 0 && points[i] <= points[i - 1])
            return mp_fail(error, MP_EINVAL, "%s:%d: %s: %g follows %g; they should ascend",
                           cluster->file, list->item[i]->line, name, points[i], points[i - 1]);
    }
    *count = list->count;
    return MP_OK;
}

static int read_shares(struct mp_cluster *cluster, int direction, const struct mp_yaml *rows,
                       const struct mp_quantity *common, struct mp_error *error) {
    const struct mp_cluster_field *field = &mp_cluster_share_fields[direction];
    struct mp_cluster_efficiency *table = &cluster->efficiency;
    if (rows->kind != MP_YAML_SEQUENCE || rows->count != table->rows)
        return mp_fail(error, MP_EINVAL,
                       "%s:%d: %s: should be a list of %d lists, one per token count",
                       cluster->file, rows->line, field->name, table->rows);
    for (int i = 0; i < table->rows; i++) {
        const struct mp_yaml *row = rows->item[i];
        if (row->kind != MP_YAML_SEQUENCE || row->count != table->columns)
            return mp_fail(error, MP_EINVAL,
                           "%s:%d: %s: should be a list of %d numbers, one per width",
                           cluster->file, row->line, field->name, table->columns);
        for (int j = 0; j < table->columns; j++) {
            struct mp_quantity *share = &table->share[direction][i][j];
            *share = *common;
            int code = row->item[j]->kind == MP_YAML_MAPPING
                           ? read_quantity(cluster, row->item[j], field->name, field, share, error)
                           : read_value(cluster, row->item[j], field->name, field, share, error);
            if (code)
                return code;
        }
    }
    return MP_OK;
}

static int read_efficiency(struct mp_cluster *cluster, const struct mp_yaml *value,
                           struct mp_error *error) {
    static const char *const words[] = {"tokens", "width",   "share", "backward",
                                        "source", "assumed", NULL};
    struct mp_cluster_efficiency *table = &cluster->efficiency;
    struct mp_quantity common = {0};
    const struct mp_yaml *rows;
    int code = check_keys(cluster, value, "efficiency", words, NULL, error);
    if (!code)
        code = read_axis(cluster, value, "tokens", table->tokens, &table->rows, error);
    if (!code)
        code = read_axis(cluster, value, "width", table->width, &table->columns, error);
    if (!code)
        code = read_origin(cluster, value, "efficiency", &common, error);
    if (!code)
        code = find_key(cluster, value, "efficiency", "share", &rows, error);
    if (!code)
        code = read_shares(cluster, MP_FORWARD, rows, &common, error);
    const struct mp_yaml *backward = mp_yaml_get(value, "backward");
    table->directions = backward ? 2 : 1;
    if (!code && backward)
        code = read_shares(cluster, MP_BACKWARD, backward, &common, error);
    return code;
}

static int read_device(struct mp_cluster *cluster, const struct mp_yaml *value,
                       struct mp_error *error) {
    static const char *const words[] = {"name", "peak", "efficiency", NULL};
    static const char *const none[] = {NULL};
    const struct mp_yaml *peak, *efficiency;
    int code = check_keys(cluster, value, "device", words, mp_cluster_device_fields, error);
    if (!code)
        code = read_text(cluster, value, "device", "name", &cluster->device, error);
    if (!code)
        code = find_key(cluster, value, "device", "peak", &peak, error);
    if (!code)
        code = check_keys(cluster, peak, "peak", none, mp_cluster_peak_fields, error);
    if (!code && peak->count == 0)
        code = fail_kind(cluster, peak, "peak", "operations/s of at least one precision", error);
    if (!code)
        code = read_fields(cluster, peak, "peak", mp_cluster_peak_fields, cluster, error);
    if (code)
        return code;
    cluster->peak_line = peak->line;
    code = read_fields(cluster, value, "device", mp_cluster_device_fields, cluster, error);
    if (!code)
        code = find_key(cluster, value, "device", "efficiency", &efficiency, error);
    return code ? code : read_efficiency(cluster, efficiency, error);
}

/* The ranks that the level's name says or its key `ranks` gives. */
static int read_span(const struct mp_cluster *cluster, const struct mp_yaml *value,
                     struct mp_cluster_level *level, struct mp_error *error) {
    static const struct {
        const char *name;
        bool self, node;
    } known[] = {{"self", true, false}, {"node", false, true}, {"cluster", false, false}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, level->name) != 0)
            continue;
        if (level->ranks.origin)
            return mp_fail(error, MP_EINVAL,
                           "%s:%d: ranks: level %s has those that its name says; leave it out",
                           cluster->file, level->ranks.line, level->name);
        level->span = known[i].self ? 1 : known[i].node ? (int)cluster->ranks_per_node.value : 0;
        return MP_OK;
    }
    if (level->ranks.origin) {
        level->span = (int)level->ranks.value;
        return MP_OK;
    }
    return mp_fail(error, MP_EINVAL,
                   "%s:%d: level %.80s: ranks is not given; only self, node and cluster do without",
                   cluster->file, value->line, level->name);
}

/* The ranks that a group of the next nearer level has must be able to share the ports. */
static int check_ports(const struct mp_cluster *cluster, const struct mp_cluster_level *level,
                       struct mp_error *error) {
    int ports = (int)level->ports.value, ranks = level[-1].span;
    if (level->sharing.choice == MP_SHARING_POOLED || ranks % ports == 0 || ports % ranks == 0)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "%s:%d: ports: %d fixed ports can't be shared by %d ranks: one number should "
                   "divide the other, or sharing be pooled",
                   cluster->file, level->ports.line, ports, ranks);
}

/* Self is a rank's own memory; every other level has all its keys. */
static int check_level_keys(const struct mp_cluster *cluster, const struct mp_yaml *value,
                            const struct mp_cluster_level *level, struct mp_error *error) {
    static const char *const needed[] = {"bandwidth", "latency", "ports", "sharing"};
    bool is_self = !strcmp(level->name, "self");
    const struct mp_yaml *found;
    for (int i = 0; i < (is_self ? 2 : 4); i++)
        if (find_key(cluster, value, level->name, needed[i], &found, error))
            return MP_EINVAL;
    if (is_self && (mp_yaml_get(value, "ports") || mp_yaml_get(value, "sharing") ||
                    mp_yaml_get(value, "rank-bandwidth") || mp_yaml_get(value, "message-cost")))
        return mp_fail(error, MP_EINVAL,
                       "%s:%d: level self: has no ports, no sharing, no rank-bandwidth and no "
                       "message-cost; leave them out",
                       cluster->file, value->line);
    return MP_OK;
}

static int read_level(const struct mp_cluster *cluster, const struct mp_yaml *value,
                      struct mp_cluster_level *level, struct mp_error *error) {
    static const char *const none[] = {NULL};
    int code = check_keys(cluster, value, level->name, none, mp_cluster_level_fields, error);
    if (!code)
        code = check_level_keys(cluster, value, level, error);
    if (!code)
        code = read_fields(cluster, value, level->name, mp_cluster_level_fields, level, error);
    if (!level->ports.origin)
        level->ports.value = 1;
    return code ? code : read_span(cluster, value, level, error);
}

/* Each level's groups are whole groups of the nearer one, and nodes are whole groups. */
static int check_order(const struct mp_cluster *cluster, int index, struct mp_error *error) {
    const struct mp_cluster_level *level = &cluster->level[index];
    int node = (int)cluster->ranks_per_node.value;
    if (index == 0)
        return level->span == 1 && !strcmp(level->name, "self")
                   ? MP_OK
                   : mp_fail(error, MP_EINVAL, "%s:%d: levels: the first should be self, not %.80s",
                             cluster->file, level->line, level->name);
    int below = level[-1].span;
    if (level->span == 0 && below == node)
        return MP_OK;
    if (below > 0 && level->span > below && level->span % below == 0 && node % level->span == 0)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "%s:%d: level %.80s: should go from near to far: self, groups that each hold "
                   "several whole ones before them, node (%d ranks), cluster",
                   cluster->file, level->line, level->name, node);
}

static int read_levels(struct mp_cluster *cluster, const struct mp_yaml *levels,
                       struct mp_error *error) {
    if (levels->kind != MP_YAML_MAPPING || levels->count < 1 || levels->count > MP_CLUSTER_LEVELS)
        return fail_kind(cluster, levels, "levels", "1 to 8 levels: self, ..., node, cluster",
                         error);
    for (int i = 0; i < levels->count; i++) {
        struct mp_cluster_level *level = &cluster->level[i];
        level->name = levels->key[i];
        level->line = levels->key_line[i];
        cluster->levels = i + 1;
        int code = read_level(cluster, levels->item[i], level, error);
        if (!code)
            code = check_order(cluster, i, error);
        if (!code && i > 0)
            code = check_ports(cluster, level, error);
        if (code)
            return code;
    }
    const struct mp_cluster_level *last = &cluster->level[cluster->levels - 1];
    if (last->span == 0 ||
        (cluster->nodes.value == 1 && last->span == (int)cluster->ranks_per_node.value))
        return MP_OK;
    return mp_fail(error, MP_EINVAL, "%s:%d: levels: %s is missing, so not all ranks are joined",
                   cluster->file, levels->line,
                   last->span < (int)cluster->ranks_per_node.value ? "node" : "cluster");
}

static int read_document(struct mp_cluster *cluster, struct mp_error *error) {
    static const char *const words[] = {"description", "device", "levels", NULL};
    const struct mp_yaml *document = cluster->document, *device, *levels;
    static const char name[] = "a cluster";
    int code = check_keys(cluster, document, name, words, mp_cluster_size_fields, error);
    if (!code)
        code = read_text(cluster, document, name, "description", &cluster->description, error);
    if (!code)
        code = read_fields(cluster, document, name, mp_cluster_size_fields, cluster, error);
    if (!code)
        code = find_key(cluster, document, name, "device", &device, error);
    if (!code)
        code = read_device(cluster, device, error);
    if (!code)
        code = find_key(cluster, document, name, "levels", &levels, error);
    return code ? code : read_levels(cluster, levels, error);
}

/* Takes the document. */
static int build(const char *name, struct mp_yaml *document, struct mp_cluster **result,
                 struct mp_error *error) {
    struct mp_cluster *cluster = calloc(1, sizeof *cluster);
    if (cluster)
        cluster->file = strdup(name);
    if (!cluster || !cluster->file) {
        free(cluster);
        mp_yaml_destroy(document);
        return mp_fail(error, MP_ENOMEM, "%s: no memory for the cluster", name);
    }
    cluster->document = document;
    int code = read_document(cluster, error);
    if (code) {
        mp_cluster_destroy(cluster);
        return code;
    }
    *result = cluster;
    return MP_OK;
}

int mp_cluster_load(const char *path, struct mp_cluster **cluster, struct mp_error *error) {
    struct mp_yaml *document;
    int code = mp_yaml_load(path, &document, error);
    return code ? code : build(path, document, cluster, error);
}

int mp_cluster_parse(const char *name, const char *text, size_t size, struct mp_cluster **cluster,
                     struct mp_error *error) {
    struct mp_yaml *document;
    int code = mp_yaml_parse(name, text, size, &document, error);
    return code ? code : build(name, document, cluster, error);
}

void mp_cluster_destroy(struct mp_cluster *cluster) {
    if (!cluster)
        return;
    mp_yaml_destroy(cluster->document);
    free(cluster->set);
    free(cluster->file);
    free(cluster);
}
