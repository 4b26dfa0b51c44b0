#include "harness/predict/holding.h"

#include <string.h>

int mp_holding_create(struct mp_arena *memory, struct mp_holding *holding, struct mp_error *error) {
    int ranks = holding->ranks;
    MP_TAKE_EACH(memory, ranks, holding->kept, holding->optimizer_seconds, holding->most,
                 holding->most_total);
    MP_TAKE_EACH(memory, holding->layers * ranks, holding->kept_of_layer, holding->held_of_layer);
    return mp_arena_check(memory, error);
}

/* Experts, or their slices added up, whose optimizer state a rank keeps. */
static double states_of(const struct mp_holding *holding, int rank) {
    enum mp_optimizer_split split = holding->planner->policy.optimizer;
    if (!mp_optimizer_sliced(split))
        return holding->kept[rank];
    if (mp_optimizer_of_replicas(split))
        return holding->kept[rank] / mp_keepers(split, &holding->planner->home[0], 0);
    return (double)holding->layers * holding->planner->setting.experts / holding->ranks;
}

void mp_holding_count_homes(struct mp_holding *holding) {
    int ranks = holding->ranks;
    const struct mp_costs *costs = holding->costs;
    double expert = costs->sizes.expert;
    double element = expert / costs->sizes.expert_parameters;
    double dense =
        holding->layers * mp_costs_block_parameters(costs) + mp_costs_table_parameters(costs);
    memset(holding->kept, 0, (size_t)ranks * sizeof(double));
    for (int l = 0; l < holding->layers; l++) {
        double *row = holding->kept_of_layer + (size_t)l * (size_t)ranks;
        mp_count_held(&holding->planner->home[l], row);
        for (int r = 0; r < ranks; r++)
            holding->kept[r] += row[r];
    }
    for (int r = 0; r < ranks; r++) {
        double own = holding->planner->policy.updates_early ? 0 : states_of(holding, r) * expert;
        holding->optimizer_seconds[r] =
            mp_costs_optimizer(costs, dense * element) + (holding->planner->policy.offload
                                                              ? mp_costs_offloaded(costs, own)
                                                              : mp_costs_optimizer(costs, own));
    }
}

double mp_holding_layer_update(const struct mp_holding *holding, int layer, int rank) {
    double experts = holding->kept_of_layer[(size_t)layer * (size_t)holding->ranks + (size_t)rank];
    return mp_costs_optimizer(holding->costs, experts * holding->costs->sizes.expert);
}

void mp_holding_expect_moves(struct mp_holding *holding) {
    const struct mp_transfers *moves = &holding->planner->moves;
    for (int i = 0; i < moves->count; i++)
        holding->kept[moves->item[i].to]++;
}

void mp_holding_count_copies(struct mp_holding *holding, int layer) {
    mp_count_held(&holding->planner->plan->during,
                  holding->held_of_layer + (size_t)layer * (size_t)holding->ranks);
}

/* What of a layer a rank has beside what stays: copies, or what is put together from slices. */
static double copies_of(const struct mp_holding *holding, int layer, int rank) {
    size_t at = (size_t)layer * (size_t)holding->ranks + (size_t)rank;
    bool sliced = mp_optimizer_sliced(holding->planner->policy.optimizer);
    return holding->held_of_layer[at] - (sliced ? 0 : holding->kept_of_layer[at]);
}

/* What a rank needs at once: memory for rows in the trainer, which has had the most of every layer
 * and a quarter more (reference/model/rows.h), is larger where loads come and go.
 *
 * Copies live until backward, or only in the layer at hand and those that follow; their gradients
 * until they are summed, which is under way for two layers at once, unless they are added up over
 * micro-batches.  With slices a rank's own share is in both. */
static struct mp_memory_use use_of(const struct mp_holding *holding, int rank) {
    const struct mp_policy *policy = &holding->planner->policy;
    bool stays = mp_policy_gathers_homes(policy);
    bool frees = policy->rematerialise || policy->forward_only;
    int window = mp_policy_fetches(policy);
    double all = 0, two = 0, above = 0, several = 0, ahead = 0;
    struct mp_memory_use use = {0};
    for (int l = 0; l < holding->layers; l++) {
        const struct mp_layer_rows *layer = &holding->rows->layer[l];
        double copies = copies_of(holding, l, rank);
        double rows = (double)layer->rows[rank], sent = (double)layer->sent_rows[rank];
        all += copies;
        two = copies + above > two ? copies + above : two;
        above = copies;
        ahead += copies - (l >= window ? copies_of(holding, l - window, rank) : 0);
        several = ahead > several ? ahead : several;
        use.rows += rows;
        use.rows_one_layer = rows > use.rows_one_layer ? rows : use.rows_one_layer;
        use.sent += sent;
        use.sent_one_layer = sent > use.sent_one_layer ? sent : use.sent_one_layer;
        use.one_hot |= layer->one_hot > 0;
        use.transit = layer->transit[rank] > use.transit ? layer->transit[rank] : use.transit;
    }
    double own = states_of(holding, rank);
    use.experts_kept = stays ? holding->kept[rank] : own;
    use.states_kept = policy->offload ? 0 : own;
    use.copies = stays ? 0 : !frees ? all : several > two ? several : two;
    use.gradients = own + (holding->micro_batches > 1 && !frees ? all : two);
    return use;
}

void mp_holding_count_memory(struct mp_holding *holding) {
    struct mp_memory memory;
    for (int r = 0; r < holding->ranks; r++) {
        struct mp_memory_use use = use_of(holding, r);
        mp_costs_memory(holding->costs, &use, &memory);
        if (memory.total <= holding->most_total[r])
            continue;
        holding->most_total[r] = memory.total;
        holding->most[r] = use;
    }
}
