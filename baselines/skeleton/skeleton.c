/* The skeleton: where a new system starts.  It does what plain expert parallelism does (every
 * expert stays with its owner, every route goes to it), and baselines/README.md tells how to make a
 * system of it.  Every hook of struct mp_system, in the order in which a run calls them:
 *
 *   create, policy, copies_limit,          once, before the first iteration
 *   initial_owners
 *   load                                   once, if the run goes on from a checkpoint
 *   for every iteration
 *       before_gate, after_gate            for layer 0, 1, .. layers - 1
 *       after_step                         once, after the optimizer
 *   save                                   when a checkpoint is written
 *
 * What holds for all of them: every rank calls them with the same arguments and must get the same
 * answer, because only check-plans compares plans: ranks that disagree send what nobody receives.
 * So no communication, no clock, no random numbers but those seeded from setting->seed, and no
 * decision that hangs on an address, on uninitialised memory or on which rank this is; no hook is
 * told. State lives in `self` and nowhere else: a process may run several copies of a system.  No
 * hook prints or exits; one that fails returns mp_fail's code with a sentence for the user. */
#include <string.h>

#include "reference/plan/system.h"

/* Options: a field per row of the table.  Job files, suites, --set, `moeperf show` and the record
 * of a run all read the table; nothing else has to know of an option (reference/base/option.h). */
enum owners { OWNERS_CONTIGUOUS, OWNERS_CYCLIC }; /* in the order of the row's choices */

struct skeleton_options {
    int owners; /* enum owners */
};
#define FIELD(member) offsetof(struct skeleton_options, member)

static const struct mp_option option_table[] = {
    {"owners", MP_OPTION_CHOICE, FIELD(owners), "", "contiguous", 0, 0, "contiguous cyclic",
     "which experts a rank owns: neighbours, or every R-th of R ranks"},
    {0},
};

/* What a system remembers between calls.  The skeleton decides nothing by `routes`: it is the
 * history from which a planner would predict, and what save and load are shown with. */
struct skeleton {
    int layers, experts, ranks;
    struct skeleton_options options;
    int64_t *routes; /* [layers][experts], of all iterations so far */
};

static size_t cells_of(const struct skeleton *self) {
    return (size_t)self->layers * (size_t)self->experts;
}

/* Required.  Called once on every rank, before anything else, with its struct zeroed.  Refuses what
 * the system can't do, with the constraint and the numbers: a run that was refused has cost
 * nothing. (Numbers below 1, and experts that ranks don't divide unless the system claims
 * MP_SYSTEM_UNEVEN_EXPERTS, are refused before.)
 * Takes all the memory that later hooks need, as those run inside a timed step; it is released with
 * the system, and where there is none create fails by itself.  (What else is to be ended is for the
 * hook `destroy`.)  `options` belongs to the caller and is gone afterwards: copy it. */
static int skeleton_create(void *opaque, const struct mp_setting *setting, const void *options,
                           struct mp_error *error) {
    struct skeleton *self = opaque;

    (void)error;
    self->layers = setting->layers;
    self->experts = setting->experts;
    self->ranks = setting->topology.ranks;
    self->options = *(const struct skeleton_options *)options;
    MP_TAKE(mp_system_arena(self), self->routes, cells_of(self));
    return MP_OK;
}

/* Optional; mp_even_owners without it.  Called once, after create: fills owner[layers][experts]
 * with ranks.  A rank gets room for the experts that it owns here, or for its even share of all
 * layers' experts if that is more: after_step can't move owners beyond that.  A restored run may
 * begin with the owners of its checkpoint instead, so the current owners are those in the plan,
 * never those remembered here. */
static void skeleton_initial_owners(const void *opaque, int32_t owner[]) {
    const struct skeleton *self = opaque;

    if (self->options.owners == OWNERS_CONTIGUOUS) {
        mp_even_owners(self->layers, self->experts, self->ranks, owner);
        return;
    }
    for (int layer = 0; layer < self->layers; layer++)
        for (int expert = 0; expert < self->experts; expert++)
            *owner++ = expert % self->ranks;
}

/* Optional.  Called once, after create: changes what the plans of this system have otherwise than
 * mp_policy_plain, the same in all layers and iterations, as memory and the order of operations
 * depend on it (reference/plan/policy.h). */
static void skeleton_policy(const void *opaque, struct mp_policy *policy) {
    (void)opaque;
    (void)policy; /* its owner keeps an expert, and alone updates it */
}

/* Required if the system claims MP_SYSTEM_REPLICATES, otherwise allowed.  Called once, after
 * create: memory for so many copies of experts of one layer is allocated on every rank, and
 * plan_check refuses a plan with more on one rank.  0 .. experts. */
static int skeleton_copies_limit(const void *opaque) {
    (void)opaque;
    return 0; /* never a copy */
}

/* Required if the system claims MP_SYSTEM_PLANS_BEFORE_GATE, refused otherwise.  Called for every
 * layer before its attention, when `plan` has its iteration, layer and owners and nothing else.
 * Copies added here (mp_plan_add_copy, MP_STAGE_BEFORE_GATE) travel under the attention; a system
 * that adds any, here or below, claims MP_SYSTEM_REPLICATES, or its plans are refused.
 * The loads of this layer are not known yet; those of earlier iterations are what after_step saw.
 * Must not dispatch, and must not learn or count calls: one comes before the first iteration, to
 * see how rows travel, and some come from validation. */
static int skeleton_before_gate(void *opaque, struct mp_plan *plan, struct mp_error *error) {
    (void)opaque;
    (void)plan;
    (void)error;
    return MP_OK; /* nothing to copy */
}

/* Required.  Called for every layer when its loads are known and nothing has been dispatched.  May
 * add copies (MP_STAGE_AFTER_GATE: the experts wait for them) and must dispatch: say for every
 * (source, expert) who computes how many of its routes, only ranks that hold the expert in
 * plan->during, all of them unless the system claims MP_SYSTEM_DROPS.
 * Must not change plan->before or owners; must not learn, as validation calls it too.
 * Every rank waits for this call in every layer, so it allocates nothing but what the plan's lists
 * grow by.  mp_plan_dispatch_to_owner and mp_plan_dispatch_nearest fill the dispatch, and those of
 * slots.h and pieces.h; mp_plan_dispatch_begin, _part and _end_pair let a system write its own.
 * Capacities, of which drops follow, are set before. */
static int skeleton_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                               struct mp_error *error) {
    (void)opaque;
    return mp_plan_dispatch_to_owner(plan, load, error); /* plain expert parallelism */
}

/* Required if the system claims MP_SYSTEM_MOVES_OWNERS, otherwise allowed.  Called once per
 * iteration after the optimizer, never for validation: the place to learn from load[layers].
 * home[layers] is where experts are kept; change->next arrives equal to it, and whoever writes
 * into it sets change->changed (unsaid changes are refused with check-plans).  What has to move
 * then, parameters and optimizer state, follows from the two.  No rank may end with more experts
 * than it has room for (initial_owners, homes_limit). Without the claim nothing is written. */
static int skeleton_after_step(void *opaque, int64_t iteration, const struct mp_load load[],
                               const struct mp_placement home[], struct mp_rehome *change,
                               struct mp_error *error) {
    struct skeleton *self = opaque;

    (void)iteration;
    (void)home;
    (void)change;
    (void)error;
    for (int layer = 0; layer < self->layers; layer++)
        for (int source = 0; source < self->ranks; source++)
            for (int expert = 0; expert < self->experts; expert++)
                self->routes[(size_t)layer * (size_t)self->experts + (size_t)expert] +=
                    mp_load_at(&load[layer], source, expert);
    return MP_OK;
}

/* Saved: this head, then `routes`. */
struct head {
    char magic[8]; /* its last letter changes with the format */
    int32_t layers, experts;
};
static const char MAGIC[8] = {'M', 'P', 'S', 'K', 'E', 'L', 'E', '1'};

/* Optional; save and load come together.  Called when a checkpoint is written, first with size 0
 * for the bytes needed, then with room for them; writes nothing if they don't fit.
 * Saves what later decisions depend on, no more, so that a restored run plans as the unbroken one
 * would.  Nothing of it may depend on the number of ranks: a checkpoint is restored under any. */
static size_t skeleton_save(const void *opaque, void *buffer, size_t size) {
    const struct skeleton *self = opaque;
    struct head head = {.layers = self->layers, .experts = self->experts};
    size_t bytes = cells_of(self) * sizeof *self->routes;

    if (size >= sizeof head + bytes) {
        memcpy(head.magic, MAGIC, sizeof MAGIC);
        memcpy(buffer, &head, sizeof head);
        memcpy((char *)buffer + sizeof head, self->routes, bytes);
    }
    return sizeof head + bytes;
}

/* Optional, see save.  Called once, before the first iteration of a restored run, with what save
 * of the same system wrote, or with the remains of it: MP_EFORMAT unless it is whole and of this
 * shape, and then nothing has changed. */
static int skeleton_load(void *opaque, const void *buffer, size_t size, struct mp_error *error) {
    struct skeleton *self = opaque;
    size_t bytes = cells_of(self) * sizeof *self->routes;
    struct head head;

    if (size != sizeof head + bytes)
        return mp_fail(error, MP_EFORMAT,
                       "the saved state of skeleton has %zu bytes instead of %zu", size,
                       sizeof head + bytes);
    memcpy(&head, buffer, sizeof head);
    if (memcmp(head.magic, MAGIC, sizeof MAGIC) != 0)
        return mp_fail(error, MP_EFORMAT, "what was saved is no state of skeleton of this version");
    if (head.layers != self->layers || head.experts != self->experts)
        return mp_fail(error, MP_EFORMAT,
                       "the saved state of skeleton is of %d layers with %d experts, the job has "
                       "%d with %d",
                       head.layers, head.experts, self->layers, self->experts);
    memcpy(self->routes, (const char *)buffer + sizeof head, bytes);
    return MP_OK;
}

/* Data first: what the system is, where it comes from, what it may do to a run.  Registration
 * checks the rows against each other and names the rule that is broken (mp_systems_register). */
const struct mp_system mp_system_skeleton = {
    .abi = MP_SYSTEM_ABI,
    .name = "skeleton",                                                /* what users type */
    .title = "Skeleton: plain expert parallelism, hook by hook",       /* moeperf list */
    .source = "none; where a new system starts (baselines/README.md)", /* paper and section */
    .models = "Modelled: experts stay with their owners, exact exchange of the routed tokens, "
              "nothing copied, moved, dropped or padded. Not modelled: any idea of its own.",
    .capabilities = MP_SYSTEM_PLANS_BEFORE_GATE, /* as it has the hook */
    .options = option_table,
    .options_size = sizeof(struct skeleton_options),
    .size = sizeof(struct skeleton),
    .create = skeleton_create,
    .initial_owners = skeleton_initial_owners,
    .policy = skeleton_policy,
    .copies_limit = skeleton_copies_limit,
    .before_gate = skeleton_before_gate,
    .after_gate = skeleton_after_gate,
    .after_step = skeleton_after_step,
    .save = skeleton_save,
    .load = skeleton_load,
};
