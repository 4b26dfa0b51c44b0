/* Fields: the ranges are wide, but refuse a number in other units (12.5 for 12.5 GB/s). */
#include "harness/cluster/fields.h"

#define OF_CLUSTER(member) offsetof(struct mp_cluster, member)
#define OF_LEVEL(member) offsetof(struct mp_cluster_level, member)
#define QUANTITY "{value: ..., source: \"whose\"} or {value: ..., assumed: \"why\"}"

#define NUMBER(name, at, unit, or_else, least, most, help)                                         \
    { name, MP_OPTION_FORM, at, unit, or_else, least, most, &mp_cluster_number, help }

const struct mp_option_form mp_cluster_number = {.what = QUANTITY,
                                                 .read = mp_cluster_read_quantity};
const struct mp_option_form mp_cluster_whole = {.what = QUANTITY, .read = mp_cluster_read_quantity};
const struct mp_option_form mp_cluster_sharing = {.what = QUANTITY " of fixed or pooled",
                                                  .read = mp_cluster_read_quantity};
const struct mp_option_form mp_cluster_table = {
    .what = "{tokens: [...], width: [...], share: [[...], ...], source: \"whose\"}, with assumed: "
            "\"why\" instead, or backward: [[...], ...] beside share",
    .read = mp_cluster_read_table};

const struct mp_option mp_cluster_share_rows[] = {
    NUMBER("share", 0, "", NULL, 1e-9, 1, "of the peak"),
    NUMBER("backward", 0, "", NULL, 1e-9, 1, "of the peak"),
    {0},
};

#define PEAK(name, precision)                                                                      \
    {                                                                                              \
        name, MP_OPTION_FORM, OF_CLUSTER(peak[precision]), "FLOP/s", "", 1e6, 1e18,                \
            &mp_cluster_number, "dense products"                                                   \
    }
const struct mp_option mp_cluster_peak_rows[] = {
    PEAK("fp64", MP_FP64),
    PEAK("fp32", MP_FP32),
    PEAK("tf32", MP_TF32),
    PEAK("bf16", MP_BF16),
    PEAK("fp16", MP_FP16),
    PEAK("fp8", MP_FP8),
    {"", MP_OPTION_LINE, .offset = OF_CLUSTER(peak_line)},
    {0}};
static const struct mp_option_form peak = {"the peak", mp_cluster_peak_rows,
                                           sizeof(struct mp_cluster), NULL};

static const struct mp_option device_rows[] = {
    {"name", MP_OPTION_STRING, OF_CLUSTER(device), "", NULL, 0, 0, NULL, "as its maker calls it"},
    {"peak", MP_OPTION_MAPPING, 0, "", NULL, 1, MP_PRECISIONS, &peak,
     "rates by precision, one at least"},
    NUMBER("memory", OF_CLUSTER(memory), "B", NULL, 1e6, 1e15, "of a device"),
    NUMBER("memory-bandwidth", OF_CLUSTER(memory_bandwidth), "B/s", NULL, 1e6, 1e15,
           "of that memory"),
    NUMBER("launch", OF_CLUSTER(launch), "s", NULL, 0, 1, "fixed cost of a kernel"),
    NUMBER("host-bandwidth", OF_CLUSTER(host_bandwidth), "B/s", "", 1e6, 1e15,
           "of a device's link to host memory in each direction"),
    NUMBER("host-update", OF_CLUSTER(host_update), "B/s", "", 1e6, 1e15,
           "of the optimizer's step there, read and written, of one rank"),
    NUMBER("elementwise", OF_CLUSTER(elementwise), "B/s", "", 1e6, 1e15,
           "of operations that are no products; else memory-bandwidth"),
    NUMBER("update", OF_CLUSTER(update), "B/s", "", 1e6, 1e15,
           "of the optimizer's step; else memory-bandwidth"),
    NUMBER("attention", OF_CLUSTER(attention), "", "", 1e-9, 1,
           "share of the peak that attention's score products reach"),
    NUMBER("overlap", OF_CLUSTER(overlap), "", "", 0, 1,
           "share of a transfer's time that passes beside a rank's own work; else 1"),
    {"efficiency", MP_OPTION_FORM, OF_CLUSTER(efficiency), "", NULL, 0, 0, &mp_cluster_table,
     "share of the peak that a product of so many tokens, an expert's, and of this width reaches"},
    {0},
};
static const struct mp_option_form device = {"the device", device_rows, sizeof(struct mp_cluster),
                                             NULL};

const struct mp_option mp_cluster_level_rows[] = {
    {"", MP_OPTION_KEY, .offset = OF_LEVEL(name)},
    {"", MP_OPTION_LINE, .offset = OF_LEVEL(line)},
    {"ranks", MP_OPTION_FORM, OF_LEVEL(ranks), "", "", 2, MP_CLUSTER_NODE_RANKS, &mp_cluster_whole,
     "of a group; of self, node and cluster their names say it"},
    NUMBER("bandwidth", OF_LEVEL(bandwidth), "B/s", NULL, 1e6, 1e15, "of a port in each direction"),
    NUMBER("latency", OF_LEVEL(latency), "s", NULL, 0, 1, "of a message of no bytes"),
    {"ports", MP_OPTION_FORM, OF_LEVEL(ports), "", "", 1, 4096, &mp_cluster_whole,
     "that join a group of the nearer level; must be given, but of self, which has none"},
    {"sharing", MP_OPTION_FORM, OF_LEVEL(sharing), "", "", 0, 0, &mp_cluster_sharing,
     "of its ports: fixed, a rank has its own part of them; pooled, all have all; must be given, "
     "but of self, which has none"},
    NUMBER("rank-bandwidth", OF_LEVEL(rank_bandwidth), "B/s", "", 1e6, 1e15,
           "the most that one rank gets of ports that it shares"),
    NUMBER("message-cost", OF_LEVEL(message_cost), "s", "", 0, 1,
           "that a message holds both ends' ports beside its bytes"),
    {0},
};
static const struct mp_option_form level = {"a level", mp_cluster_level_rows,
                                            sizeof(struct mp_cluster_level), NULL};

const struct mp_option mp_cluster_rows[] = {
    {"description", MP_OPTION_STRING, OF_CLUSTER(description), "", NULL, 0, 0, NULL, "one line"},
    {"nodes", MP_OPTION_FORM, OF_CLUSTER(nodes), "", NULL, 1, MP_CLUSTER_NODES, &mp_cluster_whole,
     "how many there are"},
    {"ranks-per-node", MP_OPTION_FORM, OF_CLUSTER(ranks_per_node), "", NULL, 1,
     MP_CLUSTER_NODE_RANKS, &mp_cluster_whole, "devices of a node, each a rank"},
    {"device", MP_OPTION_MAPPING, 0, "", NULL, 0, 0, &device, "what every rank computes on"},
    {"levels", MP_OPTION_NAMED, OF_CLUSTER(level), "", NULL, 1, MP_CLUSTER_LEVELS, &level,
     "links from near to far: self, groups by any name, node, cluster"},
    {0},
};
