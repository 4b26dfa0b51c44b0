/* The program that puts clusters on nodes. */
#include <stdlib.h>
#include <string.h>

#include "baselines/moetuner/links.h"
#include "reference/base/arena.h"
#include "reference/base/median.h"

/* One pair of layers of the program. */
struct boundary {
    int layer;        /* of the left one */
    double low, high; /* s_l is within; above low it is one of the times */
    int times;        /* counted */
    double *time;     /* [times], ascending, low < time <= high; in mp_links_program's memory */
    int columns;      /* before the first one of `times` */
};

struct part {
    struct mp_links *links;
    struct mp_program *program;
    int first, last;   /* free layers */
    int left, right;   /* layers of the program: the free ones and their neighbours */
    bool fixed_labels; /* nodes can't change numbers */
    int nodes;
    double scale;  /* of seconds: numbers near 1 */
    double *value; /* [columns] of the solution to begin with; owned */
    int values;
    bool lacks_memory;
    struct mp_arena memory; /* of working tables */
    const int32_t *rank;
};

static int add_column(struct part *part, double low, double high, double cost, bool whole,
                      double value) {
    part->lacks_memory |= !MP_ROOM(part->value, part->values);
    if (part->lacks_memory)
        return 0;
    part->value[part->values++] = value;
    return mp_program_column(part->program, low, high, cost, whole);
}

static int node_of(const struct part *part, int layer, int cluster) {
    const struct mp_topology *topology = &part->links->topology;
    size_t place = (size_t)layer * (size_t)topology->ranks + (size_t)cluster;
    return mp_topology_node(topology, part->rank[place]);
}

/* v[c,n,l], which come first. */
static int column_of_node(const struct part *part, int layer, int cluster, int node) {
    int ranks = part->links->topology.ranks;
    return ((layer - part->left) * ranks + cluster) * part->nodes + node;
}

/* Nodes of equal size may change numbers where no neighbour has them: then the i-th cluster of the
 * first layer is on one of the first i nodes. */
static void add_nodes(struct part *part) {
    const struct mp_topology *topology = &part->links->topology;
    for (int l = part->left; l <= part->right; l++)
        for (int c = 0; c < topology->ranks; c++)
            for (int n = 0; n < part->nodes; n++) {
                bool there = node_of(part, l, c) == n, set = l < part->first || l > part->last;
                bool never = l == part->left && !part->fixed_labels && n > c;
                add_column(part, set && there ? 1 : 0, (set && !there) || never ? 0 : 1, 0, true,
                           there);
            }
    for (int l = part->first; l <= part->last; l++) {
        for (int c = 0; c < topology->ranks; c++) {
            mp_program_row(part->program, 1, 1);
            for (int n = 0; n < part->nodes; n++)
                mp_program_term(part->program, column_of_node(part, l, c, n), 1);
        }
        for (int n = 0; n < part->nodes; n++) {
            int size = mp_topology_node_end(topology, n) - mp_topology_node_begin(topology, n);
            mp_program_row(part->program, size, size);
            for (int c = 0; c < topology->ranks; c++)
                mp_program_term(part->program, column_of_node(part, l, c, n), 1);
        }
    }
}

/* The times that a boundary may take, without those that occur twice. */
static void list_times(const struct part *part, struct boundary *boundary, double time[]) {
    const struct mp_links *links = part->links;
    int ranks = links->topology.ranks, count = 0, kept = 0;
    const int64_t *flow = mp_links_flow(links, boundary->layer);
    for (int i = 0; i < ranks * ranks; i++) {
        double of[2] = {(double)flow[i] * links->between, (double)flow[i] * links->in_node};
        for (int k = part->nodes == 1; k < 2; k++)
            if (of[k] > boundary->low && of[k] <= boundary->high)
                time[count++] = of[k];
    }
    mp_sort_numbers(time, count);
    for (int i = 0; i < count; i++)
        if (i == 0 || time[i] > time[kept - 1])
            time[kept++] = time[i];
    boundary->time = time;
    boundary->times = kept;
}

/* b[t,l]: each adds what the time is above the one before it, and none is reached before that. */
static void add_times(struct part *part, struct boundary *boundary) {
    double present = part->links->seconds[boundary->layer];
    boundary->columns = part->values;
    for (int t = 0; t < boundary->times; t++) {
        double before = t > 0 ? boundary->time[t - 1] : boundary->low;
        add_column(part, 0, 1, (boundary->time[t] - before) * part->scale, true,
                   present >= boundary->time[t]);
    }
    for (int t = 1; t < boundary->times; t++) {
        mp_program_row(part->program, 0, MP_PROGRAM_NONE);
        mp_program_term(part->program, boundary->columns + t - 1, 1);
        mp_program_term(part->program, boundary->columns + t, -1);
    }
}

/* The column that is 1 if so many seconds are reached; -1: they never are. */
static int column_of_time(const struct boundary *boundary, double seconds) {
    int from = 0, to = boundary->times;
    if (seconds > boundary->high)
        return -1;
    while (from < to) {
        int middle = (from + to) / 2;
        if (boundary->time[middle] < seconds)
            from = middle + 1;
        else
            to = middle;
    }
    return boundary->columns + from;
}

/* v[c1,n,l] <= v[c2,n,l+1] + (1 - together): both are on the same node. */
static void add_together(struct part *part, int layer, int c1, int c2, int column, double factor,
                         double high) {
    for (int n = 0; n < part->nodes; n++) {
        mp_program_row(part->program, -MP_PROGRAM_NONE, high);
        mp_program_term(part->program, column_of_node(part, layer, c1, n), 1);
        mp_program_term(part->program, column_of_node(part, layer + 1, c2, n), -1);
        if (column >= 0)
            mp_program_term(part->program, column, factor);
    }
}

/* Clusters between which more travels than `low` share a node, or the time is reached. */
static void add_crossing(struct part *part, const struct boundary *boundary) {
    const struct mp_links *links = part->links;
    int ranks = links->topology.ranks;
    const int64_t *flow = mp_links_flow(links, boundary->layer);
    for (int i = 0; i < ranks * ranks && part->nodes > 1; i++) {
        double seconds = (double)flow[i] * links->between;
        if (seconds > boundary->low)
            add_together(part, boundary->layer, i / ranks, i % ranks,
                         column_of_time(boundary, seconds), -1, 0);
    }
}

/* u[c1,c2,l] of those between which more travels than `low` inside a node: they share a rank, or
 * the time is reached.  Part of a permutation can be made a whole one. */
static void add_matching(struct part *part, const struct boundary *boundary, int column[]) {
    const struct mp_links *links = part->links;
    int ranks = links->topology.ranks, layer = boundary->layer;
    const int64_t *flow = mp_links_flow(links, layer);
    const int32_t *from = part->rank + (size_t)layer * (size_t)ranks, *to = from + ranks;
    for (int i = 0; i < ranks * ranks; i++) {
        double seconds = (double)flow[i] * links->in_node;
        column[i] = -1;
        if (seconds <= boundary->low || part->nodes == ranks)
            continue;
        int time = column_of_time(boundary, seconds);
        column[i] =
            add_column(part, time < 0 ? 1 : 0, 1, 0, true, from[i / ranks] == to[i % ranks]);
        add_together(part, layer, i / ranks, i % ranks, column[i], 1, 1);
        if (time >= 0) {
            mp_program_row(part->program, 1, MP_PROGRAM_NONE);
            mp_program_term(part->program, column[i], 1);
            mp_program_term(part->program, time, 1);
        }
    }
    for (int side = 0; side < 2; side++)
        for (int c = 0; c < ranks; c++) {
            mp_program_row(part->program, -MP_PROGRAM_NONE, 1);
            for (int other = 0; other < ranks; other++) {
                int u = column[side ? other * ranks + c : c * ranks + other];
                if (u >= 0)
                    mp_program_term(part->program, u, 1);
            }
        }
}

/* Every s_l that a better placement may have: the others are at least at their lows. */
static void add_boundaries(struct part *part, struct boundary boundary[], double time[],
                           int column[]) {
    const struct mp_links *links = part->links;
    int count = part->right - part->left;
    size_t room = 2 * (size_t)links->topology.ranks * (size_t)links->topology.ranks;
    double present = 0, low = 0;
    for (int l = part->left; l < part->right; l++) {
        present += links->seconds[l];
        low += links->low[l];
    }
    part->scale = present > 0 ? 1 / present : 1;
    for (int i = 0; i < count; i++) {
        int l = part->left + i;
        double high = (present - low + links->low[l]) * (1 + 1e-12);
        boundary[i] = (struct boundary){.layer = l, .low = links->low[l], .high = high};
        list_times(part, &boundary[i], time + (size_t)i * room);
        add_times(part, &boundary[i]);
        add_crossing(part, &boundary[i]);
        add_matching(part, &boundary[i], column);
    }
    add_column(part, 1, 1, low * part->scale, false, 1);
}

/* ---- from nodes to ranks ---- */

/* Where no layer before the free ones has them, nodes of the first layer come by number. */
static void first_ranks(struct mp_links *links, int32_t rank[]) {
    const struct mp_topology *topology = &links->topology;
    for (int n = 0; n < mp_topology_nodes(topology); n++) {
        int32_t next = mp_topology_node_begin(topology, n);
        for (int c = 0; c < topology->ranks; c++)
            if (links->node[c] == n)
                rank[c] = next++;
    }
}

static void read_ranks(const struct part *part, int32_t rank[]) {
    struct mp_links *links = part->links;
    int ranks = links->topology.ranks;
    for (int l = part->first; l <= part->right; l++) {
        int32_t *own = rank + (size_t)l * (size_t)ranks;
        for (int c = 0; c < ranks; c++)
            for (int n = 0; n < part->nodes; n++)
                if (part->value[column_of_node(part, l, c, n)] > 0.5)
                    links->node[c] = n;
        memcpy(links->map, own, (size_t)ranks * sizeof *own);
        if (l > 0)
            mp_links_match(links, l - 1, own - ranks, own);
        else
            first_ranks(links, own);
    }
    if (part->right == part->last)
        return;
    /* Layers behind follow the one whose nodes are the same and whose ranks are others. */
    int32_t *own = rank + (size_t)part->right * (size_t)ranks;
    int32_t *to = links->room;
    for (int c = 0; c < ranks; c++)
        to[links->map[c]] = own[c];
    for (int l = part->right + 1; l < links->layers; l++)
        for (int c = 0; c < ranks; c++) {
            int32_t *place = &rank[(size_t)l * (size_t)ranks + (size_t)c];
            *place = to[*place];
        }
}

/* Numbers nodes as they occur in the first layer. */
static void number_nodes(struct mp_links *links, int32_t rank[]) {
    const struct mp_topology *topology = &links->topology;
    int32_t numbered = 0;
    for (int n = 0; n < mp_topology_nodes(topology); n++)
        links->map[n] = -1;
    for (int c = 0; c < topology->ranks; c++) {
        int32_t *label = &links->map[mp_topology_node(topology, rank[c])];
        *label = *label < 0 ? numbered++ : *label;
    }
    for (int i = 0; i < links->layers * topology->ranks; i++) {
        int size = topology->ranks_per_node;
        rank[i] = links->map[rank[i] / size] * size + rank[i] % size;
    }
}

static int solve_part(struct part *part, const struct mp_program_limits *limits, int32_t rank[],
                      struct mp_program_result *result, struct mp_error *error) {
    size_t boundaries = (size_t)(part->right - part->left),
           ranks = (size_t)part->links->topology.ranks;
    struct boundary *boundary;
    double *time;
    int *column;
    MP_TAKE(&part->memory, boundary, boundaries);
    MP_TAKE(&part->memory, time, boundaries * 2 * ranks * ranks);
    MP_TAKE(&part->memory, column, ranks * ranks);
    part->rank = rank;
    part->lacks_memory = part->memory.lacking > 0;
    if (!part->lacks_memory) {
        add_nodes(part);
        add_boundaries(part, boundary, time, column);
    }
    if (part->lacks_memory)
        return mp_fail(error, MP_ENOMEM, "no memory for a program of %d layers and %zu ranks",
                       part->right - part->left + 1, ranks);
    MP_TRY(mp_program_solve(part->program, limits, true, part->value, result, error));
    if (result->status == MP_PROGRAM_SOLVED || result->status == MP_PROGRAM_LIMITED)
        read_ranks(part, rank);
    return MP_OK;
}

int mp_links_program(struct mp_links *links, int first, int last,
                     const struct mp_program_limits *limits, int32_t rank[], double *bound,
                     struct mp_program_result *result, struct mp_error *error) {
    const struct mp_topology *topology = &links->topology;
    bool all = first == 0 && last == links->layers - 1;
    struct part part = {.links = links,
                        .first = first,
                        .last = last,
                        .left = first > 0 ? first - 1 : 0,
                        .right = last + 1 < links->layers ? last + 1 : last,
                        .nodes = mp_topology_nodes(topology)};
    part.fixed_labels = !all || topology->ranks % topology->ranks_per_node != 0;
    if (!part.fixed_labels)
        number_nodes(links, rank);
    mp_links_seconds(links, rank);
    int code = mp_program_create(&part.program, error);
    if (!code)
        code = solve_part(&part, limits, rank, result, error);
    if (!code)
        *bound = result->bound / part.scale;
    mp_program_destroy(part.program);
    mp_arena_release(&part.memory);
    free(part.value);
    return code;
}
