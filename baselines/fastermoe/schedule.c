/* The smart schedule as a model, and the group size that it favours. */
#include <stdlib.h>

#include "baselines/fastermoe/fastermoe.h"

static double later(double a, double b) {
    return a > b ? a : b;
}

double mp_smart_schedule(const struct mp_smart_costs *costs, struct mp_smart_ends *ends) {
    double sent = 0, computed = 0;

    for (int step = 0; step < costs->steps; step++) {
        sent += costs->send[step];
        ends->send[step] = sent;
        computed = later(computed, sent) + costs->compute[step];
        ends->compute[step] = computed;
    }
    double line = sent + costs->broadcasts;
    ends->shadows = later(computed, line) + costs->shadows;
    for (int step = 0; step < costs->steps; step++) {
        line = later(line, ends->compute[step]) + costs->back[step];
        ends->back[step] = line;
    }
    return later(line, ends->shadows);
}

/* Memory for the steps of one prediction. */
struct prediction {
    struct mp_smart_costs costs;
    struct mp_smart_ends ends;
    double *memory; /* [6][ranks], owned */
};

static int create_prediction(int ranks, struct prediction *prediction, struct mp_error *error) {
    size_t each = (size_t)ranks;
    double *memory;
    MP_TRY(MP_NEW(memory, 6 * each, error));
    *prediction = (struct prediction){
        .memory = memory,
        .costs = {.send = memory, .compute = memory + each, .back = memory + 2 * each},
        .ends = {
            .send = memory + 3 * each, .compute = memory + 4 * each, .back = memory + 5 * each}};
    return MP_OK;
}

/* Balanced loads without shadows: what a rank computes comes in equal parts from all ranks. */
static double predict(struct prediction *prediction, const struct mp_setting *setting,
                      const struct mp_shadow_costs *costs, int group_size) {
    int ranks = setting->topology.ranks;
    struct mp_smart_costs *smart = &prediction->costs;
    double of_rank = (double)setting->tokens_per_rank * setting->top_k / ranks;
    double compute = of_rank * group_size * costs->compute +
                     (double)setting->experts / ranks * setting->seconds_per_expert;

    smart->steps = ranks / group_size;
    for (int step = 0; step < smart->steps; step++) {
        int others = step == 0 ? group_size - 1 : group_size; /* its own rows stay where they are */
        smart->send[step] = smart->back[step] = of_rank * others * costs->feature;
        smart->compute[step] = compute;
    }
    return mp_smart_schedule(smart, &prediction->ends);
}

int mp_smart_group_size(const struct mp_setting *setting, const struct mp_shadow_costs *costs,
                        int *group_size, struct mp_error *error) {
    int ranks = setting->topology.ranks;
    struct prediction prediction = {.memory = NULL};
    MP_TRY(create_prediction(ranks, &prediction, error));
    double best = predict(&prediction, setting, costs, ranks);
    *group_size = ranks;
    for (int size = ranks / 2; size > 0; size--) {
        if (ranks % size != 0)
            continue;
        double seconds = predict(&prediction, setting, costs, size);
        if (mp_shadow_pays(seconds, best)) {
            best = seconds;
            *group_size = size;
        }
    }
    free(prediction.memory);
    return MP_OK;
}
