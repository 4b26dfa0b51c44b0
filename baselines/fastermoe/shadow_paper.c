/* The paper's selection of shadows (FasterMoE, PPoPP 2022). */
#include <string.h>

#include "baselines/fastermoe/fastermoe.h"

/* max over ranks of B_w. */
static int64_t largest(const struct mp_shadows *state) {
    int64_t most = 0;

    for (int rank = 0; rank < state->ranks; rank++) {
        int64_t routes = state->own[rank] + state->gained[rank];
        if (routes > most)
            most = routes;
    }
    return most;
}

/* The routes of an expert stay where their tokens are. */
static void keep_at_home(struct mp_shadows *state, const struct mp_load *load, int expert,
                         int owner, bool printed) {
    const uint32_t *column = load->count + expert;
    uint32_t local = column[(long)owner * load->experts];

    for (int rank = 0; rank < state->ranks; rank++)
        state->gained[rank] += column[(long)rank * load->experts];
    state->gained[owner] -= local; /* counted in own[] */
    state->own[owner] -= state->total[expert] - local;
    if (printed)
        state->gained[owner] = 0;
}

void mp_shadow_paper(struct mp_shadows *state, const struct mp_shadow_costs *costs,
                     const struct mp_load *load, const int32_t owner[], bool printed, int limit) {
    memset(state->own, 0, (size_t)state->ranks * sizeof *state->own);
    memset(state->gained, 0, (size_t)state->ranks * sizeof *state->gained);
    mp_load_expert_totals(load, state->total);
    for (int expert = 0; expert < state->experts; expert++)
        state->own[owner[expert]] += state->total[expert];
    mp_load_hottest(state->total, state->experts, state->experts, state->order);
    int copies = costs->forward_only ? 1 : 2; /* parameters there, gradients back */
    double best = (double)largest(state) * mp_shadow_per_route(costs);
    state->count = 0;
    state->latency[0] = best;
    state->latencies = 1;
    for (int index = 0; index < state->experts && index < limit; index++) {
        int32_t expert = state->order[index];
        keep_at_home(state, load, expert, owner[expert], printed);
        double latency =
            (double)largest(state) * mp_passes_of_compute(costs->forward_only) * costs->compute +
            copies * (double)(index + 1) * costs->model;
        state->latency[state->latencies++] = latency;
        if (!mp_shadow_pays(latency, best))
            return;
        best = latency;
        state->expert[state->count++] = expert;
    }
}
