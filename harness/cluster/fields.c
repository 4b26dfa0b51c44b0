/* Fields: the ranges are wide, but refuse a number in other units (12.5 for 12.5 GB/s). */
#include "harness/cluster/fields.h"

#define OF_CLUSTER(member) offsetof(struct mp_cluster, member)
#define OF_LEVEL(member) offsetof(struct mp_cluster_level, member)

const struct mp_cluster_field mp_cluster_size_fields[] = {
    {"nodes", "", OF_CLUSTER(nodes), 1, MP_CLUSTER_NODES, true, NULL, false},
    {"ranks-per-node", "", OF_CLUSTER(ranks_per_node), 1, MP_CLUSTER_NODE_RANKS, true, NULL, false},
    {0},
};

const struct mp_cluster_field mp_cluster_device_fields[] = {
    {"memory", "B", OF_CLUSTER(memory), 1e6, 1e15, false, NULL, false},
    {"memory-bandwidth", "B/s", OF_CLUSTER(memory_bandwidth), 1e6, 1e15, false, NULL, false},
    {"launch", "s", OF_CLUSTER(launch), 0, 1, false, NULL, false},
    {"host-bandwidth", "B/s", OF_CLUSTER(host_bandwidth), 1e6, 1e15, false, NULL, true},
    {"host-update", "B/s", OF_CLUSTER(host_update), 1e6, 1e15, false, NULL, true},
    {"elementwise", "B/s", OF_CLUSTER(elementwise), 1e6, 1e15, false, NULL, true},
    {"update", "B/s", OF_CLUSTER(update), 1e6, 1e15, false, NULL, true},
    {"attention", "", OF_CLUSTER(attention), 1e-9, 1, false, NULL, true},
    {"overlap", "", OF_CLUSTER(overlap), 0, 1, false, NULL, true},
    {0},
};

/* In the order of enum mp_precision. */
const struct mp_cluster_field mp_cluster_peak_fields[] = {
    {"fp64", "FLOP/s", OF_CLUSTER(peak[MP_FP64]), 1e6, 1e18, false, NULL, true},
    {"fp32", "FLOP/s", OF_CLUSTER(peak[MP_FP32]), 1e6, 1e18, false, NULL, true},
    {"tf32", "FLOP/s", OF_CLUSTER(peak[MP_TF32]), 1e6, 1e18, false, NULL, true},
    {"bf16", "FLOP/s", OF_CLUSTER(peak[MP_BF16]), 1e6, 1e18, false, NULL, true},
    {"fp16", "FLOP/s", OF_CLUSTER(peak[MP_FP16]), 1e6, 1e18, false, NULL, true},
    {"fp8", "FLOP/s", OF_CLUSTER(peak[MP_FP8]), 1e6, 1e18, false, NULL, true},
    {0},
};

const struct mp_cluster_field mp_cluster_level_fields[] = {
    {"ranks", "", OF_LEVEL(ranks), 2, MP_CLUSTER_NODE_RANKS, true, NULL, true},
    {"bandwidth", "B/s", OF_LEVEL(bandwidth), 1e6, 1e15, false, NULL, false},
    {"latency", "s", OF_LEVEL(latency), 0, 1, false, NULL, false},
    {"ports", "", OF_LEVEL(ports), 1, 4096, true, NULL, true},
    {"sharing", "", OF_LEVEL(sharing), 0, 0, false, "fixed pooled", true},
    {"rank-bandwidth", "B/s", OF_LEVEL(rank_bandwidth), 1e6, 1e15, false, NULL, true},
    {"message-cost", "s", OF_LEVEL(message_cost), 0, 1, false, NULL, true},
    {0},
};

const struct mp_cluster_field mp_cluster_share_fields[] = {
    {"share", "", 0, 1e-9, 1, false, NULL, false},
    {"backward", "", 0, 1e-9, 1, false, NULL, true},
    {0},
};
