/* Topology: ranks grouped into nodes of equal size, node(r) = r / ranks_per_node. */
#pragma once

struct mp_topology {
    int ranks;          /* R >= 1 */
    int ranks_per_node; /* G >= 1; the last node may be smaller */
};

static inline int mp_topology_node(const struct mp_topology *topology, int rank) {
    return rank / topology->ranks_per_node;
}
static inline int mp_topology_nodes(const struct mp_topology *topology) {
    return (topology->ranks - 1) / topology->ranks_per_node + 1;
}
/* First rank of a node, and one past its last. */
static inline int mp_topology_node_begin(const struct mp_topology *topology, int node) {
    return node * topology->ranks_per_node;
}
static inline int mp_topology_node_end(const struct mp_topology *topology, int node) {
    int end = (node + 1) * topology->ranks_per_node;
    return end < topology->ranks ? end : topology->ranks;
}
/* The rank of a node whose place in it is that of `rank` in its own; in the last node, which may be
 * smaller, places are counted round. */
static inline int mp_topology_at_place(const struct mp_topology *topology, int node, int rank) {
    int first = mp_topology_node_begin(topology, node);
    return first + rank % topology->ranks_per_node % (mp_topology_node_end(topology, node) - first);
}
/* Shares of ranks that go with 1 over the cost of a byte, 1 inside the node and `outside_cost` to
 * another: that of a rank inside the node, and of one outside that over the cost. */
static inline double mp_topology_near_share(const struct mp_topology *topology, int node,
                                            double outside_cost) {
    int near = mp_topology_node_end(topology, node) - mp_topology_node_begin(topology, node);
    return 1 / (near + (topology->ranks - near) / outside_cost);
}
/* That of all ranks inside together. */
static inline double mp_topology_share_inside(const struct mp_topology *topology, int node,
                                              double outside_cost) {
    int near = mp_topology_node_end(topology, node) - mp_topology_node_begin(topology, node);
    return near * mp_topology_near_share(topology, node, outside_cost);
}

/* ---- groups of ranks inside one another ---- */

enum { MP_MOST_LEVELS = 4 };

/* Outermost first.  The size of a level's groups divides that of the groups around them; those of
 * the last level are single ranks. */
struct mp_levels {
    int count;
    struct mp_topology groups[MP_MOST_LEVELS];
    /* Where a level's groups begin among those of all, and how many these are. */
    int begin[MP_MOST_LEVELS + 1];
};

/* Ranks alone. */
static inline struct mp_levels mp_levels_of_ranks(int ranks) {
    struct mp_levels levels = {.count = 1, .begin = {0, ranks}};
    for (int i = 0; i < MP_MOST_LEVELS; i++)
        levels.groups[i] = (struct mp_topology){ranks, 1};
    return levels;
}
/* One more level outside them, inside all others: at most MP_MOST_LEVELS in all. */
static inline void mp_levels_add(struct mp_levels *levels, int size) {
    struct mp_topology *groups = &levels->groups[levels->count - 1];
    int *begin = &levels->begin[levels->count - 1];
    groups->ranks_per_node = size;
    begin[1] = begin[0] + mp_topology_nodes(groups);
    begin[2] = begin[1] + groups->ranks;
    levels->count++;
}
/* Groups of all levels.  The most of so many ranks: sizes at least halve between two levels, but
 * for the last two, which are both 1 at the worst. */
static inline int mp_levels_groups(const struct mp_levels *levels) {
    return levels->begin[levels->count];
}
static inline int mp_levels_most_groups(int ranks) {
    return 2 * ranks + 2;
}
/* Of all groups, that of a level which a rank is in. */
static inline int mp_levels_group(const struct mp_levels *levels, int level, int rank) {
    return levels->begin[level] + mp_topology_node(&levels->groups[level], rank);
}
/* The outermost level at which rank[last] is in another group than all before it, which is so at
 * those inside it, too; `count`: there is none. */
static inline int mp_levels_apart(const struct mp_levels *levels, const int rank[], int last) {
    int level = levels->count;
    for (; level > 0; level--) {
        const struct mp_topology *groups = &levels->groups[level - 1];
        int node = mp_topology_node(groups, rank[last]);
        for (int i = 0; i < last; i++)
            if (mp_topology_node(groups, rank[i]) == node)
                return level;
    }
    return level;
}
