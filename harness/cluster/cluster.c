/* Clusters: what a predictor asks of one.  Reading is in read.c. */
#include "harness/cluster/cluster.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/cluster/fields.h"
#include "profiler/record/record.h"
#include "reference/base/elementary.h"

static int change(struct mp_cluster *cluster, struct mp_quantity *quantity, double value,
                  struct mp_error *error) {
    if (!cluster->set)
        cluster->set = strdup("as was asked for");
    if (!cluster->set)
        return mp_fail(error, MP_ENOMEM, "no memory for the cluster");
    *quantity = (struct mp_quantity){.value = value, .assumed = true, .origin = cluster->set};
    return MP_OK;
}

static int set_nodes(struct mp_cluster *cluster, const char *key, const char *text,
                     struct mp_error *error) {
    static const struct mp_option nodes[] = {
        {"nodes", MP_OPTION_INT, 0, "", NULL, 1, MP_CLUSTER_NODES, NULL, "number of nodes"}, {0}};
    int count = 0;
    MP_TRY(mp_options_set(nodes, &count, "a cluster", key, text, "--set", error));
    if (count > 1 && cluster->level[cluster->levels - 1].span != 0)
        return mp_fail(error, MP_EINVAL,
                       "--set: nodes: %s has no level cluster, which would join several nodes",
                       cluster->file);
    return change(cluster, &cluster->nodes, count, error);
}

/* The quantity of "levels.NAME.QUANTITY", one that is any number, and its row; NULL without. */
static struct mp_quantity *find_quantity(struct mp_cluster *cluster, const char *key,
                                         const struct mp_option **row) {
    const char *name = key + strlen("levels."), *dot = strrchr(name, '.');
    struct mp_quantity *found = NULL;
    *row = dot ? mp_options_find(mp_cluster_level_rows, dot + 1) : NULL;
    if (!*row || (*row)->of != &mp_cluster_number)
        *row = NULL;
    for (int l = 0; *row && l < cluster->levels; l++)
        if (strlen(cluster->level[l].name) == (size_t)(dot - name) &&
            !strncmp(cluster->level[l].name, name, (size_t)(dot - name)))
            found = (struct mp_quantity *)((char *)&cluster->level[l] + (*row)->offset);
    return found;
}

static int set_level(struct mp_cluster *cluster, const char *key, const char *text,
                     struct mp_error *error) {
    const struct mp_option *row;
    struct mp_quantity *quantity = find_quantity(cluster, key, &row), changed = {0};
    if (!quantity)
        return mp_fail(error, MP_EINVAL,
                       "--set: %.80s: should be levels.NAME.bandwidth or levels.NAME.latency with "
                       "the name of a level of %s",
                       key, cluster->file);
    const struct mp_option number = mp_cluster_value_row(row, key);
    MP_TRY(mp_option_set(&number, &changed, text, "--set", error));
    return change(cluster, quantity, changed.value, error);
}

int mp_cluster_set(struct mp_cluster *cluster, const char *assignment, struct mp_error *error) {
    static const char levels[] = "levels.";
    char key[128];
    const char *equals = strchr(assignment, '=');
    if (!equals)
        return mp_fail(error, MP_EINVAL, "--set: \"%.80s\" should be nodes=NUMBER", assignment);
    snprintf(key, sizeof key, "%.*s", (int)(equals - assignment), assignment);
    return strncmp(key, levels, sizeof levels - 1) == 0
               ? set_level(cluster, key, equals + 1, error)
               : set_nodes(cluster, key, equals + 1, error);
}

/* Clusters without that level, or where the quantity is not given, stay as they are. */
static int scale_level(struct mp_cluster *cluster, const char *key, double factor,
                       struct mp_error *error) {
    const struct mp_option *row;
    struct mp_quantity *quantity = find_quantity(cluster, key, &row);
    if (!row)
        return mp_fail(error, MP_EINVAL,
                       "%.80s: should be levels.NAME.bandwidth, levels.NAME.latency or "
                       "levels.NAME.message-cost",
                       key);
    return quantity && quantity->origin ? change(cluster, quantity, factor * quantity->value, error)
                                        : MP_OK;
}

int mp_cluster_scale(struct mp_cluster *cluster, const char *key, double factor,
                     struct mp_error *error) {
    if (!(factor > 0) || !isfinite(factor))
        return mp_fail(error, MP_EINVAL, "%.80s: %g is no factor above 0", key, factor);
    if (!strncmp(key, "levels.", strlen("levels.")))
        return scale_level(cluster, key, factor, error);
    if (!strcmp(key, "launch"))
        return change(cluster, &cluster->launch, factor * cluster->launch.value, error);
    if (!strcmp(key, "elementwise"))
        return change(cluster, &cluster->elementwise, factor * mp_cluster_elementwise(cluster),
                      error);
    if (!strcmp(key, "overlap"))
        return change(cluster, &cluster->overlap, factor * mp_cluster_overlap(cluster), error);
    if (strcmp(key, "peak") != 0)
        return mp_fail(error, MP_EINVAL,
                       "%.80s: should be launch, elementwise, overlap, peak, "
                       "levels.NAME.bandwidth, levels.NAME.latency or levels.NAME.message-cost",
                       key);
    for (int i = 0; i < MP_PRECISIONS; i++)
        if (cluster->peak[i].origin)
            MP_TRY(change(cluster, &cluster->peak[i], factor * cluster->peak[i].value, error));
    return MP_OK;
}

int mp_cluster_ranks(const struct mp_cluster *cluster) {
    return (int)(cluster->nodes.value * cluster->ranks_per_node.value);
}

struct mp_topology mp_cluster_topology(const struct mp_cluster *cluster) {
    return (struct mp_topology){mp_cluster_ranks(cluster), (int)cluster->ranks_per_node.value};
}

int mp_cluster_level_of(const struct mp_cluster *cluster, int rank, int other) {
    int level = 0;
    while (cluster->level[level].span &&
           rank / cluster->level[level].span != other / cluster->level[level].span)
        level++;
    return level;
}

/* Ranks of the groups that a level joins. */
static int group_ranks(const struct mp_cluster *cluster, int level) {
    return level > 0 ? cluster->level[level - 1].span : 1;
}

static int group_gates(const struct mp_cluster *cluster, int level) {
    int ports = (int)cluster->level[level].ports.value, ranks = group_ranks(cluster, level);
    if (cluster->level[level].sharing.choice == MP_SHARING_POOLED)
        return 1;
    return ports < ranks ? ports : ranks;
}

double mp_cluster_bandwidth(const struct mp_cluster *cluster, int level) {
    const struct mp_cluster_level *at = &cluster->level[level];
    return at->bandwidth.value * at->ports.value / group_gates(cluster, level);
}

double mp_cluster_rank_bandwidth(const struct mp_cluster *cluster, int level) {
    const struct mp_quantity *limit = &cluster->level[level].rank_bandwidth;
    double gate = mp_cluster_bandwidth(cluster, level);
    return limit->origin && limit->value < gate ? limit->value : gate;
}

int mp_cluster_gates(const struct mp_cluster *cluster, int level) {
    return mp_cluster_ranks(cluster) / group_ranks(cluster, level) * group_gates(cluster, level);
}

/* Between which two of ascending points `value` lies, and how far in logarithms (0 .. 1). */
static int find_place(const double points[], int count, double value, double *part) {
    int i = 0;
    *part = 0;
    if (value <= points[0])
        return 0;
    while (i + 1 < count && points[i + 1] <= value)
        i++;
    if (i + 1 < count)
        *part = mp_elementary_log(value / points[i]) / mp_elementary_log(points[i + 1] / points[i]);
    return i;
}

/* A power law through both ends: `part` 0 gives `from` itself. */
static double between(double from, double to, double part) {
    return part > 0 ? from * mp_elementary_power(to / from, part) : from;
}

double mp_cluster_share(const struct mp_cluster *cluster, int direction, double tokens,
                        double width) {
    const struct mp_cluster_efficiency *table = &cluster->efficiency;
    const struct mp_quantity(*share)[MP_CLUSTER_POINTS] =
        table->share[direction < table->directions ? direction : MP_FORWARD];
    double down, right, line[2];
    int i = find_place(table->tokens, table->rows, tokens, &down);
    int j = find_place(table->width, table->columns, width, &right);
    for (int next = 0; next < 2; next++) {
        const struct mp_quantity *row = share[down > 0 ? i + next : i];
        line[next] = between(row[j].value, row[right > 0 ? j + 1 : j].value, right);
    }
    double reached = between(line[0], line[1], down);
    return tokens < table->tokens[0] ? reached * tokens / table->tokens[0] : reached;
}

double mp_cluster_elementwise(const struct mp_cluster *cluster) {
    return cluster->elementwise.origin ? cluster->elementwise.value
                                       : cluster->memory_bandwidth.value;
}

double mp_cluster_update(const struct mp_cluster *cluster) {
    return cluster->update.origin ? cluster->update.value : cluster->memory_bandwidth.value;
}

double mp_cluster_overlap(const struct mp_cluster *cluster) {
    return cluster->overlap.origin ? cluster->overlap.value : 1;
}

int mp_cluster_product_seconds(const struct mp_cluster *cluster, enum mp_precision precision,
                               int direction, double rows, double inner, double columns,
                               double *seconds, struct mp_error *error) {
    const struct mp_quantity *peak = &cluster->peak[precision];
    if (!peak->origin)
        return mp_fail(
            error, MP_EINVAL,
            "%s:%d: peak: gives none for %s; give it, or take another (predict.precision)",
            cluster->file, cluster->peak_line, mp_cluster_peak_rows[precision].name);
    *seconds = 0;
    if (rows <= 0 || inner <= 0 || columns <= 0)
        return MP_OK;
    double share = mp_cluster_share(cluster, direction, rows, inner < columns ? inner : columns);
    double compute = 2 * rows * inner * columns / (peak->value * share);
    double bytes =
        (rows * inner + inner * columns + rows * columns) * mp_precision_bytes(precision);
    double memory = bytes / cluster->memory_bandwidth.value;
    *seconds = cluster->launch.value + (compute > memory ? compute : memory);
    return MP_OK;
}

double mp_precision_bytes(enum mp_precision precision) {
    static const double bytes[MP_PRECISIONS] = {8, 4, 4, 2, 2, 1};
    return bytes[precision];
}

static void visit_shares(const struct mp_cluster_efficiency *table, mp_cluster_visit *visit,
                         void *context) {
    char place[256];
    for (int direction = 0; direction < table->directions; direction++)
        for (int i = 0; i < table->rows; i++)
            for (int j = 0; j < table->columns; j++) {
                snprintf(place, sizeof place, "device.efficiency.%s.%g.%g",
                         mp_cluster_share_rows[direction].name, table->tokens[i], table->width[j]);
                visit(context, place, "", &table->share[direction][i][j]);
            }
}

/* `prefix` "levels.node." */
static void visit_rows(const void *object, const struct mp_option rows[], const char *prefix,
                       mp_cluster_visit *visit, void *context) {
    char place[256];
    for (; rows->name; rows++) {
        const char *field = (const char *)object + rows->offset;
        const struct mp_quantity *quantity = (const struct mp_quantity *)field;
        const struct mp_option_form *form = rows->of;
        bool is_inside = rows->type == MP_OPTION_MAPPING;
        snprintf(place, sizeof place, "%.200s%s%s", prefix, rows->name, is_inside ? "." : "");
        if (is_inside)
            visit_rows(field, form->rows, place, visit, context);
        else if (form == &mp_cluster_table)
            visit_shares((const struct mp_cluster_efficiency *)field, visit, context);
        else if (rows->type == MP_OPTION_FORM && quantity->origin)
            visit(context, place, rows->unit, quantity);
    }
}

void mp_cluster_each(const struct mp_cluster *cluster, mp_cluster_visit *visit, void *context) {
    char prefix[256];
    visit_rows(cluster, mp_cluster_rows, "", visit, context);
    for (int i = 0; i < cluster->levels; i++) {
        snprintf(prefix, sizeof prefix, "levels.%.200s.", cluster->level[i].name);
        visit_rows(&cluster->level[i], mp_cluster_level_rows, prefix, visit, context);
    }
}
