/* Replicating experts and packing them onto ranks (deepseek-ai/EPLB). */

#include "baselines/eplb/eplb.h"

void mp_eplb_pack(const double weight[], int items, int packs, int32_t pack[], int32_t place[],
                  int32_t work[], struct mp_queue *queue) {
    int32_t each = items / packs;

    if (each == 1) {
        for (int32_t item = 0; item < items; item++) {
            pack[item] = item;
            place[item] = 0;
        }
        return;
    }
    int32_t *order = work, *filled = work + items;
    queue->count = 0;
    for (int32_t item = 0; item < items; item++)
        mp_queue_push(queue, weight[item], item);
    for (int index = 0; index < items; index++)
        order[index] = mp_queue_pop(queue).id;
    for (int32_t index = 0; index < packs; index++) {
        filled[index] = 0;
        mp_queue_push(queue, 0, index);
    }
    for (int index = 0; index < items; index++) {
        struct mp_queued lightest = queue->item[0]; /* its key is the negated weight */
        int32_t item = order[index];
        pack[item] = lightest.id;
        place[item] = filled[lightest.id]++;
        if (place[item] + 1 == each)
            mp_queue_pop(queue);
        else
            mp_queue_change_first(queue, lightest.key - weight[item]);
    }
}

/* Gives `experts` to `physical` (as many or more) physical experts: the first are one of each, each
 * further one is a copy of the expert with the largest weight / copies, ties to the lower one.
 * expert is [physical], copies [experts].  `queue` has room for `experts`. */
static void replicate(const double weight[], int experts, int physical, int32_t expert[],
                      int32_t copies[], struct mp_queue *queue) {
    queue->count = 0;
    for (int32_t index = 0; index < experts; index++) {
        expert[index] = index;
        copies[index] = 1;
        mp_queue_push(queue, weight[index], index);
    }
    for (int index = experts; index < physical; index++) {
        int32_t hottest = queue->item[0].id;
        expert[index] = hottest;
        mp_queue_change_first(queue, weight[hottest] / ++copies[hottest]);
    }
}

void mp_eplb_create(struct mp_arena *memory, int experts, int replicas, int groups, int nodes,
                    int ranks, struct mp_eplb *state) {
    *state = (struct mp_eplb){
        .experts = experts, .replicas = replicas, .groups = groups, .nodes = nodes, .ranks = ranks};
    size_t e = (size_t)experts, p = (size_t)replicas;
    mp_queue_create(memory, replicas, &state->queue);
    MP_TAKE_EACH(memory, p, state->expert, state->share, state->pack, state->place, state->local);
    MP_TAKE_EACH(memory, e, state->copies, state->weight, state->member, state->local_copies);
    MP_TAKE(memory, state->work, 2 * p);
}

/* Groups to nodes: `member` lists node after node the experts of its groups. */
static void pack_groups(struct mp_eplb *state, const int64_t weight[]) {
    int size = state->experts / state->groups, per_node = state->groups / state->nodes;

    for (int group = 0; group < state->groups; group++) {
        state->weight[group] = 0;
        for (int index = 0; index < size; index++)
            state->weight[group] += (double)weight[group * size + index];
    }
    mp_eplb_pack(state->weight, state->groups, state->nodes, state->pack, state->place, state->work,
                 &state->queue);
    for (int group = 0; group < state->groups; group++) {
        int first = (state->pack[group] * per_node + state->place[group]) * size;
        for (int index = 0; index < size; index++)
            state->member[first + index] = group * size + index;
    }
}

/* A node's experts to its physical ones, and these to its ranks. */
static void place_node(struct mp_eplb *state, const int64_t weight[], int node) {
    int experts = state->experts / state->nodes, physical = state->replicas / state->nodes;
    int ranks = state->ranks / state->nodes, each = physical / ranks;
    const int32_t *member = state->member + node * experts;

    for (int index = 0; index < experts; index++)
        state->weight[index] = (double)weight[member[index]];
    replicate(state->weight, experts, physical, state->local, state->local_copies, &state->queue);
    for (int index = 0; index < physical; index++)
        state->share[index] =
            state->weight[state->local[index]] / state->local_copies[state->local[index]];
    mp_eplb_pack(state->share, physical, ranks, state->pack, state->place, state->work,
                 &state->queue);
    for (int index = 0; index < physical; index++) {
        int slot = node * physical + state->pack[index] * each + state->place[index];
        state->expert[slot] = member[state->local[index]];
    }
    for (int index = 0; index < experts; index++)
        state->copies[member[index]] = state->local_copies[index];
}

void mp_eplb_place(struct mp_eplb *state, const int64_t weight[]) {
    pack_groups(state, weight);
    for (int node = 0; node < state->nodes; node++)
        place_node(state, weight, node);
}
