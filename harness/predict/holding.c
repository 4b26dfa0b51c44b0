/* What ranks hold in memory: experts between iterations, copies, gradients, rows. */
#include <string.h>

#include "harness/predict/engine.h"

/* Experts, or their slices added up, whose optimizer state a rank keeps. */
static double states_of(const struct mp_predictor *predictor, int rank) {
    enum mp_optimizer_split split = predictor->planner.policy.optimizer;
    if (!mp_optimizer_sliced(split))
        return predictor->kept[rank];
    if (mp_optimizer_of_replicas(split))
        return predictor->kept[rank] / mp_keepers(split, &predictor->planner.home[0], 0);
    return (double)predictor->layers * predictor->experts / predictor->ranks;
}

void mp_predictor_count_homes(struct mp_predictor *predictor) {
    int ranks = predictor->ranks;
    const struct mp_costs *costs = predictor->costs;
    double expert = mp_costs_expert_bytes(costs);
    double element = expert / mp_costs_expert_parameters(costs);
    double dense =
        predictor->layers * mp_costs_block_parameters(costs) + mp_costs_table_parameters(costs);
    memset(predictor->kept, 0, (size_t)ranks * sizeof(double));
    for (int l = 0; l < predictor->layers; l++) {
        double *row = predictor->kept_of_layer + (size_t)l * (size_t)ranks;
        mp_predictor_count_holders(&predictor->planner.home[l], row);
        for (int r = 0; r < ranks; r++)
            predictor->kept[r] += row[r];
    }
    for (int r = 0; r < ranks; r++) {
        double own = states_of(predictor, r) * expert;
        predictor->optimizer_seconds[r] =
            mp_costs_optimizer(costs, dense * element) + (predictor->planner.policy.offload
                                                              ? mp_costs_offloaded(costs, own)
                                                              : mp_costs_optimizer(costs, own));
    }
}

/* What of a layer a rank has beside what stays: copies, or what is put together from slices. */
static double copies_of(const struct mp_predictor *predictor, int layer, int rank) {
    double held = predictor->layer[layer].copies[rank];
    if (mp_optimizer_sliced(predictor->planner.policy.optimizer))
        return held;
    return held - predictor->kept_of_layer[(size_t)layer * (size_t)predictor->ranks + (size_t)rank];
}

/* What a rank needs at once: memory for rows in the trainer, which has had the most of every layer
 * and a quarter more (reference/model/rows.h), is larger where loads come and go.
 *
 * Copies live until backward, or only in the layer at hand and those that follow; their gradients
 * until they are summed, which is under way for two layers at once, unless they are added up over
 * micro-batches.  With slices a rank's own share is in both. */
static struct mp_memory_use use_of(const struct mp_predictor *predictor, int rank) {
    const struct mp_policy *policy = &predictor->planner.policy;
    bool stays = mp_policy_gathers_homes(policy);
    bool frees = policy->rematerialise || policy->forward_only;
    double all = 0, two = 0, above = 0, several = 0, ahead = 0;
    int window = mp_policy_fetches(policy);
    struct mp_memory_use use = {0};
    for (int l = 0; l < predictor->layers; l++) {
        const struct mp_predicted_layer *layer = &predictor->layer[l];
        double copies = copies_of(predictor, l, rank);
        double rows = (double)layer->rows[rank], sent = (double)layer->sent_rows[rank];
        all += copies;
        two = copies + above > two ? copies + above : two;
        above = copies;
        ahead += copies - (l >= window ? copies_of(predictor, l - window, rank) : 0);
        several = ahead > several ? ahead : several;
        use.rows += rows;
        use.rows_one_layer = rows > use.rows_one_layer ? rows : use.rows_one_layer;
        use.sent += sent;
        use.sent_one_layer = sent > use.sent_one_layer ? sent : use.sent_one_layer;
        use.one_hot |= layer->one_hot > 0;
        use.transit = layer->transit[rank] > use.transit ? layer->transit[rank] : use.transit;
    }
    double own = states_of(predictor, rank);
    use.experts_kept = stays ? predictor->kept[rank] : own;
    use.states_kept = policy->offload ? 0 : own;
    use.copies = stays ? 0 : !frees ? all : several > two ? several : two;
    use.gradients = own + (predictor->options.micro_batches > 1 && !frees ? all : two);
    return use;
}

void mp_predictor_count_memory(struct mp_predictor *predictor) {
    struct mp_memory memory;
    for (int r = 0; r < predictor->ranks; r++) {
        struct mp_memory_use use = use_of(predictor, r);
        mp_costs_memory(predictor->costs, &use, &memory);
        if (memory.total <= predictor->most_total[r])
            continue;
        predictor->most_total[r] = memory.total;
        predictor->most[r] = use;
    }
}

void mp_predictor_memory(const struct mp_predictor *predictor, struct mp_memory *memory,
                         int *rank) {
    int fullest = 0;
    for (int r = 1; r < predictor->ranks; r++)
        if (predictor->most_total[r] > predictor->most_total[fullest])
            fullest = r;
    mp_costs_memory(predictor->costs, &predictor->most[fullest], memory);
    *rank = fullest;
}
