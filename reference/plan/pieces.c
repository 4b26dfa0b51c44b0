#include "reference/plan/pieces.h"

#include <string.h>

#include "reference/plan/split.h"

void mp_pieces_create(struct mp_arena *memory, int experts, int capacity,
                      struct mp_pieces *pieces) {
    *pieces = (struct mp_pieces){.experts = experts, .capacity = capacity};
    MP_TAKE(memory, pieces->item, capacity);
    MP_TAKE_EACH(memory, experts, pieces->first, pieces->last, pieces->turn, pieces->of_node,
                 pieces->only, pieces->wanted);
    if (!memory->lacking)
        mp_pieces_clear(pieces);
}

void mp_pieces_clear(struct mp_pieces *pieces) {
    pieces->count = 0;
    for (int expert = 0; expert < pieces->experts; expert++)
        pieces->first[expert] = pieces->last[expert] = -1;
}

int mp_pieces_add(struct mp_pieces *pieces, int expert, int rank, int64_t routes,
                  struct mp_error *error) {
    if (routes == 0)
        return MP_OK;
    if (pieces->count == pieces->capacity)
        return mp_fail(error, MP_ELIMIT, "expert %d has a piece more than there is room for, %d",
                       expert, pieces->capacity);
    int32_t added = pieces->count++;
    pieces->item[added] = (struct mp_piece){.routes = routes, .rank = rank, .next = -1};
    if (pieces->first[expert] < 0)
        pieces->first[expert] = added;
    else
        pieces->item[pieces->last[expert]].next = added;
    pieces->last[expert] = added;
    return MP_OK;
}

/* Who of a rank's node has an expert, else its owner.  (What is fetched again for backward comes
 * from where it stays.) */
static int nearest_source(const struct mp_plan *plan, int expert, int rank) {
    const struct mp_topology *topology = &plan->topology;
    int node = mp_topology_node(topology, rank), owner = plan->during.owner[expert];
    int found = mp_placement_next(&plan->during, expert, mp_topology_node_begin(topology, node));
    bool near = found >= 0 && found < mp_topology_node_end(topology, node);
    return near && !plan->policy->rematerialise && mp_topology_node(topology, owner) != node
               ? found
               : owner;
}

/* All from ranks that have them before any of these copies. */
static int copy_expert(struct mp_plan *plan, const struct mp_pieces *pieces, int expert,
                       struct mp_error *error) {
    for (int32_t at = pieces->first[expert]; at >= 0; at = pieces->item[at].next) {
        struct mp_piece *piece = &pieces->item[at];
        bool has = mp_placement_holds(&plan->during, expert, piece->rank);
        piece->holder = has ? -1 : nearest_source(plan, expert, piece->rank);
    }
    for (int32_t at = pieces->first[expert]; at >= 0; at = pieces->item[at].next)
        if (pieces->item[at].holder >= 0)
            MP_TRY(mp_plan_add_copy_from(plan, expert, pieces->item[at].holder,
                                         pieces->item[at].rank, MP_STAGE_AFTER_GATE, error));
    return MP_OK;
}

static bool is_cut(const struct mp_pieces *pieces, int expert) {
    return pieces->first[expert] != pieces->last[expert];
}

static int64_t own_part(const struct mp_load *load, const struct mp_piece *piece, int expert) {
    int64_t own = mp_load_at(load, piece->rank, expert);
    return own < piece->routes ? own : piece->routes;
}

/* Of a node: [begin, end). */
struct ranks {
    int begin, end;
};

static struct ranks ranks_of(const struct mp_topology *topology, int node) {
    return (struct ranks){mp_topology_node_begin(topology, node),
                          mp_topology_node_end(topology, node)};
}

/* The first of an expert's pieces, from `at` on, whose rank is at least this one. */
static int32_t from_rank(const struct mp_pieces *pieces, int32_t at, int rank) {
    while (at >= 0 && pieces->item[at].rank < rank)
        at = pieces->item[at].next;
    return at;
}

/* Routes of a node's ranks. */
static void count_wanted(const struct mp_load *load, const struct ranks *ranks, int64_t wanted[]) {
    memset(wanted, 0, (size_t)load->experts * sizeof *wanted);
    for (int rank = ranks->begin; rank < ranks->end; rank++) {
        const uint32_t *count = &load->count[(size_t)rank * (size_t)load->experts];
        for (int expert = 0; expert < load->experts; expert++)
            wanted[expert] += count[expert];
    }
}

/* What of an expert's pieces is kept for the ranks of a node: as many as these have beside the
 * ranks' own parts, the same share of each of the node's pieces, of which `at` is the first; other
 * nodes' rows come to all of them alike then. */
static void keep_for_node(const struct mp_load *load, struct mp_pieces *pieces,
                          const struct ranks *ranks, int expert, int32_t at) {
    const int32_t next = from_rank(pieces, at, ranks->end);
    int64_t wanted = pieces->wanted[expert], all = 0;
    if (at == next)
        return;
    pieces->item[at].alone = pieces->item[at].next == next && wanted <= pieces->item[at].routes;
    for (int32_t by = at; by != next; by = pieces->item[by].next) {
        wanted -= own_part(load, &pieces->item[by], expert);
        all += pieces->item[by].left;
    }
    wanted = wanted < all ? wanted : all;
    for (; at != next; at = pieces->item[at].next) {
        struct mp_piece *piece = &pieces->item[at];
        const int64_t left = piece->left;
        piece->near = all > 0 ? wanted * left / all : 0;
        piece->left -= piece->near;
        wanted -= piece->near;
        all -= left;
    }
}

/* Node by node; and of experts with a single piece, whether it has all routes. */
static void keep_for_nodes(const struct mp_plan *plan, const struct mp_load *load,
                           struct mp_pieces *pieces, enum mp_piece_cut cut) {
    for (int node = 0; node < mp_topology_nodes(&plan->topology); node++) {
        const struct ranks ranks = ranks_of(&plan->topology, node);
        count_wanted(load, &ranks, pieces->wanted);
        for (int expert = 0; expert < plan->experts; expert++) {
            int32_t at = pieces->of_node[expert];
            if (at >= 0 && !is_cut(pieces, expert)) {
                pieces->item[at].near += pieces->wanted[expert];
                pieces->item[at].alone = pieces->item[at].near <= pieces->item[at].routes;
            } else if (at >= 0 && cut == MP_CUT_NEAREST_FIRST) {
                pieces->of_node[expert] = at = from_rank(pieces, at, ranks.begin);
                keep_for_node(load, pieces, &ranks, expert, at);
            }
        }
    }
    memcpy(pieces->of_node, pieces->first, (size_t)plan->experts * sizeof *pieces->of_node);
}

/* Places of pieces among the holders, and what of them is not taken by the ranks' own routes. */
static int prepare(const struct mp_plan *plan, const struct mp_load *load, struct mp_pieces *pieces,
                   enum mp_piece_cut cut, struct mp_error *error) {
    for (int expert = 0; expert < plan->experts; expert++) {
        pieces->turn[expert] = pieces->of_node[expert] = pieces->first[expert];
        for (int32_t at = pieces->first[expert]; at >= 0; at = pieces->item[at].next) {
            struct mp_piece *piece = &pieces->item[at];
            if (cut == MP_CUT_NEAREST_FIRST && piece->next >= 0 &&
                pieces->item[piece->next].rank <= piece->rank)
                return mp_fail(error, MP_EINVAL,
                               "iteration %lld, layer %d: pieces of expert %d on ranks %d and %d, "
                               "which do not ascend",
                               (long long)plan->iteration, plan->layer, expert, piece->rank,
                               pieces->item[piece->next].rank);
            piece->holder = mp_plan_holder_index(plan, expert, piece->rank);
            piece->left = piece->routes;
            piece->near = 0;
            piece->alone = false;
            if (cut != MP_CUT_IN_ORDER && is_cut(pieces, expert))
                piece->left -= own_part(load, piece, expert);
        }
    }
    keep_for_nodes(plan, load, pieces, cut);
    return MP_OK;
}

/* What a node's sources take of pieces, one after the other, and where it is written. */
struct cutting {
    const struct mp_load *load;
    struct mp_pieces *pieces;
    enum mp_piece_cut cut;
    struct ranks ranks; /* of the node */
    struct mp_dispatch_part *end;
};

static void add_part(struct cutting *cutting, int32_t holder, uint32_t count) {
    *cutting->end = (struct mp_dispatch_part){holder, 1, count};
    cutting->end += count > 0;
}

/* A source's own piece takes of its routes what fits.  Returns those that are left. */
static uint32_t take_own(struct cutting *cutting, const struct mp_piece *piece, uint32_t routes) {
    uint32_t own = routes < piece->routes ? routes : (uint32_t)piece->routes;
    add_part(cutting, piece->holder, own);
    return routes - own;
}

/* And none if it has none. */
static uint32_t take_local(struct cutting *cutting, int source, int expert, uint32_t routes) {
    const struct mp_pieces *pieces = cutting->pieces;
    int32_t at = pieces->first[expert];
    while (at >= 0 && pieces->item[at].rank != source)
        at = pieces->item[at].next;
    return at < 0 ? routes : take_own(cutting, &pieces->item[at], routes);
}

/* The same, and then what is kept for the source's node. */
static uint32_t take_nearest(struct cutting *cutting, int source, int expert, uint32_t routes) {
    struct mp_piece *item = cutting->pieces->item;
    const int32_t first = cutting->pieces->of_node[expert];
    const int32_t own = from_rank(cutting->pieces, first, source);
    if (own >= 0 && item[own].rank == source)
        routes = take_own(cutting, &item[own], routes);
    for (int32_t at = first; at >= 0 && routes > 0 && item[at].rank < cutting->ranks.end;
         at = item[at].next) {
        uint32_t taken = routes < item[at].near ? routes : (uint32_t)item[at].near;
        item[at].near -= taken;
        routes -= taken;
        add_part(cutting, item[at].holder, taken);
    }
    return routes;
}

/* The next `routes` of an expert, cut where pieces end.  Returns those for which there are none. */
static uint32_t take_in_order(struct cutting *cutting, int expert, uint32_t routes) {
    struct mp_pieces *pieces = cutting->pieces;
    while (routes > 0 && pieces->turn[expert] >= 0) {
        struct mp_piece *piece = &pieces->item[pieces->turn[expert]];
        uint32_t taken = routes < piece->left ? routes : (uint32_t)piece->left;
        piece->left -= taken;
        routes -= taken;
        if (piece->left == 0)
            pieces->turn[expert] = piece->next;
        add_part(cutting, piece->holder, taken);
    }
    return routes;
}

/* Where the pieces of the node begin, and which experts' routes all go to one of them, or to the
 * only one there is. */
static void enter_node(const struct cutting *cutting) {
    struct mp_pieces *pieces = cutting->pieces;
    for (int expert = 0; expert < pieces->experts; expert++) {
        const bool is_one = !is_cut(pieces, expert);
        int32_t at = pieces->of_node[expert];
        if (cutting->cut == MP_CUT_NEAREST_FIRST && !is_one)
            at = pieces->of_node[expert] = from_rank(pieces, at, cutting->ranks.begin);
        const bool alone = at >= 0 && pieces->item[at].alone &&
                           (is_one || pieces->item[at].rank < cutting->ranks.end);
        pieces->only[expert] = alone ? pieces->item[at].holder : -1;
    }
}

/* A source's routes of an expert, wherever its pieces are.  Returns those for which there are none.
 */
static uint32_t cut_routes(struct cutting *cutting, const struct mp_plan *plan, int source,
                           int expert, uint32_t routes) {
    if (cutting->cut == MP_CUT_NEAREST_FIRST && is_cut(cutting->pieces, expert))
        routes = take_nearest(cutting, source, expert, routes);
    else if (cutting->cut == MP_CUT_LOCAL_FIRST && is_cut(cutting->pieces, expert) &&
             mp_placement_holds(&plan->during, expert, source))
        routes = take_local(cutting, source, expert, routes);
    return take_in_order(cutting, expert, routes);
}

static int dispatch_source(struct cutting *cutting, struct mp_plan *plan, int source,
                           struct mp_error *error) {
    const struct mp_load *load = cutting->load;
    const uint32_t *count = &load->count[(size_t)source * (size_t)load->experts];
    int64_t *end = plan->part_begin + (int64_t)source * plan->experts;
    /* A piece may have its own rank's routes, its node's and others. */
    MP_TRY(mp_plan_reserve_parts(plan, end[0] + 3 * (int64_t)cutting->pieces->count + 1, error));
    cutting->end = plan->part + end[0];
    for (int expert = 0; expert < plan->experts; expert++) {
        const int32_t only = cutting->pieces->only[expert];
        if (only >= 0)
            add_part(cutting, only, count[expert]);
        else if (cut_routes(cutting, plan, source, expert, count[expert]) > 0)
            return mp_fail(error, MP_EPLAN,
                           "iteration %lld, layer %d: the pieces of expert %d are fewer routes "
                           "than its load",
                           (long long)plan->iteration, plan->layer, expert);
        end[expert + 1] = cutting->end - plan->part;
    }
    return MP_OK;
}

int mp_plan_dispatch_pieces(struct mp_plan *plan, const struct mp_load *load,
                            struct mp_pieces *pieces, enum mp_piece_cut cut,
                            struct mp_error *error) {
    struct cutting cutting = {.load = load, .pieces = pieces, .cut = cut};
    for (int expert = 0; expert < pieces->experts; expert++)
        MP_TRY(copy_expert(plan, pieces, expert, error));
    MP_TRY(mp_plan_dispatch_begin(plan, error));
    MP_TRY(prepare(plan, load, pieces, cut, error));
    for (int node = 0; node < mp_topology_nodes(&plan->topology); node++) {
        cutting.ranks = ranks_of(&plan->topology, node);
        enter_node(&cutting);
        for (int source = cutting.ranks.begin; source < cutting.ranks.end; source++)
            MP_TRY(dispatch_source(&cutting, plan, source, error));
    }
    plan->pair = (int64_t)plan->topology.ranks * plan->experts;
    return MP_OK;
}
