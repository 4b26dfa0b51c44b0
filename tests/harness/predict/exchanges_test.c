/* Exchanges by themselves, worked out by hand. */
#include "harness/predict/exchanges.h"

#include "tests/harness/predict/exchange.h"

/* 2 nodes of 2 ranks, 100 MB/s and 0.25 s inside, 10 MB/s and 1 s between, of whose messages each
 * takes 0.5 s; copies at 100 MB/s.  Every rank has 10 MB for every other one, and itself. */
static const struct {
    enum mp_exchange_kind kind;
    int ports;
    double seconds;
} cases[] = {
    /* Two messages of 1 s leave through a rank's own card; four through one that two share. */
    {MP_EXCHANGE_FLAT, 2, 2 * 1.5 + 1},
    {MP_EXCHANGE_FLAT, 1, 4 * 1.5 + 1},
    /* Four chunks put in order, two to the neighbour, again, then one message of two. */
    {MP_EXCHANGE_TWO_LEVEL, 2, 0.4 + 0.45 + 0.4 + 2 + 0.5 + 1},
    {MP_EXCHANGE_TWO_LEVEL, 1, 0.4 + 0.45 + 0.4 + 2 * 2.5 + 1},
    /* All four to the first rank and back; it puts eight in order before and behind one message of
     * four. */
    {MP_EXCHANGE_LEADER, 2, 0.65 + 0.8 + 4 + 0.5 + 1 + 0.8 + 0.65},
    {MP_EXCHANGE_LEADER, 1, 0.65 + 0.8 + 4 + 0.5 + 1 + 0.8 + 0.65},
};

TEST_ROWS(rounds_follow_each_other, cases, row) {
    const struct shape shape = {2, 2, row->ports, false, 100e6, 10e6, 0.25, 1, 0};
    AUTO(cluster) struct mp_cluster *cluster = shape_cluster(&shape);
    double seconds = 0;
    assert_works(mp_cluster_set(cluster, "levels.cluster.message-cost=0.5", &error));
    assert_works(mp_cluster_set(cluster, "levels.self.bandwidth=1e8", &error));
    assert_works(mp_exchange_seconds(cluster, row->kind, 1e7, &seconds, &error));
    assert_close(seconds, row->seconds, 1e-5);
}
