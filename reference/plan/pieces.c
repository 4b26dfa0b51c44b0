#include "reference/plan/pieces.h"

void mp_pieces_create(struct mp_arena *memory, int experts, int capacity,
                      struct mp_pieces *pieces) {
    *pieces = (struct mp_pieces){.experts = experts, .capacity = capacity};
    MP_TAKE(memory, pieces->item, capacity);
    MP_TAKE_EACH(memory, experts, pieces->first, pieces->last, pieces->turn, pieces->of_node);
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

/* The first of an expert's pieces, from `at` on, whose rank is at least this one. */
static int32_t from_rank(const struct mp_pieces *pieces, int32_t at, int rank) {
    while (at >= 0 && pieces->item[at].rank < rank)
        at = pieces->item[at].next;
    return at;
}

/* What of an expert's pieces is kept for the ranks of their nodes: as many as these have beside the
 * ranks' own parts, from one piece of the node after the other. */
static void keep_for_nodes(const struct mp_plan *plan, const struct mp_load *load,
                           struct mp_pieces *pieces, int expert) {
    const struct mp_topology *topology = &plan->topology;

    for (int32_t at = pieces->first[expert], next; at >= 0; at = next) {
        int node = mp_topology_node(topology, pieces->item[at].rank);
        int end = mp_topology_node_end(topology, node);
        int64_t wanted = 0;
        next = from_rank(pieces, at, end);
        for (int rank = mp_topology_node_begin(topology, node); rank < end; rank++)
            wanted += mp_load_at(load, rank, expert);
        for (int32_t by = at; by != next; by = pieces->item[by].next)
            wanted -= own_part(load, &pieces->item[by], expert);
        for (; at != next; at = pieces->item[at].next) {
            struct mp_piece *piece = &pieces->item[at];
            piece->near = wanted < piece->left ? wanted : piece->left;
            piece->left -= piece->near;
            wanted -= piece->near;
        }
    }
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
            if (cut != MP_CUT_IN_ORDER && is_cut(pieces, expert))
                piece->left -= own_part(load, piece, expert);
        }
        if (cut == MP_CUT_NEAREST_FIRST && is_cut(pieces, expert))
            keep_for_nodes(plan, load, pieces, expert);
    }
    return MP_OK;
}

/* A source's own piece takes of its routes what fits. */
static int take_own(struct mp_plan *plan, const struct mp_piece *piece, uint32_t *routes,
                    struct mp_error *error) {
    uint32_t own = *routes < piece->routes ? *routes : (uint32_t)piece->routes;
    *routes -= own;
    return mp_plan_dispatch_run(plan, piece->holder, 1, own, error);
}

/* And none if it has none. */
static int take_local(struct mp_plan *plan, const struct mp_pieces *pieces, int source, int expert,
                      uint32_t *routes, struct mp_error *error) {
    int32_t at = pieces->first[expert];

    while (at >= 0 && pieces->item[at].rank != source)
        at = pieces->item[at].next;
    return at < 0 ? MP_OK : take_own(plan, &pieces->item[at], routes, error);
}

/* The same, and then what is kept for the source's node. */
static int take_nearest(struct mp_plan *plan, struct mp_pieces *pieces, int source, int expert,
                        uint32_t *routes, struct mp_error *error) {
    int node = mp_topology_node(&plan->topology, source);
    int end = mp_topology_node_end(&plan->topology, node);
    int32_t first =
        from_rank(pieces, pieces->of_node[expert], mp_topology_node_begin(&plan->topology, node));
    int32_t own = from_rank(pieces, first, source);

    pieces->of_node[expert] = first; /* sources ascend */
    if (own >= 0 && pieces->item[own].rank == source)
        MP_TRY(take_own(plan, &pieces->item[own], routes, error));
    for (int32_t at = first; at >= 0 && *routes > 0 && pieces->item[at].rank < end;
         at = pieces->item[at].next) {
        struct mp_piece *piece = &pieces->item[at];
        uint32_t taken = *routes < piece->near ? *routes : (uint32_t)piece->near;
        piece->near -= taken;
        *routes -= taken;
        if (taken > 0)
            MP_TRY(mp_plan_dispatch_run(plan, piece->holder, 1, taken, error));
    }
    return MP_OK;
}

/* The next `routes` of an expert, cut where pieces end. */
static int take_in_order(struct mp_plan *plan, struct mp_pieces *pieces, int expert,
                         uint32_t routes, struct mp_error *error) {

    while (routes > 0) {
        int32_t at = pieces->turn[expert];
        if (at < 0)
            return mp_fail(error, MP_EPLAN,
                           "iteration %lld, layer %d: the pieces of expert %d are fewer routes "
                           "than its load",
                           (long long)plan->iteration, plan->layer, expert);
        struct mp_piece *piece = &pieces->item[at];
        uint32_t taken = routes < piece->left ? routes : (uint32_t)piece->left;
        piece->left -= taken;
        routes -= taken;
        if (piece->left == 0)
            pieces->turn[expert] = piece->next;
        MP_TRY(mp_plan_dispatch_run(plan, piece->holder, 1, taken, error));
    }
    return MP_OK;
}

int mp_plan_dispatch_pieces(struct mp_plan *plan, const struct mp_load *load,
                            struct mp_pieces *pieces, enum mp_piece_cut cut,
                            struct mp_error *error) {
    for (int expert = 0; expert < pieces->experts; expert++)
        MP_TRY(copy_expert(plan, pieces, expert, error));
    MP_TRY(mp_plan_dispatch_begin(plan, error));
    MP_TRY(prepare(plan, load, pieces, cut, error));
    for (int source = 0; source < load->ranks; source++)
        for (int expert = 0; expert < load->experts; expert++) {
            uint32_t routes = mp_load_at(load, source, expert);
            if (cut == MP_CUT_NEAREST_FIRST && is_cut(pieces, expert))
                MP_TRY(take_nearest(plan, pieces, source, expert, &routes, error));
            else if (cut == MP_CUT_LOCAL_FIRST && is_cut(pieces, expert) &&
                     mp_placement_holds(&plan->during, expert, source))
                MP_TRY(take_local(plan, pieces, source, expert, &routes, error));
            MP_TRY(take_in_order(plan, pieces, expert, routes, error));
            mp_plan_dispatch_end_pair(plan);
        }
    return MP_OK;
}
