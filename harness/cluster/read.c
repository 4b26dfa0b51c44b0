/* Reading a cluster's file: every number with its origin, every fault with its line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cluster/fields.h"
#include "profiler/record/record.h"

struct mp_option mp_cluster_value_row(const struct mp_option *row, const char *name) {
    bool is_word = row->of == &mp_cluster_sharing;
    struct mp_option value = *row;
    value.name = name;
    value.type = is_word ? MP_OPTION_CHOICE : MP_OPTION_DOUBLE;
    value.offset =
        is_word ? offsetof(struct mp_quantity, choice) : offsetof(struct mp_quantity, value);
    value.of = is_word ? "fixed pooled" : NULL;
    return value;
}

/* The value itself; where it comes from is already known. */
static int read_value(const struct mp_reading *reading, const struct mp_option *row,
                      const struct mp_yaml *scalar, struct mp_quantity *quantity) {
    const struct mp_option value = mp_cluster_value_row(row, row->name);
    int code = mp_options_read_value(reading, &value, scalar->line, scalar, quantity);
    if (!code && row->of == &mp_cluster_whole && quantity->value != floor(quantity->value))
        code = mp_reading_fail(reading, scalar->line, "%s: %.80s is not a whole number", row->name,
                               scalar->text);
    quantity->line = scalar->line;
    quantity->word = row->of == &mp_cluster_sharing ? scalar->text : NULL;
    return code;
}

/* Exactly one of `source` and `assumed`. */
static int take_origin(const struct mp_reading *reading, const struct mp_yaml *mapping,
                       const char *name, const char *const said[2], struct mp_quantity *quantity) {
    if (!said[0] == !said[1])
        return mp_reading_fail(reading, mapping->line,
                               "%s: has %s; give source: whose number it is, or assumed: why", name,
                               said[0] ? "both source and assumed" : "neither source nor assumed");
    quantity->assumed = said[1];
    quantity->origin = quantity->assumed ? said[1] : said[0];
    return MP_OK;
}

#define ORIGIN(of)                                                                                 \
    {                                                                                              \
        "source", MP_OPTION_STRING,    offsetof(of, origin[0]), "", "", 0, 0,                      \
        NULL,     "whose number it is"},                                                           \
    {                                                                                              \
        "assumed", MP_OPTION_STRING, offsetof(of, origin[1]), "", "", 0, 0, NULL, "why"            \
    }

int mp_cluster_read_quantity(const struct mp_reading *reading, const struct mp_option *row,
                             const struct mp_yaml *value, void *field) {
    struct said {
        const struct mp_yaml *value;
        const char *origin[2];
    } said = {0};
    static const struct mp_option rows[] = {
        {"value", MP_OPTION_NODE, 0, "", NULL, 0, 0, NULL, "the number"}, ORIGIN(struct said), {0}};
    const struct mp_option_form *form = row->of;
    struct mp_quantity *quantity = field;
    if (value->kind != MP_YAML_MAPPING)
        return mp_reading_fail(reading, value->line, "%s: should be %s", row->name, form->what);
    MP_TRY(mp_options_read(reading, rows, row->name, value, &said));
    MP_TRY(read_value(reading, row, said.value, quantity));
    return take_origin(reading, value, row->name, said.origin, quantity);
}

/* ---- efficiency ---- */

static int check_axis(const struct mp_reading *reading, int line, const char *name,
                      const double points[], int count) {
    for (int i = 1; i < count; i++)
        if (points[i] <= points[i - 1])
            return mp_reading_fail(reading, line, "%s: %g follows %g; they should ascend", name,
                                   points[i], points[i - 1]);
    return MP_OK;
}

static int read_shares(const struct mp_reading *reading, int direction, const struct mp_yaml *rows,
                       const struct mp_quantity *common, struct mp_cluster_efficiency *table) {
    const struct mp_option *entry = &mp_cluster_share_rows[direction];
    if (rows->kind != MP_YAML_SEQUENCE || rows->count != table->rows)
        return mp_reading_fail(reading, rows->line,
                               "%s: should be a list of %d lists, one per token count", entry->name,
                               table->rows);
    for (int i = 0; i < table->rows; i++) {
        const struct mp_yaml *row = rows->item[i];
        if (row->kind != MP_YAML_SEQUENCE || row->count != table->columns)
            return mp_reading_fail(reading, row->line,
                                   "%s: should be a list of %d numbers, one per width", entry->name,
                                   table->columns);
        for (int j = 0; j < table->columns; j++) {
            struct mp_quantity *share = &table->share[direction][i][j];
            *share = *common;
            MP_TRY(row->item[j]->kind == MP_YAML_MAPPING
                       ? mp_cluster_read_quantity(reading, entry, row->item[j], share)
                       : read_value(reading, entry, row->item[j], share));
        }
    }
    return MP_OK;
}

int mp_cluster_read_table(const struct mp_reading *reading, const struct mp_option *row,
                          const struct mp_yaml *value, void *field) {
    struct said {
        double tokens[MP_CLUSTER_POINTS];
        int rows;
        double width[MP_CLUSTER_POINTS];
        int columns;
        const struct mp_yaml *share[2];
        const char *origin[2];
    } said = {0};
#define SAID(member) offsetof(struct said, member)
    static const struct mp_option point_rows[] = {
        {"", MP_OPTION_DOUBLE, .unit = "", .minimum = 1, .maximum = 1e9}, {0}};
    static const struct mp_option_form point = {"a number", point_rows, sizeof(double), NULL};
    static const struct mp_option rows[] = {
        {"tokens", MP_OPTION_LIST, SAID(tokens), "tokens", NULL, 1, MP_CLUSTER_POINTS, &point,
         "of an expert, ascending"},
        {"width", MP_OPTION_LIST, SAID(width), "", NULL, 1, MP_CLUSTER_POINTS, &point,
         "the smaller of a product's other sizes, ascending"},
        {"share", MP_OPTION_NODE, SAID(share[0]), "", NULL, 0, 0, NULL,
         "of the peak, a list per token count"},
        {"backward", MP_OPTION_NODE, SAID(share[1]), "", "", 0, 0, NULL,
         "of products that give gradients"},
        ORIGIN(struct said),
        {0}};
    struct mp_cluster_efficiency *table = field;
    struct mp_quantity common = {0};
    MP_TRY(mp_options_read(reading, rows, row->name, value, &said));
    memcpy(table->tokens, said.tokens, sizeof said.tokens);
    memcpy(table->width, said.width, sizeof said.width);
    table->rows = said.rows;
    table->columns = said.columns;
    table->directions = said.share[1] ? 2 : 1;
    MP_TRY(take_origin(reading, value, row->name, said.origin, &common));
    MP_TRY(check_axis(reading, value->line, "tokens", table->tokens, table->rows));
    MP_TRY(check_axis(reading, value->line, "width", table->width, table->columns));
    for (int direction = 0; direction < table->directions; direction++)
        MP_TRY(read_shares(reading, direction, said.share[direction], &common, table));
    return MP_OK;
}

/* ---- what rows can't say ---- */

/* The ranks that the level's name says or its key `ranks` gives. */
static int read_span(const struct mp_cluster *cluster, struct mp_cluster_level *level,
                     struct mp_error *error) {
    bool is_self = !strcmp(level->name, "self"), is_node = !strcmp(level->name, "node");
    bool is_known = is_self || is_node || !strcmp(level->name, "cluster");
    if (is_known && level->ranks.origin)
        return mp_fail(error, MP_EINVAL,
                       "%s:%d: ranks: level %s has those that its name says; leave it out",
                       cluster->file, level->ranks.line, level->name);
    if (!is_known && !level->ranks.origin)
        return mp_fail(
            error, MP_EINVAL,
            "%s:%d: level %.80s: ranks is not given; only self, node and cluster do without",
            cluster->file, level->line, level->name);
    level->span = is_self   ? 1
                  : is_node ? (int)cluster->ranks_per_node.value
                            : (int)level->ranks.value; /* of cluster 0 */
    return MP_OK;
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

/* Self is a rank's own memory; every other level has ports, and says how they are shared. */
static int check_keys(const struct mp_cluster *cluster, struct mp_cluster_level *level,
                      struct mp_error *error) {
    bool is_self = !strcmp(level->name, "self");
    bool has_ports = level->ports.origin && level->sharing.origin;
    if (!level->ports.origin)
        level->ports.value = 1;
    if (is_self && (level->ports.origin || level->sharing.origin || level->rank_bandwidth.origin ||
                    level->message_cost.origin))
        return mp_fail(error, MP_EINVAL,
                       "%s:%d: level self: has no ports, no sharing, no rank-bandwidth and no "
                       "message-cost; leave them out",
                       cluster->file, level->line);
    return is_self || has_ports
               ? MP_OK
               : mp_fail(error, MP_EINVAL, "%s:%d: level %.80s: %s is not given, as in %s",
                         cluster->file, level->line, level->name,
                         level->ports.origin ? "sharing" : "ports",
                         level->ports.origin ? "{value: fixed, assumed: \"why\"}"
                                             : "{value: 1, assumed: \"why\"}");
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

static int check_levels(struct mp_cluster *cluster, struct mp_error *error) {
    for (int i = 0; i < cluster->levels; i++) {
        struct mp_cluster_level *level = &cluster->level[i];
        MP_TRY(check_keys(cluster, level, error));
        MP_TRY(read_span(cluster, level, error));
        MP_TRY(check_order(cluster, i, error));
        if (i > 0)
            MP_TRY(check_ports(cluster, level, error));
    }
    const struct mp_cluster_level *last = &cluster->level[cluster->levels - 1];
    if (last->span == 0 ||
        (cluster->nodes.value == 1 && last->span == (int)cluster->ranks_per_node.value))
        return MP_OK;
    return mp_fail(error, MP_EINVAL, "%s:%d: levels: %s is missing, so not all ranks are joined",
                   cluster->file, cluster->level[0].line,
                   last->span < (int)cluster->ranks_per_node.value ? "node" : "cluster");
}

int mp_cluster_load(const char *path, struct mp_cluster **result, struct mp_error *error) {
    const struct mp_reading reading = {path, error};
    MP_AUTO(cluster) struct mp_cluster *cluster = mp_new(1, sizeof *cluster);
    if (!cluster || !(cluster->file = strdup(path)))
        return mp_fail(error, MP_ENOMEM, "%s: no memory for the cluster", path);
    MP_TRY(mp_yaml_load(path, &cluster->document, error));
    MP_TRY(mp_options_read(&reading, mp_cluster_rows, "a cluster", cluster->document, cluster));
    MP_TRY(check_levels(cluster, error));
    *result = cluster;
    cluster = NULL;
    return MP_OK;
}

void mp_cluster_destroy(struct mp_cluster *cluster) {
    if (!cluster)
        return;
    mp_yaml_destroy(cluster->document);
    free(cluster->set);
    free(cluster->file);
    free(cluster);
}
