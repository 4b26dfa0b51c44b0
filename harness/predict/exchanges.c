#include "harness/predict/exchanges.h"

#include <stdlib.h>

#include "harness/predict/network.h"

struct pass {
    const struct mp_exchange *exchange;
    struct mp_topology topology;
    struct mp_network *network;
    struct mp_traffic *traffic;
    double bytes;
    double *clock; /* [ranks] */
};

/* Blocks of all pairs from where they are before a round to where they are behind it; or, where
 * they are put in order, to the same rank. */
static void carry(const struct pass *pass, int round, bool orders) {
    int ranks = pass->topology.ranks;
    mp_traffic_clear(pass->traffic);
    for (int from = 0; from < ranks; from++)
        for (int to = 0; to < ranks; to++) {
            int at = mp_exchange_stop(pass->exchange, &pass->topology, from, to, round - 1);
            int next = mp_exchange_stop(pass->exchange, &pass->topology, from, to, round);
            mp_traffic_add(pass->traffic, at, orders ? at : next, pass->bytes);
        }
    mp_network_exchange(pass->network, pass->traffic, false, pass->clock, pass->clock);
}

int mp_exchange_seconds(const struct mp_cluster *cluster, enum mp_exchange_kind kind, double bytes,
                        double *seconds, struct mp_error *error) {
    struct pass pass = {
        .exchange = mp_exchange_of(kind), .topology = mp_cluster_topology(cluster), .bytes = bytes};
    int code = mp_network_create(cluster, &pass.network, error);
    if (!code)
        code = mp_traffic_create(pass.network, &pass.traffic, error);
    pass.clock = code ? NULL : calloc((size_t)pass.topology.ranks, sizeof *pass.clock);
    if (!code && !pass.clock)
        code =
            mp_fail(error, MP_ENOMEM, "no memory for the clocks of %d ranks", pass.topology.ranks);
    for (int round = 0; !code && round < pass.exchange->rounds; round++) {
        if (pass.exchange->reorders >> round & 1)
            carry(&pass, round, true);
        carry(&pass, round, false);
        code = mp_network_check(pass.network, error);
    }
    *seconds = 0;
    for (int rank = 0; !code && rank < pass.topology.ranks; rank++)
        *seconds = pass.clock[rank] > *seconds ? pass.clock[rank] : *seconds;
    free(pass.clock);
    mp_traffic_destroy(pass.traffic);
    mp_network_destroy(pass.network);
    return code;
}
