/* LP as a system: options, placements and the descriptor. */
#include "baselines/lp/lp.h"

#include <string.h>

#include "baselines/eplb/eplb.h"
#include "reference/plan/recent.h"

#define FIELD(member) offsetof(struct mp_lp_options, member)

static const struct mp_option option_table[] = {
    {"placement", MP_OPTION_CHOICE, FIELD(placement), "", "cyclic", 0, 0,
     "cyclic cube hypercube ring torus",
     "which ranks share experts: cyclic, as symmetric placements of FineEP; or LPLB's topologies, "
     "of every 8, 16 or 8 ranks, or (torus) of all"},
    {"replicas", MP_OPTION_COUNT, FIELD(replicas), "ranks", "2", 1, 65536, NULL,
     "ranks that hold an expert, with placement cyclic (FineEP's d); of fewer ranks all"},
    {"redundant", MP_OPTION_COUNT, FIELD(redundant), "experts", "auto", -1, 65536, NULL,
     "experts of every rank that have a replica, the hottest first, with LPLB's topologies; auto: "
     "one for each link of a rank"},
    {"interval", MP_OPTION_INT, FIELD(interval), "iterations", "0", 0, 1000000, NULL,
     "iterations between placements in EPLB's order (left to the caller in LPLB); 0: never"},
    {"window", MP_OPTION_INT, FIELD(window), "iterations", "10", 1, 1000, NULL,
     "iterations whose mean load is placed (left to the caller in LPLB)"},
    {0},
};

struct lp {
    struct mp_setting setting;
    struct mp_lp_options options;
    struct mp_lp state;
    int replicated;  /* experts of a rank */
    int most;        /* experts of a layer on a rank */
    int32_t *owner;  /* [experts], owned, as all below */
    int32_t *place;  /* [experts], among those of the owner */
    int32_t *order;  /* [experts], working memory as filled */
    int32_t *filled; /* [ranks] */
    struct mp_placement first;
    struct mp_eplb placer;   /* with an interval */
    struct mp_recent recent; /* likewise; cells [layers][experts] */
};

/* Places of the experts among those of their owners, in this order. */
static void number_places(struct lp *self) {
    memset(self->filled, 0, (size_t)self->setting.topology.ranks * sizeof *self->filled);
    for (int index = 0; index < self->setting.experts; index++) {
        int32_t expert = self->order[index];
        self->place[expert] = self->filled[self->owner[expert]]++;
    }
}

static void lay_out(const struct lp *self, struct mp_placement *home) {
    mp_placement_set_owners(home, self->owner);
    mp_lp_add_replicas(&self->options, &self->setting.topology, self->replicated, self->place,
                       home);
}

/* The first placement, and from it the most experts that a rank holds: under EPLB's order as many,
 * since ranks are alike there. */
static void place_first(struct lp *self) {
    int ranks = self->setting.topology.ranks, experts = self->setting.experts;
    for (int expert = 0; expert < experts; expert++) {
        self->owner[expert] = mp_contiguous_owner(expert, experts, ranks);
        self->order[expert] = expert;
    }
    number_places(self);
    lay_out(self, &self->first);
    for (int rank = 0; rank < ranks; rank++) {
        int held = 0;
        for (int expert = 0; expert < experts; expert++)
            held += mp_placement_holds(&self->first, expert, rank);
        self->most = held > self->most ? held : self->most;
    }
}

static int create_parts(struct lp *self) {
    struct mp_arena *memory = mp_system_arena(self);
    int ranks = self->setting.topology.ranks, experts = self->setting.experts;

    MP_TAKE_EACH(memory, experts, self->owner, self->place, self->order);
    MP_TAKE(memory, self->filled, (size_t)ranks);
    mp_placement_take(memory, ranks, experts, &self->first);
    mp_lp_create(memory, &self->setting.topology, experts, &self->state);
    if (self->options.interval > 0) {
        mp_eplb_create(memory, experts, experts, 1, 1, ranks, &self->placer);
        mp_recent_create(memory, (size_t)self->setting.layers * (size_t)experts,
                         self->options.window, &self->recent);
    }
    if (memory->lacking)
        return MP_ENOMEM;
    place_first(self);
    return MP_OK;
}

static int lp_create(void *opaque, const struct mp_setting *setting, const void *options,
                     struct mp_error *error) {
    const struct mp_lp_options *chosen = options;
    int ranks = setting->topology.ranks, experts = setting->experts, replicated;

    if (experts > INT32_MAX / ranks)
        return mp_fail(error, MP_EINVAL, "no split of %d experts over %d ranks", experts, ranks);
    if (chosen->interval > 0 && experts % ranks != 0)
        return mp_fail(error, MP_EINVAL,
                       "lp in EPLB's order (interval) needs as many experts on every rank: %d "
                       "can't be shared by %d ranks",
                       experts, ranks);
    MP_TRY(mp_lp_replicated(chosen, &setting->topology, experts, &replicated, error));
    struct lp *self = opaque;
    self->setting = *setting;
    self->options = *chosen;
    self->replicated = replicated;
    return create_parts(self);
}

static void lp_initial_holders(const void *opaque, struct mp_placement home[]) {
    const struct lp *self = opaque;
    for (int layer = 0; layer < self->setting.layers; layer++)
        mp_placement_copy(&home[layer], &self->first);
}

static int lp_homes_limit(const void *opaque) {
    const struct lp *self = opaque;
    return self->most * self->setting.layers;
}

static int lp_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                         struct mp_error *error) {
    struct lp *self = opaque;
    MP_TRY(mp_lp_balance(&self->state, &plan->topology, &plan->during, load, error));

    return mp_plan_dispatch_pieces(plan, load, &self->state.pieces, MP_CUT_NEAREST_FIRST, error);
}

/* EPLB without replicas gives every rank as many experts; each rank's hottest come first. */
static int lp_after_step(void *opaque, int64_t iteration, const struct mp_load load[],
                         const struct mp_placement home[], struct mp_rehome *change,
                         struct mp_error *error) {
    struct lp *self = opaque;
    int experts = self->setting.experts, each = experts / self->setting.topology.ranks;

    (void)home;
    (void)error;
    if (self->options.interval == 0)
        return MP_OK;
    mp_recent_push_totals(&self->recent, load, self->setting.layers);
    if ((iteration + 1) % self->options.interval != 0)
        return MP_OK;
    for (int layer = 0; layer < self->setting.layers; layer++) {
        const int64_t *sum = self->recent.sum + (size_t)layer * (size_t)experts;
        mp_eplb_place(&self->placer, sum);
        for (int slot = 0; slot < experts; slot++)
            self->owner[self->placer.expert[slot]] = slot / each;
        mp_load_hottest(sum, experts, experts, self->order);
        number_places(self);
        lay_out(self, &change->next[layer]);
    }
    change->changed = true;
    return MP_OK;
}

static size_t lp_save(const void *opaque, void *buffer, size_t size) {
    const struct lp *self = opaque;
    return self->options.interval > 0 ? mp_recent_save(&self->recent, buffer, size) : 0;
}

static int lp_load(void *opaque, const void *buffer, size_t size, struct mp_error *error) {
    struct lp *self = opaque;
    /* A run without an interval saves nothing. */
    return self->options.interval > 0 && size > 0
               ? mp_recent_load(&self->recent, buffer, size, error)
               : MP_OK;
}

const struct mp_system mp_system_lp = {
    .abi = MP_SYSTEM_ABI,
    .name = "lp",
    .title = "LP: routes split over fixed replicas so that the largest load is least",
    .source = "FineEP of FineMoE, arXiv 2511.16947; LPLB, deepseek-ai/LPLB",
    .models =
        "Modelled: experts on several ranks for good, by a cyclic placement (FineEP's symmetric "
        "one; its generators are our own) or by LPLB's cube, hypercube, ring and torus; once the "
        "gate has spoken, in every layer and micro-batch, the least possible largest load of a "
        "rank, in whole routes and exactly, a rank's own routes first to its own replica, then "
        "those of its node; LPLB's placement of each rank's hottest experts in EPLB's order, when "
        "wanted. No expert is copied in a step. Replicas are tied: gradients are summed, and each "
        "makes the same update (LPLB sends gradients home and parameters back). Not modelled: "
        "rounding of the sources' solvers, FineEP's placement by Monte Carlo and when it is "
        "renewed, which are not known, and hiding the program under the permutation.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_MOVES_OWNERS | MP_SYSTEM_UNEVEN_EXPERTS |
                    MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_lp_options),
    .size = sizeof(struct lp),
    .create = lp_create,
    .initial_holders = lp_initial_holders,
    .optimizer = MP_OPTIMIZER_REPLICATED,
    .homes_limit = lp_homes_limit,
    .after_gate = lp_after_gate,
    .after_step = lp_after_step,
    .save = lp_save,
    .load = lp_load,
};
