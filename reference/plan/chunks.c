#include "reference/plan/chunks.h"

#include <string.h>

/* When an expert is there; or whence its rows come. */
enum order { EARLY, LATE, FROM_AWAY };

struct mp_place_rows {
    int64_t all, own, away; /* own: of the rank's tokens; away: from other nodes */
    enum order order;
};

/* A rank's places that are not from away. */
struct mp_rank_places {
    int32_t first, last; /* that are in the first and the last chunk; -1: none */
    int64_t all, before; /* rows of those between, and of these, before one of them */
    bool late;           /* has some that are */
};

void mp_expert_chunks_create(struct mp_arena *memory, const struct mp_topology *topology,
                             int layers, int places, struct mp_expert_chunks *chunks) {
    *chunks = (struct mp_expert_chunks){.topology = *topology, .layers = layers, .places = places};
    MP_TAKE(memory, chunks->chunk, (size_t)layers * (size_t)places);
    MP_TAKE(memory, chunks->rows, (size_t)places);
    MP_TAKE(memory, chunks->rank, (size_t)topology->ranks);
}

static void add_rows(struct mp_place_rows *rows, uint32_t count, bool own, bool away) {
    rows->all += count;
    rows->own += own ? count : 0;
    rows->away += away ? count : 0;
}

static void count_rows(struct mp_expert_chunks *chunks, const struct mp_plan *plan) {
    const struct mp_topology *topology = &chunks->topology;
    const int32_t *holder = plan->holder;
    struct mp_place_rows *rows = chunks->rows;
    memset(rows, 0, (size_t)plan->holder_begin[plan->experts] * sizeof *rows);
    for (int source = 0; source < topology->ranks; source++) {
        int node = mp_topology_node(topology, source);
        int begin = mp_topology_node_begin(topology, node);
        int end = mp_topology_node_end(topology, node);
        const int64_t *of_source = plan->part_begin + (int64_t)source * plan->experts;
        const struct mp_dispatch_part *beyond = plan->part + of_source[plan->experts];
        for (const struct mp_dispatch_part *part = plan->part + of_source[0]; part < beyond; part++)
            for (int32_t at = part->first, left = part->run; left > 0; at++, left--)
                add_rows(&rows[at], part->count, holder[at] == source,
                         holder[at] < begin || holder[at] >= end);
    }
}

/* Returns whether there are any from away. */
static bool order_places(struct mp_expert_chunks *chunks, const struct mp_plan *plan) {
    bool any = false;
    for (int i = 0; i < plan->fetch.count; i++) {
        const struct mp_transfer *fetch = &plan->fetch.item[i];
        if (fetch->stage == MP_STAGE_AFTER_GATE)
            chunks->rows[mp_plan_holder_index(plan, fetch->expert, fetch->to)].order = LATE;
    }
    for (int32_t at = 0; at < plan->holder_begin[plan->experts]; at++) {
        struct mp_place_rows *rows = &chunks->rows[at];
        if (rows->order == LATE || 2 * rows->away <= rows->all)
            continue;
        rows->order = FROM_AWAY;
        any = true;
    }
    return any;
}

static int64_t foreign(const struct mp_expert_chunks *chunks, int32_t place) {
    return chunks->rows[place].all - chunks->rows[place].own;
}

static void find_ends(struct mp_expert_chunks *chunks, const struct mp_plan *plan) {
    for (int32_t at = 0; at < plan->holder_begin[plan->experts]; at++) {
        struct mp_rank_places *rank = &chunks->rank[plan->holder[at]];
        rank->late |= chunks->rows[at].order == LATE;
        if (chunks->rows[at].order != EARLY || chunks->rows[at].all == 0)
            continue;
        if (rank->first < 0 || foreign(chunks, at) < foreign(chunks, rank->first)) {
            rank->last = rank->first;
            rank->first = at;
        } else if (rank->last < 0 || foreign(chunks, at) < foreign(chunks, rank->last)) {
            rank->last = at;
        }
    }
}

/* The chunk at an end that a place is in, -1: it is between. */
static int end_of(const struct mp_expert_chunks *chunks, const struct mp_rank_places *rank,
                  int32_t place, int chunks_here) {
    if (place == rank->first)
        return 0;
    bool last = rank->late ? chunks->rows[place].order == LATE : place == rank->last;
    return last ? chunks_here - 1 : -1;
}

void mp_expert_chunks_cut(struct mp_expert_chunks *chunks, struct mp_plan *plan) {
    const int32_t places = plan->holder_begin[plan->experts];
    uint8_t *chunk = chunks->chunk + (size_t)plan->layer * (size_t)chunks->places;
    plan->place_chunk = chunk;
    count_rows(chunks, plan);
    const bool any = order_places(chunks, plan);
    const int others = plan->degree - any, middle = any ? plan->degree / 2 : plan->degree;
    const int ends = others > 2, between = others - 2 * ends; /* ends: chunks at each */
    for (int r = 0; r < plan->topology.ranks; r++)
        chunks->rank[r] = (struct mp_rank_places){.first = -1, .last = -1};
    if (ends)
        find_ends(chunks, plan);
    for (int32_t at = 0; at < places; at++) {
        struct mp_rank_places *rank = &chunks->rank[plan->holder[at]];
        if (chunks->rows[at].order != FROM_AWAY && end_of(chunks, rank, at, others) < 0)
            rank->all += chunks->rows[at].all;
    }
    for (int order = EARLY; order <= FROM_AWAY; order++)
        for (int32_t at = 0; at < places; at++) {
            const struct mp_place_rows *rows = &chunks->rows[at];
            struct mp_rank_places *rank = &chunks->rank[plan->holder[at]];
            if ((int)rows->order != order)
                continue;
            int number = end_of(chunks, rank, at, others);
            if (number < 0 && order != FROM_AWAY) {
                /* Where the middle of its rows is among those between. */
                int64_t centre = 2 * rank->before + rows->all;
                number = rank->all > 0 ? (int)(centre * between / (2 * rank->all)) : 0;
                number = ends + (number < between ? number : between - 1);
                rank->before += rows->all;
            }
            chunk[at] = (uint8_t)(order == FROM_AWAY ? middle : number + (number >= middle));
        }
}
