/* Clusters: nodes, devices and links, read from YAML, for predicting without the machines.
 *
 * Every number of a file says where it comes from:
 *   bandwidth: {value: 12.5e9, source: "Hecate, set-up: 100 Gb/s between nodes"}
 *   latency: {value: 5e-6, assumed: "usual for this fabric"}
 * A plain number, or one with both or neither, is refused.
 *
 * Units are bytes, seconds, bytes/s and floating-point operations/s (a multiply and an add are
 * two).  GB = 1e9 bytes.  Ranks are numbered node after node (reference/plan/topology.h).
 *
 * Levels go from near to far, every one with its own links.  The groups of a level are runs of
 * consecutive ranks that reach each other at this level or a nearer one:
 *   self     a rank alone: copies on its own device
 *   (others) any name, `ranks` ranks, for instance pairs joined by a bridge
 *   node     the ranks of a node
 *   cluster  all ranks
 * A group of the next nearer level (a rank, a pair, a node) is joined to the level by `ports`
 * ports of `bandwidth` bytes/s in each direction at once.  How the group's ranks share them:
 *   fixed    rank i of n uses its own i-th part of the ports: ports divides n or n divides ports
 *   pooled   every rank may use all ports together
 * Ports that always carry the same ranks' bytes are one *gate*: with `fixed` there are
 * min(ports, n) gates, with `pooled` there is one.  Of a gate that ranks share one of them gets
 * `rank-bandwidth` at most, where that is given: its own way to the ports, or what the library
 * gets through them for one device.  Every message occupies the gate that it leaves through and the
 * one that it arrives through for `message-cost` seconds beside its bytes (the gap of LogGP,
 * Alexandrov et al., SPAA 1995), nothing where that is not given. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "reference/base/error.h"
#include "reference/base/option.h"
#include "reference/plan/topology.h"

enum {
    MP_CLUSTER_LEVELS = 8,      /* most levels of a file */
    MP_CLUSTER_POINTS = 32,     /* most token counts, and widths, of an efficiency table */
    MP_CLUSTER_NODES = 1 << 20, /* most nodes; most ranks of a node: */
    MP_CLUSTER_NODE_RANKS = 1024
};

enum mp_precision { MP_FP64, MP_FP32, MP_TF32, MP_BF16, MP_FP16, MP_FP8, MP_PRECISIONS };
enum mp_sharing { MP_SHARING_FIXED, MP_SHARING_POOLED };

/* A value and where it comes from.  The text lives as long as the cluster. */
struct mp_quantity {
    double value;
    const char *word;   /* as the file has it; NULL for numbers */
    int choice;         /* of words (enum mp_sharing) instead of value */
    bool assumed;       /* provenance says why it is assumed; else whose number it is */
    const char *origin; /* NULL: the file does not give this quantity */
    int line;           /* 0: not from the file */
};

struct mp_cluster_level {
    const char *name;
    int line;
    int span;                     /* ranks of a group; of cluster: 0, nodes * ranks of a node */
    struct mp_quantity ranks;     /* span of levels with a name of their own */
    struct mp_quantity bandwidth; /* bytes/s of a port in each direction */
    struct mp_quantity latency;   /* seconds of a message of no bytes */
    struct mp_quantity ports;     /* per group of the nearer level; of self: always 1 */
    struct mp_quantity sharing;   /* enum mp_sharing; of self: not given */
    struct mp_quantity rank_bandwidth; /* bytes/s of a rank in each direction; not always given */
    struct mp_quantity message_cost; /* seconds that a message holds a gate; not always given: 0 */
};

/* Share of the peak that a matrix product reaches: share[MP_FORWARD][i][j] at tokens[i] rows (of
 * one expert) and width[j], both strictly ascending; share[MP_BACKWARD] those of the products that
 * give gradients, where the file tells them apart. */
struct mp_cluster_efficiency {
    double tokens[MP_CLUSTER_POINTS];
    int rows;
    double width[MP_CLUSTER_POINTS];
    int columns, directions; /* 1: the same for both; 2 */
    struct mp_quantity share[2][MP_CLUSTER_POINTS][MP_CLUSTER_POINTS];
};

struct mp_cluster {
    char *file;              /* path, for messages */
    const char *description; /* one line */
    const char *device;      /* name */
    int peak_line;
    struct mp_quantity nodes, ranks_per_node;
    struct mp_quantity peak[MP_PRECISIONS]; /* FLOP/s, dense; not all are given */
    struct mp_quantity memory;              /* bytes of a device */
    struct mp_quantity memory_bandwidth;    /* bytes/s */
    struct mp_quantity launch;              /* seconds, fixed cost of a kernel */
    /* Not always given, and needed where optimizer state lies in host memory. */
    struct mp_quantity host_bandwidth; /* bytes/s of a device's link to it in each direction */
    struct mp_quantity host_update; /* bytes/s of its step there, read and written, of one rank */
    /* Not always given, as measured by calibration; accessors below say what stands for them. */
    struct mp_quantity elementwise; /* bytes/s of operations that are no products and no copies */
    struct mp_quantity update;      /* bytes/s of the optimizer's step, read and written */
    struct mp_quantity attention;   /* share of the peak that attention's score products reach */
    struct mp_quantity overlap;     /* 0 .. 1, see mp_cluster_overlap */
    struct mp_cluster_efficiency efficiency;
    struct mp_cluster_level level[MP_CLUSTER_LEVELS];
    int levels;
    struct mp_yaml *document; /* owns all text but `file` and `set` */
    char *set;                /* origin of numbers set by mp_cluster_set */
};

extern const struct mp_option mp_cluster_rows[]; /* what a file may say */

/* Reads a cluster.  Errors: those of mp_yaml_load; MP_EINVAL with "path:line: ..." for unknown keys
 * (with the nearest known one), numbers without origin, values outside their range, levels out of
 * order and ports that the ranks can't share.  mp_cluster_destroy. */
int mp_cluster_load(const char *path, struct mp_cluster **cluster, struct mp_error *error);
void mp_cluster_destroy(struct mp_cluster *cluster); /* accepts NULL */
MP_END(cluster, struct mp_cluster *, mp_cluster_destroy(*it))

/* "nodes=8", "levels.node.bandwidth=50e9" or "levels.node.latency=1e-5": the same cluster with
 * another number, which then counts as assumed.  MP_EINVAL: another key or level, a number outside
 * its range, or several nodes without a level `cluster`; the cluster is as before then. */
int mp_cluster_set(struct mp_cluster *cluster, const char *assignment, struct mp_error *error);

/* The same cluster with a number `factor` times as large, which then counts as assumed: "launch",
 * "elementwise", "overlap", "peak" (of every precision), or "levels.NAME.bandwidth",
 * "levels.NAME.latency" and "levels.NAME.message-cost", which clusters without that level, or where
 * messages cost nothing, pass over.  MP_EINVAL: another key, or a factor not above 0. */
int mp_cluster_scale(struct mp_cluster *cluster, const char *key, double factor,
                     struct mp_error *error);

int mp_cluster_ranks(const struct mp_cluster *cluster);
struct mp_topology mp_cluster_topology(const struct mp_cluster *cluster);

/* Index of the nearest level at which two ranks reach each other; 0 is self. */
int mp_cluster_level_of(const struct mp_cluster *cluster, int rank, int other);
/* Bytes/s of a gate in each direction; and those that a rank alone gets of it. */
double mp_cluster_bandwidth(const struct mp_cluster *cluster, int level);
double mp_cluster_rank_bandwidth(const struct mp_cluster *cluster, int level);
/* All gates of a level.  As many ranks, one after another, go through each to and from this level
 * and share mp_cluster_bandwidth. */
int mp_cluster_gates(const struct mp_cluster *cluster, int level);

/* Share of the peak for `tokens` > 0 rows and `width` > 0 in a direction.  Between points the
 * logarithm of the share is linear in the logarithms of both: exact at the points, up or down
 * between two of them only, and a product of more rows never takes less time unless the table
 * itself says so.  More tokens than the table's most, or a width outside it: as at its edge.  Fewer
 * tokens than its least: in proportion, so that a product of fewer rows takes as long as the
 * smallest known. */
double mp_cluster_share(const struct mp_cluster *cluster, int direction, double tokens,
                        double width);

/* Bytes/s of elementwise operations and of the optimizer: those given, or the memory bandwidth. */
double mp_cluster_elementwise(const struct mp_cluster *cluster);
double mp_cluster_update(const struct mp_cluster *cluster);
/* Share of what a transfer takes that passes beside a rank's own work; the rest is taken from that
 * work, because the processor that computes also copies.  1 if not given. */
double mp_cluster_overlap(const struct mp_cluster *cluster);

/* Seconds of one product (rows x inner) * (inner x columns) of a direction: the fixed cost and the
 * longer of 2*rows*inner*columns operations at the reached share of the peak (width: the smaller of
 * inner and columns) and of moving the three matrices through memory once.  0 for a product of
 * nothing. MP_EINVAL names the file and line if it gives no peak for the precision. */
int mp_cluster_product_seconds(const struct mp_cluster *cluster, enum mp_precision precision,
                               int direction, double rows, double inner, double columns,
                               double *seconds, struct mp_error *error);

double mp_precision_bytes(enum mp_precision precision); /* of an element */

/* Every quantity that the file gives, in its order of reading, with its place ("device.memory",
 * "levels.node.bandwidth") and unit ("B/s", "" for counts and words).
 * The entries of the efficiency table come one by one
 * ("device.efficiency.share.1024.512" for 1024 tokens and width 512, and ".backward." likewise). */
typedef void mp_cluster_visit(void *context, const char *place, const char *unit,
                              const struct mp_quantity *quantity);
void mp_cluster_each(const struct mp_cluster *cluster, mp_cluster_visit *visit, void *context);
