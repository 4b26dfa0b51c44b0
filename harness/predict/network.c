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
 * Latency delays a message's first byte and occupies nothing, since messages of a rank are under
 * way at the same time (as in SimGrid, and where a library posts all of them before it waits);
 * what a library's processor spends per message belongs to the rank's own work.  All messages of a
 * level have the same latency, so it is added to the level's end.
 *
 * Inside a group time is counted in bytes at its bandwidth, from the first rank's coming; floats
 * keep an exchange's time to about 1e-6 of it. */
#include "harness/predict/network.h"

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
        level->latency = mp_cluster_latency(cluster, l);
        level->lane = network->lanes;
        network->lanes += (size_t)level->groups * (size_t)level->stride;
        near = span;
    }
}

static void destroy_memory(struct mp_port_memory *memory) {
    if (!memory)
        return;
    free(memory->rows);
    free(memory->present);
    free(memory->count);
    free(memory->filled);
    free(memory->sent);
    free(memory->to);
    free(memory);
}

static bool create_memory(struct mp_network *network) {
    struct mp_port_memory *memory = calloc(1, sizeof *memory);
    size_t strips = 1;
    network->memory = memory;
    if (!memory)
        return false;
    for (int l = 0; l < network->levels; l++) {
        strips = (size_t)network->level[l].stride / MP_LANES;
        memory->row_floats += strips * MP_TILE;
        memory->present_words += strips / MP_PRESENT_BITS + 1;
    }
    memory->rows = calloc(memory->row_floats + 1, sizeof *memory->rows);
    memory->present = calloc(memory->present_words + 1, sizeof *memory->present);
    memory->count = calloc((size_t)network->ranks + 1, sizeof *memory->count);
    memory->filled = calloc(strips, sizeof *memory->filled);
    memory->sent = calloc((size_t)network->ranks, sizeof *memory->sent);
    memory->to = calloc((size_t)network->ranks, sizeof *memory->to);
    return memory->rows && memory->present && memory->count && memory->filled && memory->sent &&
           memory->to;
}

int mp_network_create(const struct mp_cluster *cluster, struct mp_network **network,
                      struct mp_error *error) {
    struct mp_network *new = calloc(1, sizeof *new);
    int ranks = mp_cluster_ranks(cluster);
    size_t lanes = ((size_t)ranks + MP_LANES - 1) / MP_LANES * MP_LANES;
    if (!new)
        goto no_memory;
    new->cluster = cluster;
    new->ranks = ranks;
    find_levels(new);
    new->order = calloc(3 * lanes, sizeof *new->order);
    new->ready = calloc(7 * lanes, sizeof *new->ready);
    new->finish = calloc(lanes, sizeof *new->finish);
    if (!new->order || !new->ready || !new->finish || !create_memory(new))
        goto no_memory;
    new->merge = new->order + lanes;
    new->position = new->merge + lanes;
    new->part = new->ready + lanes;
    new->done = new->part + lanes;
    for (int way = MP_SENDING; way <= MP_RECEIVING; way++) {
        new->end[way] = new->done + (size_t)(1 + way) * lanes;
        new->own[way] = new->done + (size_t)(3 + way) * lanes;
    }
    *network = new;
    return MP_OK;

no_memory:
    mp_network_destroy(new);
    return mp_fail(error, MP_ENOMEM, "network: no memory for %d ranks", ranks);
}

void mp_network_destroy(struct mp_network *network) {
    if (!network)
        return;
    destroy_memory(network->memory);
    free(network->order);
    free(network->ready);
    free(network->finish);
    free(network);
}

/* ---- order of coming ---- */

enum { FEW = 64 }; /* ranks that are ordered by comparing all with all, without a branch */

static void order_few(struct mp_network *network, int span, int stride) {
    const float *ready = network->ready;
    const mp_four_bits number = {0, 1, 2, 3};
    for (int first = 0; first < stride; first += MP_FOUR) {
        mp_four mine = mp_get_four(ready + first);
        mp_four_bits earlier = {0}; /* a comparison that holds is -1 */
        int i = 0;
        for (; i < first; i++)
            earlier -= ready[i] <= mine;
        for (; i < first + MP_FOUR && i < span; i++)
            earlier -= (ready[i] < mine) | ((ready[i] == mine) & (number > i - first));
        for (; i < span; i++)
            earlier -= ready[i] < mine;
        memcpy(network->position + first, &earlier, sizeof earlier);
    }
    for (int i = 0; i < span; i++)
        network->order[network->position[i]] = i;
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

static void order_many(struct mp_network *network, int span) {
    int *order = network->order, *merge = network->merge;
    for (int i = 0; i < span; i++)
        order[i] = i;
    for (int run = 1; run < span; run *= 2) {
        for (int begin = 0; begin < span; begin += 2 * run) {
            int middle = begin + run < span ? begin + run : span;
            int end = begin + 2 * run < span ? begin + 2 * run : span;
            merge_runs(network->ready, order, begin, middle, end, merge);
        }
        int *sorted = merge;
        merge = order;
        order = sorted;
    }
    for (int i = 0; i < span; i++)
        network->position[order[i]] = i;
    if (order != network->order)
        memcpy(network->order, order, (size_t)span * sizeof *order);
}

/* order[] by time of coming, of equal ones by number, and everybody's position in it. */
static void order_ranks(struct mp_network *network, const struct mp_port_level *level) {
    if (level->span <= FEW)
        order_few(network, level->span, level->stride);
    else
        order_many(network, level->span);
}

/* ---- gates ---- */

static inline float larger(float a, float b) {
    return a > b ? a : b;
}

/* The end of a gate that ended at t, with a message between two ranks more. */
static inline float queue(float t, float here, float there, float bytes) {
    float start = larger(here, there);
    start = bytes > 0 ? start : 0.0f;
    return larger(t, start) + bytes;
}

/* One direction of a group: what each rank exchanges, by the one whose row it is. */
struct side {
    const struct mp_port_matrix *matrix;
    const struct mp_port_strip *strip; /* of the group */
    const struct mp_port_curve *curve; /* of the gates that the rows' ranks have */
    size_t at;                         /* of the group's first rank in it */
};

static const struct mp_port_strip *strip_of(const struct side *side, int rank) {
    return &side->strip[rank / MP_LANES];
}

static const float *row_of(const struct side *side, int rank) {
    return mp_port_row(side->matrix, strip_of(side, rank), rank % MP_LANES);
}

/* Whether all rows have room for the whole group, or none at all. */
static bool is_whole(const struct mp_port_level *level, const struct side *side) {
    int strips = level->stride / MP_LANES;
    for (int s = 0; s < strips; s++)
        if (side->strip[s].tiles > 0 && side->strip[s].tiles < strips)
            return false;
    return true;
}

/* Of a side that is whole: a row, or `nothing`, which holds zeros. */
static const float *whole_row(const struct side *side, int rank, const float *nothing) {
    return strip_of(side, rank)->tiles > 0 ? row_of(side, rank) : nothing;
}

static inline void queue_tile(float comes, const float *restrict row, const float *restrict ready,
                              float *restrict end) {
#pragma GCC unroll 1 /* vectors come after that */
    for (int c = 0; c < MP_LANES; c++) {
        float start = larger(ready[c], comes);
        start = row[c] > 0 ? start : 0.0f;
        end[c] = larger(end[c], start) + row[c];
    }
}

/* One rank's messages more, at the gates of those at their other end. */
static void queue_row(const struct mp_network *network, const struct side *side, int rank,
                      float *end) {
    const struct mp_port_strip *strip = strip_of(side, rank);
    const int32_t *other = side->matrix->other + strip->first;
    const float *row = row_of(side, rank);
    for (int t = 0; t < strip->tiles; t++) {
        size_t begin = (size_t)other[t] * MP_LANES;
        queue_tile(network->ready[rank], row + t * MP_LANES, network->ready + begin, end + begin);
    }
}

/* The end of gates that are one rank's each: those that receive, from what is sent (rows of
 * senders), or those that send, from the transpose.  Taken in order of coming, the messages of a
 * port come in order of start. */
static void end_gates(const struct mp_network *network, const struct mp_port_level *level,
                      const struct side *side, float *restrict end) {
    const float *restrict ready = network->ready;
    int lanes = level->stride / MP_LANES * MP_LANES;
    memset(end, 0, (size_t)lanes * sizeof *end);
    if (!is_whole(level, side)) {
        for (int i = 0; i < level->span; i++)
            queue_row(network, side, network->order[i], end);
        return;
    }
    memset(network->part, 0, (size_t)lanes * sizeof *network->part);
    /* Four rows at a time, since each waits for the one before; past the last come empty ones. */
    for (int i = 0; i < level->span; i += 4) {
        const float *row[4];
        float comes[4];
        for (int k = 0; k < 4; k++) {
            int rank = i + k < level->span ? network->order[i + k] : -1;
            row[k] = rank < 0 ? network->part : whole_row(side, rank, network->part);
            comes[k] = rank < 0 ? 0 : ready[rank];
        }
        const float *restrict row0 = row[0], *restrict row1 = row[1], *restrict row2 = row[2],
                              *restrict row3 = row[3];
        for (int c = 0; c < lanes; c++) {
            float t = queue(end[c], ready[c], comes[0], row0[c]);
            t = queue(t, ready[c], comes[1], row1[c]);
            t = queue(t, ready[c], comes[2], row2[c]);
            end[c] = queue(t, ready[c], comes[3], row3[c]);
        }
    }
}

/* bytes[c] += what rows begin .. end-1 hold for c, if c comes later than the row's rank.  `nothing`
 * holds zeros. */
static void add_starting(const struct mp_network *network, const struct side *side, int begin,
                         int end, const float *nothing, float *restrict bytes) {
    const int *restrict position = network->position;
    /* Four at a time, as above; those of a strip have the same tiles. */
    for (int i = begin, next; i < end; i = next) {
        const struct mp_port_strip *strip = strip_of(side, i);
        const int32_t *other = side->matrix->other + strip->first;
        const float *row[4];
        int own[4];
        next = i / 4 * 4 + 4;
        for (int k = 0; k < 4; k++) {
            bool any = i + k < next && i + k < end;
            row[k] = any ? row_of(side, i + k) : nothing;
            own[k] = any ? position[i + k] : network->ranks; /* nobody comes later */
        }
        for (int t = 0; t < strip->tiles; t++) {
            const float *restrict row0 = row[0] + t * MP_LANES,
                                  *restrict row1 = row[1] + t * MP_LANES,
                                  *restrict row2 = row[2] + t * MP_LANES,
                                  *restrict row3 = row[3] + t * MP_LANES;
            size_t first = (size_t)other[t] * MP_LANES;
            for (size_t c = 0; c < MP_LANES; c++) {
                /* All are read in any case, so that there is no branch. */
                float x0 = row0[c], x1 = row1[c], x2 = row2[c], x3 = row3[c];
                int at = position[first + c];
                x0 = at > own[0] ? x0 : 0.0f;
                x1 = at > own[1] ? x1 : 0.0f;
                x2 = at > own[2] ? x2 : 0.0f;
                x3 = at > own[3] ? x3 : 0.0f;
                bytes[first + c] += (x0 + x1) + (x2 + x3);
            }
        }
    }
}

/* The same of gates that several ranks share: a message's start is when the later of its two ranks
 * comes, whichever side of the gate it is on.  `here` has rows of the gates' ranks, `there` of
 * those at the other end. */
static void end_shared_gates(const struct mp_network *network, const struct mp_port_level *level,
                             const struct side *here, const struct side *there, float *end) {
    size_t stride = (size_t)level->stride, size = stride * sizeof(float);
    /* What starts with each rank's coming: inside, at its own gate; outside, at the one at hand. */
    float *inside = network->done, *outside = network->part, *nothing = network->own[MP_SENDING];
    memset(inside, 0, size);
    memset(nothing, 0, size);
    add_starting(network, there, 0, level->span, nothing, inside);
    for (int first = 0; first < level->span; first += level->width) {
        int past = first + level->width;
        float t = 0;
        memset(outside, 0, size);
        add_starting(network, here, first, past, nothing, outside);
        for (int rank = first; rank < past; rank++)
            outside[rank] += inside[rank];
        for (int i = 0; i < level->span; i++) {
            int rank = network->order[i];
            t = queue(t, network->ready[rank], 0, outside[rank]);
        }
        for (int rank = first; rank < past; rank++)
            end[rank] = t;
    }
}

/* ---- messages ---- */

/* The gate of a rank that comes at `comes`, and its last message's end. */
struct gate {
    float comes, last, count, slope, rest;
};

static inline void end_tile(const struct gate *gate, const float *restrict row,
                            const float *restrict ready, float *restrict done) {
    for (int c = 0; c < MP_LANES; c++) {
        float bytes = row[c], start = larger(ready[c], gate->comes);
        float first = gate->count * bytes, second = gate->rest + gate->slope * bytes;
        float through = start + (first < second ? first : second);
        through = through < gate->last ? through : gate->last;
        through = bytes > 0 ? through : 0.0f;
        done[c] = larger(done[c], through);
    }
}

/* When messages are through the gates of the side's ranks, as far as those care who are at their
 * other end: done[] of them. */
static void end_messages(const struct mp_network *network, const struct mp_port_level *level,
                         const struct side *side, const float *end) {
    const float *ready = network->ready;
    const struct mp_port_curve *curve = side->curve;
    for (int first = 0; first < level->span; first += MP_LANES) {
        const struct mp_port_strip *strip = strip_of(side, first);
        const int32_t *other = side->matrix->other + strip->first;
        const float *row = row_of(side, first);
        int past = first + MP_LANES < level->span ? first + MP_LANES : level->span;
        for (int rank = first; strip->tiles > 0 && rank < past; rank++) {
            size_t at = side->at + (size_t)rank;
            struct gate gate = {ready[rank], end[rank], curve->count[at], curve->slope[at],
                                curve->rest[at]};
            for (int t = 0; t < strip->tiles; t++, row += MP_LANES) {
                size_t begin = (size_t)other[t] * MP_LANES;
                end_tile(&gate, row, ready + begin, network->done + begin);
            }
        }
    }
}

/* The same for the ranks whose gate it is, who share it with others: own[] of them.  The row holds
 * what `rank` exchanges with each of them. */
static void end_own_messages(const struct mp_network *network, const struct side *there,
                             const struct mp_port_curve *curve, int rank, const float *restrict end,
                             float *restrict own) {
    const float *restrict ready = network->ready;
    const float *restrict row = row_of(there, rank);
    const float *restrict count = curve->count + there->at;
    const float *restrict slope = curve->slope + there->at;
    const float *restrict rest = curve->rest + there->at;
    const struct mp_port_strip *strip = strip_of(there, rank);
    const int32_t *other = there->matrix->other + strip->first;
    float comes = ready[rank];
    for (int t = 0; t < strip->tiles; t++, row += MP_LANES) {
        size_t begin = (size_t)other[t] * MP_LANES;
        for (size_t i = 0; i < MP_LANES; i++) {
            size_t c = begin + i;
            float bytes = row[i], start = larger(ready[c], comes);
            float first = count[c] * bytes, second = rest[c] + slope[c] * bytes;
            float through = start + (first < second ? first : second);
            through = through < end[c] ? through : end[c];
            through = bytes > 0 ? through : 0.0f;
            own[c] = larger(own[c], through);
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

/* done[], in bytes at the level's bandwidth.  ready[] is filled; `together`: all come at once. */
static void exchange_group(struct mp_network *network, const struct mp_port_level *level,
                           const struct side side[2], bool together) {
    size_t size = (size_t)level->stride * sizeof(float);
    if (together) {
        for (int way = MP_SENDING; way <= MP_RECEIVING; way++)
            memcpy(network->end[way], side[way].curve->total + side[way].at, size);
    } else {
        order_ranks(network, level);
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
        for (int rank = 0; level->width > 1 && rank < level->span; rank++)
            end_own_messages(network, &side[way], side[!way].curve, rank, network->end[!way],
                             network->own[!way]);
    }
    for (int way = MP_SENDING; way <= MP_RECEIVING; way++)
        end_owners(network, level, network->end[way], network->own[way]);
}

static bool has_bytes(const struct mp_port_level *level, const struct side *side) {
    for (int s = 0; s < level->stride / MP_LANES; s++)
        if (side->strip[s].tiles > 0)
            return true;
    return false;
}

/* ready[] of a group, and its origin; whether all come at once. */
static bool gather_ready(struct mp_network *network, const struct mp_port_level *level,
                         const double ready[], double *origin) {
    double least = ready[0], most = ready[0];
    for (int i = 1; i < level->span; i++) {
        least = ready[i] < least ? ready[i] : least;
        most = ready[i] > most ? ready[i] : most;
    }
    for (int i = 0; i < level->span; i++)
        network->ready[i] = (float)((ready[i] - least) * level->bandwidth);
    for (int i = level->span; i < level->stride; i++)
        network->ready[i] = 0;
    *origin = least;
    return most == least;
}

void mp_network_exchange(struct mp_network *network, const struct mp_traffic *traffic, bool back,
                         const double ready[], double done[]) {
    const struct mp_port_bytes *bytes = traffic->bytes;
    double *finish = network->finish, origin;
    double copies = mp_cluster_bandwidth(network->cluster, 0);
    double copy_latency = mp_cluster_latency(network->cluster, 0);
    mp_traffic_arrange(traffic);
    for (int rank = 0; rank < network->ranks; rank++)
        finish[rank] = bytes->self[rank] > 0
                           ? ready[rank] + copy_latency + bytes->self[rank] / copies
                           : ready[rank];
    for (int l = 0; l < network->levels; l++) {
        const struct mp_port_level *level = &network->level[l];
        for (int g = 0; g < level->groups; g++) {
            size_t at = level->lane + (size_t)g * (size_t)level->stride;
            struct side side[2];
            for (int way = MP_SENDING; way <= MP_RECEIVING; way++) {
                const struct mp_port_matrix *matrix = &bytes->matrix[way != back];
                side[way] = (struct side){matrix, matrix->strip + at / MP_LANES,
                                          &bytes->curve[way != back], at};
            }
            if (!has_bytes(level, &side[MP_SENDING]))
                continue;
            bool together = gather_ready(network, level, ready + g * level->span, &origin);
            exchange_group(network, level, side, together);
            for (int i = 0; i < level->span; i++) {
                double end = origin + level->latency + (double)network->done[i] / level->bandwidth;
                double *last = &finish[g * level->span + i];
                *last = network->done[i] > 0 && end > *last ? end : *last;
            }
        }
    }
    memcpy(done, finish, (size_t)network->ranks * sizeof *done);
}

void mp_network_alone(struct mp_network *network, const struct mp_traffic *traffic,
                      double seconds[]) {
    const struct mp_port_bytes *bytes = traffic->bytes;
    mp_traffic_arrange(traffic);
    for (int rank = 0; rank < network->ranks; rank++)
        seconds[rank] = bytes->self[rank] > 0
                            ? mp_cluster_latency(network->cluster, 0) +
                                  bytes->self[rank] / mp_cluster_bandwidth(network->cluster, 0)
                            : 0;
    for (int l = 0; l < network->levels; l++) {
        const struct mp_port_level *level = &network->level[l];
        for (int rank = 0; rank < network->ranks; rank++) {
            size_t at = level->lane + (size_t)(rank / level->span) * (size_t)level->stride +
                        (size_t)(rank % level->span);
            float total =
                larger(bytes->curve[MP_SENDING].total[at], bytes->curve[MP_RECEIVING].total[at]);
            double busy = level->latency + (double)total / level->bandwidth;
            if (total > 0 && busy > seconds[rank])
                seconds[rank] = busy;
        }
    }
}

int mp_network_check(const struct mp_network *network, struct mp_error *error) {
    return network->memory->failed
               ? mp_fail(error, MP_ENOMEM, "network: no memory for the bytes between %d ranks",
                         network->ranks)
               : MP_OK;
}

/* ---- collectives ---- */

/* A ring of n ranks that gathers b bytes of each takes n-1 steps of b bytes (Patarasuk and Yuan,
 * JPDC 2009).  From far to near: first the ranks of a kind in all groups of the farthest level,
 * width of them at a time through a gate, then inside each with what has been gathered. */
double mp_network_all_gather(const struct mp_network *network, double bytes) {
    double seconds = 0;
    for (int l = network->levels - 1; l >= 0; l--) {
        const struct mp_port_level *level = &network->level[l];
        int ring = level->span / level->near;
        double step = bytes * level->width / level->bandwidth + level->latency;
        seconds += bytes > 0 ? (ring - 1) * step : 0;
        bytes *= ring;
    }
    return seconds;
}

/* Reduce-scatter from near to far is the same steps in the other order, and summing is left to the
 * processors. */
double mp_network_all_reduce(const struct mp_network *network, double bytes) {
    return 2 * mp_network_all_gather(network, bytes / network->ranks);
}
