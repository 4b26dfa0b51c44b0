/* The released code's selection of shadows (laekov/fastmoe), with its defect or without. */
#include "baselines/fastermoe/fastermoe.h"

/* The routes that each source sends. */
static void sum_sources(const struct mp_load *load, int64_t total[]) {
    for (int source = 0; source < load->ranks; source++) {
        const uint32_t *row = load->count + (long)source * load->experts;
        total[source] = 0;
        for (int expert = 0; expert < load->experts; expert++)
            total[source] += row[expert];
    }
}

void mp_shadow_released(struct mp_shadows *state, const struct mp_shadow_costs *costs,
                        const struct mp_load *load, bool fixed, int limit) {
    int candidates = fixed ? state->experts : state->ranks;
    double per_route = mp_shadow_per_route(costs);

    if (fixed)
        mp_load_expert_totals(load, state->total);
    else
        sum_sources(load, state->total);
    mp_load_hottest(state->total, candidates, candidates, state->order);
    double best = per_route * (double)state->total[state->order[0]];
    state->count = 0;
    state->latency[0] = best;
    state->latencies = 1;
    for (int index = 0; index + 1 < candidates && index < limit; index++) {
        double latency = per_route * (double)state->total[state->order[index + 1]] +
                         (double)(index + 1) * costs->model;
        state->latency[state->latencies++] = latency;
        if (!mp_shadow_pays(latency, best))
            return;
        best = latency;
        state->expert[state->count++] = state->order[index];
    }
}
