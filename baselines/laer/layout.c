/* Layouts: slots per expert, and where they are (LAER-MoE, arXiv 2602.11686). */
#include <string.h>

#include "baselines/laer/laer.h"

void mp_laer_replicas(const int64_t load[], int experts, int slots, int nodes, int32_t replicas[],
                      struct mp_queue *queue) {
    int32_t first = (int64_t)nodes * experts <= slots ? nodes : 1;
    int left = slots - first * experts;

    queue->count = 0;
    for (int32_t expert = 0; expert < experts; expert++) {
        replicas[expert] = first;
        mp_queue_push(queue, (double)load[expert] / first, expert);
    }
    while (left > 0 && queue->count > 0) {
        int32_t expert = queue->item[0].id;
        int32_t more = replicas[expert] < nodes ? 1 : nodes;
        if (more > left) {
            mp_queue_pop(queue);
            continue;
        }
        left -= more;
        replicas[expert] += more;
        mp_queue_change_first(queue, (double)load[expert] / replicas[expert]);
    }
}

void mp_laer_placer_create(struct mp_arena *memory, const struct mp_topology *topology, int experts,
                           struct mp_laer_placer *placer) {
    size_t ranks = (size_t)topology->ranks, nodes = (size_t)mp_topology_nodes(topology);

    *placer = (struct mp_laer_placer){.topology = *topology};
    mp_queue_create(memory, experts, &placer->queue);
    MP_TAKE_EACH(memory, ranks, placer->rank_load, placer->free_slots);
    MP_TAKE_EACH(memory, nodes, placer->least_loaded, placer->node_copies);
}

static void find_least_loaded(struct mp_laer_placer *placer, int node) {
    int32_t best = -1;

    for (int32_t rank = mp_topology_node_begin(&placer->topology, node);
         rank < mp_topology_node_end(&placer->topology, node); rank++)
        if (placer->free_slots[rank] > 0 &&
            (best < 0 || placer->rank_load[rank] < placer->rank_load[best]))
            best = rank;
    placer->least_loaded[node] = best;
}

/* The node of the rank that gets the next copy; one that has room always exists. */
static int choose_node(const struct mp_laer_placer *placer, int nodes) {
    int32_t fewest = INT32_MAX;
    double load = 0;
    int best = -1;

    for (int node = 0; node < nodes; node++) {
        int32_t rank = placer->least_loaded[node];
        if (rank < 0 || placer->node_copies[node] > fewest)
            continue;
        if (placer->node_copies[node] == fewest && placer->rank_load[rank] >= load)
            continue;
        best = node;
        fewest = placer->node_copies[node];
        load = placer->rank_load[rank];
    }
    return best;
}

static void place_expert(struct mp_laer_placer *placer, int32_t expert, int32_t replicas,
                         double load, struct mp_slots *slots) {
    int nodes = mp_topology_nodes(&placer->topology);

    memset(placer->node_copies, 0, (size_t)nodes * sizeof *placer->node_copies);
    for (int32_t copy = 0; copy < replicas; copy++) {
        int node = choose_node(placer, nodes);
        int32_t rank = placer->least_loaded[node];
        int32_t place = slots->per_rank - placer->free_slots[rank]--;
        slots->expert[(long)rank * slots->per_rank + place] = expert;
        placer->rank_load[rank] += load;
        placer->node_copies[node]++;
        find_least_loaded(placer, node);
    }
}

void mp_laer_place(struct mp_laer_placer *placer, const int64_t load[], const int32_t replicas[],
                   struct mp_slots *slots) {
    struct mp_queue *queue = &placer->queue;

    for (int rank = 0; rank < slots->ranks; rank++) {
        placer->rank_load[rank] = 0;
        placer->free_slots[rank] = slots->per_rank;
    }
    for (int node = 0; node < mp_topology_nodes(&placer->topology); node++)
        placer->least_loaded[node] = mp_topology_node_begin(&placer->topology, node);
    for (long slot = 0; slot < (long)slots->ranks * slots->per_rank; slot++)
        slots->expert[slot] = -1;
    queue->count = 0;
    for (int32_t expert = 0; expert < slots->experts; expert++)
        mp_queue_push(queue, (double)load[expert] / replicas[expert], expert);
    while (queue->count > 0) {
        struct mp_queued next = mp_queue_pop(queue);
        place_expert(placer, next.id, replicas[next.id], next.key, slots);
    }
    mp_slots_index(slots, placer->topology.ranks_per_node);
}

void mp_laer_place_static(struct mp_slots *slots, int ranks_per_node) {
    int32_t apart = slots->experts / slots->per_rank;

    for (int32_t rank = 0; rank < slots->ranks; rank++)
        for (int32_t slot = 0; slot < slots->per_rank; slot++)
            slots->expert[(long)rank * slots->per_rank + slot] = slot * apart + rank % apart;
    mp_slots_index(slots, ranks_per_node);
}
