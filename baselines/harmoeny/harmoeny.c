/* HarMoEny: the hottest experts of overloaded ranks, piece by piece to the least loaded ones
 * (arXiv 2506.12417; sacs-epfl/HarMoEny, src/harmonymoe/scheduler.py, schedule_harmony).
 *
 * Experts have fixed owners.  Once the gate has spoken, as long as a rank has more than the mean,
 * rounded down:
 *
 *   from       the rank with most routes, to the one with fewest; unless that would then have above
 *              the mean with `least` more
 *   expert     of the former's own the one that most of its routes are for, if these are `least`
 *   sources    who sends most of them first, until the one rank is not above the mean or the other
 *              one is at it; what moves of a source is limited by the latter alone
 *
 * so that a rank may end up below the mean by what its last source sent, and then take from others.
 * Ties go to the lower id.  Exact: nothing is dropped and no token changes its expert.
 *
 * The source serves inference: every rank has all experts in host memory and loads those it lacks
 * while it computes others.  Here a rank gets the experts that it lacks from their owners, for this
 * layer (after the gate: experts wait for them), and sends their gradients home.  Uneven numbers of
 * experts are our own.
 *
 * 256 experts on 32 ranks: about 110 us in all (moeperf-bench plan). */
#include <string.h>

#include "reference/plan/owned.h"
#include "reference/plan/queue.h"
#include "reference/plan/system.h"

struct harmoeny_options {
    int64_t least; /* q, fewest routes for which an expert moves */
};

static const struct mp_option option_table[] = {
    {"least", MP_OPTION_INT64, offsetof(struct harmoeny_options, least), "routes", "150", 1, 1e15,
     NULL,
     "fewest routes of an expert, and least room of a rank below the mean, for which they move "
     "(q)"},
    {0},
};

/* Routes of a source to an expert that another rank than the owner computes. */
struct move {
    int64_t routes;
    int32_t rank;
    int32_t next; /* of the same source and expert, an index, or -1 */
};

/* What a decision for one layer is made with, and what it comes to. */
struct harmoeny {
    struct harmoeny_options options;
    int ranks, experts;
    uint32_t *kept;    /* [ranks][experts], routes of a source that the owner computes */
    int32_t *first;    /* [ranks][experts], index into move, or -1 */
    struct move *move; /* [ranks * (experts + 1)] */
    int moves;
    int64_t *total;          /* [experts], routes that the owner computes */
    struct mp_owned owned;   /* with the routes that each rank computes */
    struct mp_queue sources; /* of an expert */
};

static int harmoeny_create(void *opaque, const struct mp_setting *setting, const void *options,
                           struct mp_error *error) {
    struct mp_arena *memory = mp_system_arena(opaque);
    const int ranks = setting->topology.ranks, experts = setting->experts;
    struct harmoeny *self = opaque;
    if (experts > INT32_MAX / (ranks + 3))
        return mp_fail(error, MP_EINVAL, "no redistribution of %d experts on %d ranks", experts,
                       ranks);
    self->options = *(const struct harmoeny_options *)options;
    self->ranks = ranks;
    self->experts = experts;
    /* A move takes all that is left of a source and an expert, or fills a rank for good. */
    size_t r = (size_t)ranks, e = (size_t)experts, moves = r * e + r;
    mp_owned_create(memory, ranks, experts, &self->owned);
    mp_queue_create(memory, ranks, &self->sources);
    MP_TAKE_EACH(memory, r * e, self->kept, self->first);
    MP_TAKE(memory, self->move, moves);
    MP_TAKE(memory, self->total, e);
    return MP_OK;
}

/* Every owner computes its experts.  Returns the mean of ranks, rounded down. */
static int64_t begin_with_owners(struct harmoeny *self, const int32_t owner[],
                                 const struct mp_load *load) {
    size_t cells = (size_t)self->ranks * (size_t)self->experts;

    memcpy(self->kept, load->count, cells * sizeof *self->kept);
    memset(self->first, -1, cells * sizeof *self->first);
    self->moves = 0;
    mp_load_expert_totals(load, self->total);
    return mp_owned_list(&self->owned, owner, self->total, NULL) / self->ranks;
}

/* Moves an expert's routes, source after source. */
static void move_expert(struct harmoeny *self, int expert, int from, int to, int64_t mean) {
    int64_t *computed = self->owned.load, above = computed[from] - mean;

    self->sources.count = 0;
    for (int source = 0; source < self->ranks; source++) {
        uint32_t kept = self->kept[(long)source * self->experts + expert];
        if (kept > 0)
            mp_queue_push(&self->sources, kept, source);
    }
    while (above > 0 && computed[to] < mean && self->sources.count > 0) {
        long cell = (long)mp_queue_pop(&self->sources).id * self->experts + expert;
        int64_t room = mean - computed[to], routes = self->kept[cell];
        routes = routes < room ? routes : room;
        self->kept[cell] -= (uint32_t)routes;
        self->move[self->moves] = (struct move){routes, to, self->first[cell]};
        self->first[cell] = self->moves++;
        self->total[expert] -= routes;
        computed[from] -= routes;
        computed[to] += routes;
        above -= routes;
    }
}

static void decide(struct harmoeny *self, const int32_t owner[], const struct mp_load *load) {
    int64_t mean = begin_with_owners(self, owner, load), *computed = self->owned.load;

    for (;;) {
        int from = 0, to = 0;
        for (int rank = 1; rank < self->ranks; rank++) {
            from = computed[rank] > computed[from] ? rank : from;
            to = computed[rank] < computed[to] ? rank : to;
        }
        if (computed[from] <= mean || computed[to] + self->options.least > mean)
            return;
        int hottest = mp_owned_hottest(&self->owned, from, self->total);
        if (hottest < 0 || self->total[hottest] < self->options.least)
            return;
        move_expert(self, hottest, from, to, mean);
    }
}

/* All experts but a rank's own: nothing limits them in the source, which has them all in host
 * memory.
 */
static int harmoeny_copies_limit(const void *opaque) {
    const struct harmoeny *self = opaque;

    return self->experts - self->experts / self->ranks;
}

static int copy_experts(const struct harmoeny *self, struct mp_plan *plan, struct mp_error *error) {
    for (int expert = 0; expert < self->experts; expert++)
        for (int source = 0; source < self->ranks; source++)
            for (int32_t at = self->first[(long)source * self->experts + expert]; at >= 0;
                 at = self->move[at].next) {
                int rank = self->move[at].rank;
                if (!mp_placement_holds(&plan->during, expert, rank))
                    MP_TRY(mp_plan_add_copy(plan, expert, rank, MP_STAGE_AFTER_GATE, error));
            }
    return MP_OK;
}

/* What the owner computes of a pair, then what others do. */
static int dispatch(const struct harmoeny *self, struct mp_plan *plan, struct mp_error *error) {
    MP_TRY(mp_plan_dispatch_begin(plan, error));
    for (int source = 0; source < self->ranks; source++)
        for (int expert = 0; expert < self->experts; expert++) {
            long cell = (long)source * self->experts + expert;
            MP_TRY(
                mp_plan_dispatch_part(plan, plan->during.owner[expert], self->kept[cell], error));
            for (int32_t at = self->first[cell]; at >= 0; at = self->move[at].next)
                MP_TRY(mp_plan_dispatch_part(plan, self->move[at].rank,
                                             (uint32_t)self->move[at].routes, error));
            mp_plan_dispatch_end_pair(plan);
        }
    return MP_OK;
}

static int harmoeny_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                               struct mp_error *error) {
    struct harmoeny *self = opaque;

    decide(self, plan->during.owner, load);
    MP_TRY(copy_experts(self, plan, error));
    return dispatch(self, plan, error);
}

const struct mp_system mp_system_harmoeny = {
    .abi = MP_SYSTEM_ABI,
    .name = "harmoeny",
    .title = "HarMoEny: hot experts' routes go to the least loaded ranks",
    .source = "HarMoEny, arXiv 2506.12417; sacs-epfl/HarMoEny",
    .models =
        "Modelled: once the gate has spoken, in every layer and batch, routes to the hottest "
        "expert of the most loaded rank go to the least loaded one, from the largest source on, as "
        "released (schedule_harmony); exact and dropless. The source serves inference and loads "
        "experts from every rank's host memory while it computes others; here they come from "
        "their owners, and experts wait for them, and in training copies send their gradients "
        "home. Uneven numbers of experts are our own. Not modelled: the cache of experts on the "
        "GPU, and loading in the background.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct harmoeny_options),
    .size = sizeof(struct harmoeny),
    .create = harmoeny_create,
    .copies_limit = harmoeny_copies_limit,
    .after_gate = harmoeny_after_gate,
};
