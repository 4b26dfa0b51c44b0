/* SYMI's cost formulas, per rank and phase (systems.md 2.6.4). */
#include "baselines/swiftmoe/swiftmoe.h"

/* What crosses from or to the host, at the GPU's own link. */
static double local_seconds(const struct mp_swiftmoe_cluster *cluster, double bytes) {
    return cluster->experts / cluster->nodes * bytes / cluster->local_bandwidth;
}

double mp_swiftmoe_static_seconds(const struct mp_swiftmoe_cluster *cluster, double bytes) {
    double foreign = (cluster->slots * cluster->nodes - cluster->experts) / cluster->nodes;

    return local_seconds(cluster, bytes) + foreign * bytes / cluster->bandwidth;
}

double mp_swiftmoe_seconds(const struct mp_swiftmoe_cluster *cluster, double bytes) {
    return local_seconds(cluster, bytes) + mp_swiftmoe_network_seconds(cluster, bytes, 1);
}

double mp_swiftmoe_relative_extra(const struct mp_swiftmoe_cluster *cluster, bool offload) {
    double ratio = offload ? cluster->bandwidth / cluster->local_bandwidth : 0;

    return (cluster->experts - cluster->slots) /
           (cluster->slots * cluster->nodes - cluster->experts * (1 - ratio));
}

double mp_swiftmoe_network_seconds(const struct mp_swiftmoe_cluster *cluster, double bytes,
                                   int groups) {
    double foreign = (cluster->slots * cluster->nodes - cluster->slots) / cluster->nodes;

    return groups * foreign * bytes / cluster->bandwidth;
}

double mp_swiftmoe_phase_bytes(const struct mp_swiftmoe_cluster *cluster, double bytes) {
    return cluster->slots * cluster->nodes * bytes;
}

double mp_swiftmoe_state_bytes(const struct mp_swiftmoe_cluster *cluster,
                               double state_bytes_of_one) {
    return cluster->experts * state_bytes_of_one;
}

double mp_swiftmoe_move_seconds(const struct mp_swiftmoe_cluster *cluster, double weight_bytes,
                                double state_bytes) {
    return (weight_bytes + state_bytes) / cluster->bandwidth;
}
