/* Network: how long bytes take between ranks that share ports.
 *
 * The ranks of a cluster (harness/cluster) reach each other at levels; at each level a rank's bytes
 * leave and arrive through its gate, which has a bandwidth in each direction and may be shared with
 * neighbours, of whom each may have a limit of its own (rank-bandwidth).  A message between two
 * ranks uses the two gates of the nearest level at which they reach each other, and starts when
 * both ranks are there.  It occupies each of them for the time of its bytes and the level's
 * message-cost.  All that one rank sends another in an exchange is one message.
 *
 * Times are seconds from any origin, computed with IEEE operations in a fixed order: the same bits
 * on every machine. */
#pragma once

#include <stdint.h>

#include "harness/cluster/cluster.h"

struct mp_network; /* of one cluster, with working memory; one thread at a time */

/* The cluster is borrowed until destroy.  MP_ENOMEM, naming the ranks. */
int mp_network_create(const struct mp_cluster *cluster, struct mp_network **network,
                      struct mp_error *error);
void mp_network_destroy(struct mp_network *network); /* accepts NULL */
MP_END(network, struct mp_network *, mp_network_destroy(*it))

/* Traffic: the bytes of one exchange, from every rank to every other.  It can be kept and carried
 * out several times, forwards and backwards. */
struct mp_traffic;
/* MP_ENOMEM, naming the ranks. */
int mp_traffic_create(const struct mp_network *network, struct mp_traffic **traffic,
                      struct mp_error *error);
void mp_traffic_destroy(struct mp_traffic *traffic); /* accepts NULL */
MP_END(traffic, struct mp_traffic *, mp_traffic_destroy(*it))
void mp_traffic_clear(struct mp_traffic *traffic);
/* Adds bytes (>= 0) from one rank to another, or to itself, which costs a copy on its device. */
void mp_traffic_add(struct mp_traffic *traffic, int from, int to, double bytes);
/* The rows that a rank sends: adds them to rows[] by destination, zeros at first, lists in to[] the
 * destinations that got some, each once, and returns how many these are. */
typedef int mp_traffic_rows(void *context, int from, uint32_t rows[], int32_t to[]);
/* Clears the traffic and fills it with what is said of each rank in ascending order, at so many
 * bytes per row. */
void mp_traffic_fill(struct mp_traffic *traffic, mp_traffic_rows *rows_of, void *context,
                     double row_bytes);
/* Bytes of memory that a traffic has. */
size_t mp_traffic_bytes(const struct mp_traffic *traffic);

/* A traffic grows with its messages.  MP_ENOMEM if there was no memory for bytes of any traffic of
 * this network so far, which are then missing in exchanges and sums. */
int mp_network_check(const struct mp_network *network, struct mp_error *error);

/* Carries the traffic out: ready[r] is when rank r comes to the exchange, done[r] (out) when the
 * last byte that it sends has left and the last one that it gets has arrived; at least ready[r].
 * `back` lets every byte travel the other way round.  ready and done may be the same array.
 * A rank that neither sends nor gets anything is done at once.
 *
 * The last rank's end is that of the busiest gate, work-conserving; more bytes, or a later rank,
 * never make it earlier.  Fair sharing may end a little later, where a gate is idle because all
 * that is left for it is held up by others (tests/harness/predict measures how much).  Other ranks'
 * ends are estimates of fair sharing; a rank that comes late after a pause of a gate makes the
 * estimate for those who used the gate before too late, at most the end of that gate. Bytes and
 * times of one exchange are kept to about 1e-6 of themselves.  The first exchange after bytes were
 * added also sorts them by level; that, and every exchange, takes steps in proportion to ranks and
 * messages. */
void mp_network_exchange(struct mp_network *network, struct mp_traffic *traffic, bool back,
                         const double ready[], double done[]);

/* Of the same traffic: how long the gates that rank r uses are busy with the bytes of all who share
 * them, and with what their messages cost, or its own limit lets them take, the longest of them and
 * of the two directions, with the messages' latency: what it would take if nobody at other gates
 * were in the way and all were there; 0 without bytes.  [ranks].  No exchange takes less than the
 * largest of them.  And at which level of the cluster these gates are, and how long those at any
 * other are; both may be NULL. */
void mp_network_alone(struct mp_network *network, struct mp_traffic *traffic, double seconds[],
                      double others[], uint8_t level[]);

/* Bytes that ranks send themselves: [ranks]. */
void mp_traffic_copies(struct mp_traffic *traffic, double bytes[]);
/* Levels of the cluster at whose gates a rank sends or gets any: bits 1 << level, of which level 0
 * is the rank itself. */
unsigned mp_traffic_levels(struct mp_traffic *traffic, int rank);
/* Bytes that cross a rank's border: [ranks], either may be NULL. */
void mp_traffic_totals(struct mp_traffic *traffic, double sent[], double received[]);

/* Seconds of summing `bytes` over all ranks (ring: reduce-scatter and all-gather, inside nodes
 * first, then between the ranks of a kind in all nodes, whose gates they share), and of gathering
 * `bytes` per rank at every rank.  A level that joins n groups takes n-1 steps in a ring; of the
 * gather, from far to near, a step carries what the rank has so far:
 *   sum over levels, far to near,
 *       (n - 1) * (sharers * (bytes / bandwidth + message-cost) + latency), bytes *= n
 * with as many sharers as ranks have one gate, and bytes / rank-bandwidth + message-cost where that
 * is longer. The sum is two gathers of bytes / ranks, where at the farthest of several levels two
 * trees take the ring's place if they take less: the bytes of a group of the next nearer level
 * once, and ceil(log2 n) times (sharers * message-cost + latency).  Sources: Patarasuk and Yuan,
 * JPDC 2009 (rings); Sanders, Speck and Traeff, Parallel Computing 2009 (trees). */
double mp_network_all_reduce(const struct mp_network *network, double bytes);
double mp_network_all_gather(const struct mp_network *network, double bytes);
