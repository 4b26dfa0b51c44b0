#include "harness/predict/exchanges.h"

#include "harness/predict/network.h"
#include "reference/base/arena.h"

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
    MP_AUTO(network) struct mp_network *network = NULL;
    MP_AUTO(traffic) struct mp_traffic *traffic = NULL;
    MP_AUTO(arena) struct mp_arena arena = {0};
    double *clock; /* [ranks] */
    MP_TRY(mp_network_create(cluster, &network, error));
    MP_TRY(mp_traffic_create(network, &traffic, error));
    const struct mp_topology topology = mp_cluster_topology(cluster);
    MP_TAKE(&arena, clock, topology.ranks);
    MP_TRY(mp_arena_check(&arena, error));
    const struct pass pass = {mp_exchange_of(kind), topology, network, traffic, bytes, clock};
    for (int round = 0; round < pass.exchange->rounds; round++) {
        if (pass.exchange->reorders >> round & 1)
            carry(&pass, round, true);
        carry(&pass, round, false);
        MP_TRY(mp_network_check(network, error));
    }
    *seconds = 0;
    for (int rank = 0; rank < topology.ranks; rank++)
        *seconds = clock[rank] > *seconds ? clock[rank] : *seconds;
    return MP_OK;
}
