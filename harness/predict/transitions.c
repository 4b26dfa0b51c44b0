/* Transitions between layers, for systems that look at them: of tokens whose experts the loads
 * have, or of layers taken for independent. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "harness/predict/engine.h"
#include "reference/plan/routes.h"

static size_t cells_of(const struct mp_predictor *predictor) {
    return (size_t)predictor->experts * (size_t)predictor->experts;
}

int mp_predictor_create_transitions(struct mp_predictor *predictor, struct mp_error *error) {
    size_t between = (size_t)predictor->layers - 1, cells = cells_of(predictor);
    if (!(predictor->planner.system->capabilities & MP_SYSTEM_USES_TRANSITIONS))
        return MP_OK;
    if (between * cells > INT_MAX)
        return mp_fail(error, MP_ELIMIT,
                       "%zu transitions between %d experts of %d layers; at most %d are summed",
                       between * cells, predictor->experts, predictor->layers, INT_MAX);
    MP_TAKE(&predictor->memory, predictor->told, predictor->layers);
    MP_TAKE(&predictor->memory, predictor->transitions, between * cells + 1);
    MP_TAKE(&predictor->memory, predictor->totals, 2 * predictor->experts);
    /* As the trainer sums them: a double each. */
    if (between > 0)
        predictor->transitions_seconds =
            mp_network_all_reduce(predictor->network, (double)(between * cells) * sizeof(double));
    return mp_arena_check(&predictor->memory, error);
}

const struct mp_load *mp_predictor_tell_transitions(struct mp_predictor *predictor) {
    size_t layers = (size_t)predictor->layers, cells = cells_of(predictor);
    int64_t tokens = mp_costs_tokens(predictor->costs) * predictor->ranks;
    if (!predictor->told)
        return predictor->learnt;
    memset(predictor->transitions, 0, (layers - 1) * cells * sizeof *predictor->transitions);
    for (size_t l = 0; l < layers; l++) {
        predictor->told[l] = predictor->learnt[l];
        predictor->told[l].next = l + 1 < layers ? predictor->transitions + l * cells : NULL;
    }
    for (int m = 0; m < predictor->options.micro_batches; m++)
        for (size_t l = 0; l + 1 < layers; l++) {
            const struct mp_load *load = &predictor->all_loads[(size_t)m * layers + l];
            mp_load_transitions(load, load + 1, tokens, predictor->totals, predictor->told[l].next);
        }
    if (layers > 1)
        mp_timeline_together(&predictor->timeline,
                             (struct mp_scheduled_phase){MP_PHASE_WAIT, MP_NO_DIRECTION, -1, 0},
                             predictor->transitions_seconds);
    return predictor->told;
}
