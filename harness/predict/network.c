/* How an exchange is worked out.
 *
 * Reference is max-min fair sharing of the gates by flows that all run at once, as SimGrid has it
 * (Casanova et al., JPDC 2014, section 3).  Its makespan is that of the busiest gate in all but
 * contrived cases: whichever discipline a gate follows, it is busy from its first message on as
 * long as there is something for it to carry, unless all messages that are left for it are held up
 * by other gates; these are then busy, and have to be nearly as loaded for it to matter.  So a gate
 * ends at t = max(t, start) + bytes / bandwidth over its messages in order of start.
 *
 * A rank waits for its own messages only, and one of them ends before its gate does if it is
 * shorter than others there.  It takes as long as the slower of its two gates would need with all
 * messages starting together (the curve of traffic.c), and at most until that gate has ended.
 *
 * A rank's limit is a gate of its own behind the one that it shares: an exchange is worked out with
 * the one and with the other, and a rank is done when it is with both.  That may be up to a
 * quarter too early where both take about as long: fair sharing lets a rank have less than its
 * limit while others are busy, and it gets no more than that when they are through.
 *
 * Latency delays a message's first byte and occupies nothing, since messages of a rank are under
 * way at the same time (as in SimGrid, and where a library posts all of them before it waits).  All
 * messages of a level have the same latency, so it is added to the level's end.
 *
 * What a message costs beside its bytes, in its library, its card's queue or the protocol's steps,
 * occupies both of its gates, as if it had so many bytes more: the fewer messages, the less of it
 * (the gap g of LogGP, Alexandrov et al., SPAA 1995).  SimGrid has nothing of it.
 *
 * Inside a group time is counted in bytes at its bandwidth, from the first rank's coming; floats
 * keep an exchange's time to about 1e-6 of it. */
#include "harness/predict/network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/predict/ports.h"

/* ---- life ---- */

static void find_levels(struct mp_network *network) {
    const struct mp_cluster *cluster = network->cluster;
    int near = 1;
    for (int l = 1; l < cluster->levels; l++) {
        int span = cluster->level[l].span ? cluster->level[l].span : network->ranks;
        if (span == near) /* joins nothing: one rank per node, or one node */
            continue;
        struct mp_port_level *level = &network->level[network->levels++];
        level->level = l;
        level->span = span;
        level->near = near;
        level->stride = (span + MP_LANES - 1) / MP_LANES * MP_LANES;
        level->groups = network->ranks / span;
        level->width = network->ranks / mp_cluster_gates(cluster, l);
        level->bandwidth = mp_cluster_bandwidth(cluster, l);
        level->latency = cluster->level[l].latency.value;
        level->rank_bandwidth = mp_cluster_rank_bandwidth(cluster, l);
        level->message_cost = cluster->level[l].message_cost.value;
        if (level->width == 1)
            level->bandwidth = level->rank_bandwidth;
        network->limited |= mp_port_limited(level);
        network->priced |= level->message_cost > 0;
        level->lane = network->lanes;
        network->lanes += (size_t)level->groups * (size_t)level->stride;
        near = span;
    }
}

static bool create_memory(struct mp_network *network) {
    size_t lanes = ((size_t)network->ranks + MP_LANES - 1) / MP_LANES * MP_LANES;
    struct mp_port_memory *memory = calloc(1, sizeof *memory);
    network->memory = memory;
    if (!memory)
        return false;
    for (int l = 0; l < network->levels; l++) {
        size_t strips = (size_t)network->level[l].stride / MP_LANES;
        memory->row_floats += strips * MP_TILE;
        memory->present_words += strips / MP_PRESENT_BITS + 1;
    }
    MP_TAKE(&memory->tables, memory->rows, memory->row_floats + 1);
    MP_TAKE(&memory->tables, memory->present, memory->present_words + 1);
    MP_TAKE(&memory->tables, memory->count, (size_t)network->ranks + 1);
    MP_TAKE_EACH(&memory->tables, network->ranks, memory->sent, memory->to);
    MP_TAKE_EACH(&memory->tables, lanes, network->order, network->merge, network->position,
                 network->ready, network->part, network->done, network->finish);
    for (int way = MP_SENDING; way <= MP_RECEIVING; way++)
        MP_TAKE_EACH(&memory->tables, lanes, network->end[way], network->own[way]);
    return !memory->tables.lacking;
}

int mp_network_create(const struct mp_cluster *cluster, struct mp_network **network,
                      struct mp_error *error) {
    struct mp_network *new = calloc(1, sizeof *new);
    int ranks = mp_cluster_ranks(cluster);
    if (new) {
        new->cluster = cluster;
        new->ranks = ranks;
        find_levels(new);
    }
    if (!new || !create_memory(new)) {
        mp_network_destroy(new);
        return mp_fail(error, MP_ENOMEM, "network: no memory for %d ranks", ranks);
    }
    *network = new;
    return MP_OK;
}

void mp_network_destroy(struct mp_network *network) {
    if (!network)
        return;
    if (network->memory)
        mp_arena_release(&network->memory->tables);
    free(network->memory);
    free(network);
}

/* ---- order of coming ---- */

/* The ranks of a strip, each compared with all others without a branch. */
static void order_strip(const float ready[], int first, int order[]) {
    const mp_four mine = mp_get_four(ready + first);
    const mp_four_bits number = {0, 1, 2, 3};
    mp_four_bits earlier = {0}; /* a comparison that holds is -1 */
    for (int k = 0; k < MP_LANES; k++) {
        mp_four other = mp_spread_four(ready[first + k]);
        earlier -= (other < mine) | ((other == mine) & (number > k));
    }
    for (int k = 0; k < MP_LANES; k++)
        order[first + earlier[k]] = first + k;
}

static void merge_runs(const float ready[], const int from[], int begin, int middle, int end,
                       int to[]) {
    int left = begin, right = middle;
    for (int i = begin; i < end; i++) {
        bool takes_right =
            right < end && (left >= middle || ready[from[right]] < ready[from[left]]);
        to[i] = takes_right ? from[right++] : from[left++];
    }
}

/* order[] by time of coming, of equal ones by number: inside each strip, or `all` together. */
static void order_ranks(struct mp_network *network, int span, bool all) {
    int *order = network->order, *merge = network->merge;
    for (int first = 0; first < span; first += MP_LANES)
        order_strip(network->ready, first, order);
    for (int run = MP_LANES; all && run < span; run *= 2) {
        for (int begin = 0; begin < span; begin += 2 * run) {
            int middle = begin + run < span ? begin + run : span;
            int end = begin + 2 * run < span ? begin + 2 * run : span;
            merge_runs(network->ready, order, begin, middle, end, merge);
        }
        int *sorted = merge;
        merge = order;
        order = sorted;
    }
    network->order = order;
    network->merge = merge;
}

/* ---- gates ---- */

static inline float larger(float a, float b) {
    return a > b ? a : b;
}

/* One direction of a group: what each rank exchanges, by the one whose row it is. */
struct side {
    const struct mp_port_matrix *matrix;
    const float *tiles;                /* what its messages hold gates for */
    const struct mp_port_strip *strip; /* of the group */
    const struct mp_port_curve *curve; /* of the gates that the rows' ranks have */
    size_t at;                         /* of the group's first rank in it */
};

/* The end of gates that are one rank's each: those that receive, from what is sent (rows of
 * senders), or those that send, from the transpose.  Taken in order of coming, the messages of a
 * port come in order of start. */
static void end_gates(const struct mp_network *network, const struct mp_port_level *level,
                      const struct side *side, float end[]) {
    const float *ready = network->ready;
    const mp_four zero = {0};
    memset(end, 0, (size_t)level->stride * sizeof *end);
    for (int i = 0; i < level->span; i++) {
        unsigned rank = (unsigned)network->order[i];
        const struct mp_port_strip *strip = &side->strip[rank / MP_LANES];
        const int32_t *other = side->matrix->other + strip->first, *past = other + strip->tiles;
        const float *row = mp_port_row(side->tiles, strip, rank % MP_LANES);
        const mp_four comes = mp_spread_four(ready[rank]);
        for (; other < past; other++, row += MP_TILE) {
            size_t at = (size_t)*other * MP_LANES;
            mp_four bytes = mp_get_four(row);
            mp_four start = mp_larger_four(mp_get_four(ready + at), comes);
            start = mp_choose_four(bytes > zero, start, zero);
            mp_put_four(mp_larger_four(mp_get_four(end + at), start) + bytes, end + at);
        }
    }
}

/* bytes[c] += what rows begin .. end-1 hold for c, if c comes later than the row's rank. */
static void add_starting(const struct mp_network *network, const struct side *side, int begin,
                         int end, float bytes[]) {
    const mp_four zero = {0};
    for (int first = begin / MP_LANES * MP_LANES; first < end; first += MP_LANES) {
        const struct mp_port_strip *strip = &side->strip[first / MP_LANES];
        const int32_t *other = side->matrix->other + strip->first;
        const float *tile = mp_port_row(side->tiles, strip, 0);
        mp_four_bits own[MP_LANES];
        for (int k = 0; k < MP_LANES; k++) {
            bool any = first + k >= begin && first + k < end;
            int at = any ? network->position[first + k] : network->ranks; /* nobody comes later */
            own[k] = (mp_four_bits){at, at, at, at};
        }
        for (int t = 0; t < strip->tiles; t++, tile += MP_TILE) {
            size_t to = (size_t)other[t] * MP_LANES;
            mp_four_bits at;
            mp_four some[MP_LANES];
            memcpy(&at, network->position + to, sizeof at);
            for (int k = 0; k < MP_LANES; k++)
                some[k] = mp_choose_four(at > own[k], mp_get_four(tile + k * MP_LANES), zero);
            mp_put_four(mp_get_four(bytes + to) + ((some[0] + some[1]) + (some[2] + some[3])),
                        bytes + to);
        }
    }
}

/* The same of gates that several ranks share: a message's start is when the later of its two ranks
 * comes, whichever side of the gate it is on.  `here` has rows of the gates' ranks, `there` of
 * those at the other end. */
static void end_shared_gates(const struct mp_network *network, const struct mp_port_level *level,
                             const struct side *here, const struct side *there, float *end) {
    size_t size = (size_t)level->stride * sizeof(float);
    /* What starts with each rank's coming: inside, at its own gate; outside, at the one at hand. */
    float *inside = network->done, *outside = network->part;
    for (int i = 0; i < level->span; i++)
        network->position[network->order[i]] = i;
    memset(inside, 0, size);
    add_starting(network, there, 0, level->span, inside);
    for (int first = 0; first < level->span; first += level->width) {
        int past = first + level->width;
        float t = 0;
        memset(outside, 0, size);
        add_starting(network, here, first, past, outside);
        for (int rank = first; rank < past; rank++)
            outside[rank] += inside[rank];
        for (int i = 0; i < level->span; i++) {
            int rank = network->order[i];
            t = outside[rank] > 0 ? larger(t, network->ready[rank]) + outside[rank] : t;
        }
        for (int rank = first; rank < past; rank++)
            end[rank] = t;
    }
}

/* ---- messages ---- */

/* Four ranks' gates, or four times one: when the rank comes, the last message's end, the curve. */
struct gates {
    mp_four comes, last, count, slope, rest;
};

/* When messages with ranks that come at `ready` are through; 0 without bytes. */
static inline mp_four through(const struct gates *gates, mp_four bytes, mp_four ready) {
    const mp_four zero = {0};
    mp_four time = mp_smaller_four(gates->count * bytes, gates->rest + gates->slope * bytes);
    time = mp_smaller_four(mp_larger_four(ready, gates->comes) + time, gates->last);
    return mp_choose_four(bytes > zero, time, zero);
}

/* When messages are through the gates of the side's ranks, as far as those care who are at their
 * other end: done[] of them. */
static void end_messages(const struct mp_network *network, const struct mp_port_level *level,
                         const struct side *side, const float *end) {
    const float *ready = network->ready;
    const struct mp_port_curve *curve = side->curve;
    for (int first = 0; first < level->stride; first += MP_LANES) {
        const struct mp_port_strip *strip = &side->strip[first / MP_LANES];
        const int32_t *other = side->matrix->other + strip->first;
        const float *tile = mp_port_row(side->tiles, strip, 0);
        struct gates gate[MP_LANES];
        for (int k = 0; strip->tiles > 0 && k < MP_LANES; k++) {
            size_t at = side->at + (size_t)(first + k);
            gate[k] =
                (struct gates){mp_spread_four(ready[first + k]), mp_spread_four(end[first + k]),
                               mp_spread_four(curve->count[at]), mp_spread_four(curve->slope[at]),
                               mp_spread_four(curve->rest[at])};
        }
        for (int t = 0; t < strip->tiles; t++, tile += MP_TILE) {
            size_t to = (size_t)other[t] * MP_LANES;
            mp_four comes = mp_get_four(ready + to), done = mp_get_four(network->done + to);
            for (int k = 0; k < MP_LANES; k++)
                done = mp_larger_four(done,
                                      through(&gate[k], mp_get_four(tile + k * MP_LANES), comes));
            mp_put_four(done, network->done + to);
        }
    }
}

/* The same for the ranks whose gates they are, who share them with others: own[] of them.  Rows of
 * `there` hold what those at the other end exchange with each of them. */
static void end_own_messages(const struct mp_network *network, const struct mp_port_level *level,
                             const struct side *there, const struct mp_port_curve *curve,
                             const float *end, float *own) {
    const float *ready = network->ready;
    for (int first = 0; first < level->stride; first += MP_LANES) {
        const struct mp_port_strip *strip = &there->strip[first / MP_LANES];
        const int32_t *other = there->matrix->other + strip->first;
        const float *tile = mp_port_row(there->tiles, strip, 0);
        for (int t = 0; t < strip->tiles; t++, tile += MP_TILE) {
            size_t to = (size_t)other[t] * MP_LANES, at = there->at + to;
            struct gates gates = {mp_get_four(ready + to), mp_get_four(end + to),
                                  mp_get_four(curve->count + at), mp_get_four(curve->slope + at),
                                  mp_get_four(curve->rest + at)};
            mp_four last = mp_get_four(own + to);
            for (int k = 0; k < MP_LANES; k++)
                last = mp_larger_four(last, through(&gates, mp_get_four(tile + k * MP_LANES),
                                                    mp_spread_four(ready[first + k])));
            mp_put_four(last, own + to);
        }
    }
}

/* A gate's last message is its rank's; of the ranks that share one, it is that of the one with the
 * last end of its own. */
static void end_owners(const struct mp_network *network, const struct mp_port_level *level,
                       const float *restrict end, const float *restrict own) {
    float *restrict done = network->done;
    for (int rank = 0; level->width == 1 && rank < level->span; rank++)
        done[rank] = larger(done[rank], end[rank]);
    for (int first = 0; level->width > 1 && first < level->span; first += level->width) {
        int owner = first;
        for (int rank = first; rank < first + level->width; rank++) {
            done[rank] = larger(done[rank], own[rank]);
            if (own[rank] > own[owner])
                owner = rank;
        }
        done[owner] = larger(done[owner], end[owner]);
    }
}

/* ---- exchange ---- */

/* Tiles of the strip that has most. */
static int most_tiles(const struct mp_port_level *level, const struct side *side) {
    int most = 0;
    for (int s = 0; s < level->stride / MP_LANES; s++)
        most = side->strip[s].tiles > most ? side->strip[s].tiles : most;
    return most;
}

/* done[], in bytes at the level's bandwidth.  ready[] is filled; `together`: all come at once;
 * `all`: they are put in order all together. */
static void exchange_group(struct mp_network *network, const struct mp_port_level *level,
                           const struct side side[2], bool together, bool all) {
    size_t size = (size_t)level->stride * sizeof(float);
    if (together) {
        for (int way = MP_SENDING; way <= MP_RECEIVING; way++)
            memcpy(network->end[way], side[way].curve->total + side[way].at, size);
    } else {
        order_ranks(network, level->span, all);
        for (int way = MP_SENDING; way <= MP_RECEIVING; way++)
            if (level->width > 1)
                end_shared_gates(network, level, &side[way], &side[!way], network->end[way]);
            else
                end_gates(network, level, &side[!way], network->end[way]);
    }
    memset(network->done, 0, size);
    for (int way = MP_SENDING; level->width > 1 && way <= MP_RECEIVING; way++)
        memset(network->own[way], 0, size);
    for (int way = MP_SENDING; way <= MP_RECEIVING; way++) {
        /* A row of what is sent goes through the sender's gate, and through those of others. */
        end_messages(network, level, &side[way], network->end[way]);
        if (level->width > 1)
            end_own_messages(network, level, &side[way], side[!way].curve, network->end[!way],
                             network->own[!way]);
    }
    for (int way = MP_SENDING; way <= MP_RECEIVING; way++)
        end_owners(network, level, network->end[way], network->own[way]);
}

/* ready[] of a group, and its origin; whether all come at once.  What fills the last strip comes
 * last. */
static bool gather_ready(struct mp_network *network, const struct mp_port_level *level,
                         const double ready[], double *origin) {
    double least = ready[0], most = ready[0], bandwidth = level->bandwidth;
    for (int i = 1; i < level->span; i++) {
        least = ready[i] < least ? ready[i] : least;
        most = ready[i] > most ? ready[i] : most;
    }
    for (int i = 0; i < level->span; i++)
        network->ready[i] = (float)((ready[i] - least) * bandwidth);
    for (int i = level->span; i < level->stride; i++)
        network->ready[i] = INFINITY;
    *origin = least;
    return most == least;
}

/* Ends of a group's ranks, of which finish[] are the latest so far. */
static void raise_ends(const struct mp_port_level *level, double origin, const float done[],
                       double finish[]) {
    double latency = level->latency, bandwidth = level->bandwidth;
    for (int i = 0; i < level->span; i++) {
        double end = origin + latency + (double)done[i] / bandwidth;
        end = done[i] > 0 ? end : finish[i];
        finish[i] = end > finish[i] ? end : finish[i];
    }
}

/* finish[] of a group of a level, by its gates or its ranks' limits. */
static void carry_group(struct mp_network *network, const struct mp_port_level *level, int group,
                        const struct mp_traffic *traffic, int gates, bool back,
                        const double ready[]) {
    size_t at = level->lane + (size_t)group * (size_t)level->stride;
    const struct mp_port_curve *curve = gates == MP_GATES ? traffic->curve : traffic->own;
    struct side side[2];
    double origin;
    for (int way = MP_SENDING; way <= MP_RECEIVING; way++) {
        const struct mp_port_matrix *matrix = &traffic->matrix[way != back];
        side[way] = (struct side){matrix, matrix->held[gates] ? matrix->held[gates] : matrix->bytes,
                                  matrix->strip + at / MP_LANES, &curve[way != back], at};
    }
    int tiles = most_tiles(level, &side[MP_SENDING]);
    if (tiles == 0)
        return;
    /* Who meets the ranks of one strip alone does not care when those of others come. */
    bool all = level->width > 1 || tiles > 1 || most_tiles(level, &side[MP_RECEIVING]) > 1;
    bool together = gather_ready(network, level, ready + group * level->span, &origin);
    exchange_group(network, level, side, together, all);
    raise_ends(level, origin, network->done, network->finish + group * level->span);
}

/* The same gates as if each rank had one to itself, as wide as its limit. */
static struct mp_port_level own_gates(const struct mp_port_level *level) {
    struct mp_port_level own = *level;
    own.width = 1;
    own.bandwidth = level->rank_bandwidth;
    return own;
}

void mp_network_exchange(struct mp_network *network, struct mp_traffic *traffic, bool back,
                         const double ready[], double done[]) {
    double *finish = network->finish;
    double copies = mp_cluster_bandwidth(network->cluster, 0);
    double copy_latency = network->cluster->level[0].latency.value;
    mp_traffic_arrange(traffic);
    for (int rank = 0; rank < network->ranks; rank++)
        finish[rank] = traffic->self[rank] > 0
                           ? ready[rank] + copy_latency + traffic->self[rank] / copies
                           : ready[rank];
    for (int l = 0; l < network->levels; l++) {
        const struct mp_port_level *level = &network->level[l];
        const struct mp_port_level own = own_gates(level);
        for (int g = 0; g < level->groups; g++) {
            carry_group(network, level, g, traffic, MP_GATES, back, ready);
            if (mp_port_limited(level))
                carry_group(network, &own, g, traffic, MP_OWN_LIMITS, back, ready);
        }
    }
    memcpy(done, finish, (size_t)network->ranks * sizeof *done);
}

/* The larger direction of a lane. */
static double busiest(const struct mp_port_curve curve[2], size_t at) {
    return (double)larger(curve[MP_SENDING].total[at], curve[MP_RECEIVING].total[at]);
}

/* Ranks that wait for nothing but copies on their devices. */
static void take_copies(const struct mp_network *network, const struct mp_traffic *traffic,
                        double seconds[], double others[], uint8_t level[]) {
    const struct mp_cluster *cluster = network->cluster;
    for (int rank = 0; rank < network->ranks; rank++) {
        double bytes = traffic->self[rank];
        seconds[rank] =
            bytes > 0 ? cluster->level[0].latency.value + bytes / mp_cluster_bandwidth(cluster, 0)
                      : 0;
        if (others) {
            others[rank] = 0;
            level[rank] = 0;
        }
    }
}

void mp_network_alone(struct mp_network *network, struct mp_traffic *traffic, double seconds[],
                      double others[], uint8_t level[]) {
    mp_traffic_arrange(traffic);
    take_copies(network, traffic, seconds, others, level);
    for (int l = 0; l < network->levels; l++) {
        const struct mp_port_level *gates = &network->level[l];
        for (int rank = 0; rank < network->ranks; rank++) {
            size_t at = mp_port_lane(gates, rank);
            double total = busiest(traffic->curve, at), busy = total / gates->bandwidth;
            double own =
                mp_port_limited(gates) ? busiest(traffic->own, at) / gates->rank_bandwidth : 0;
            busy = total > 0 ? gates->latency + (own > busy ? own : busy) : 0;
            bool longest = busy > seconds[rank];
            double lesser = longest ? seconds[rank] : busy;
            if (others && lesser > others[rank])
                others[rank] = lesser;
            if (others && longest)
                level[rank] = (uint8_t)gates->level;
            if (longest)
                seconds[rank] = busy;
        }
    }
}

unsigned mp_traffic_levels(struct mp_traffic *traffic, int rank) {
    const struct mp_network *network = traffic->network;
    unsigned levels = traffic->self[rank] > 0;
    mp_traffic_arrange(traffic);
    for (int l = 0; l < network->levels; l++) {
        const struct mp_port_level *gates = &network->level[l];
        bool any = busiest(traffic->curve, mp_port_lane(gates, rank)) > 0;
        levels |= (unsigned)any << gates->level;
    }
    return levels;
}

int mp_network_check(const struct mp_network *network, struct mp_error *error) {
    return network->memory->failed
               ? mp_fail(error, MP_ENOMEM, "network: no memory for the bytes between %d ranks",
                         network->ranks)
               : MP_OK;
}

/* ---- collectives ---- */

/* Of one message of each of those who share a gate, beside its latency. */
static double step_of(const struct mp_port_level *level, double bytes) {
    double own = bytes / level->rank_bandwidth + level->message_cost;
    double all = level->width * (bytes / level->bandwidth + level->message_cost);
    return own > all ? own : all;
}

/* A ring of n ranks that gathers b bytes of each takes n-1 steps of b bytes (Patarasuk and Yuan,
 * JPDC 2009). */
static double ring_of(const struct mp_port_level *level, double bytes) {
    return (level->span / level->near - 1) * (step_of(level, bytes) + level->latency);
}

/* From far to near: first the ranks of a kind in all groups of the farthest level, width of them at
 * a time through a gate, then inside each with what has been gathered. */
double mp_network_all_gather(const struct mp_network *network, double bytes) {
    double seconds = 0;
    for (int l = network->levels - 1; l >= 0 && bytes > 0; l--) {
        seconds += ring_of(&network->level[l], bytes);
        bytes *= network->level[l].span / network->level[l].near;
    }
    return seconds;
}

/* Up or down two trees of n ranks at once, each with half of b bytes, every rank inside one of them
 * and a leaf of the other (Sanders, Speck and Traeff, Parallel Computing 2009, as NCCL has them
 * from 2.4 on): its gate carries b, and the first bytes have as many steps as trees are high. */
static double trees_of(const struct mp_port_level *level, double bytes) {
    double seconds = step_of(level, bytes) - step_of(level, 0);
    for (int groups = level->span / level->near; groups > 1; groups = (groups + 1) / 2)
        seconds += step_of(level, 0) + level->latency;
    return seconds;
}

/* Reduce-scatter from near to far is the same steps in the other order, and summing is left to the
 * processors.  Between the farthest groups by rings or by trees, whichever take less. */
double mp_network_all_reduce(const struct mp_network *network, double bytes) {
    double each = bytes / network->ranks;
    double rings = mp_network_all_gather(network, each);
    if (network->levels < 2 || !(bytes > 0))
        return 2 * rings;
    const struct mp_port_level *far = &network->level[network->levels - 1];
    double ring = ring_of(far, each), trees = trees_of(far, bytes / far->near);
    return 2 * (rings - ring + (trees < ring ? trees : ring));
}
