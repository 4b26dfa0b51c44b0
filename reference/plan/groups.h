/* Groups of expert parallelism: expert-data parallelism, as Megatron-LM and DeepSpeed have it.
 *
 * Neighbouring ranks form groups that have all experts once, contiguously: of R ranks in groups of
 * P, rank r holds the experts e with r mod P == e / (E / P).  Where there are several groups, as
 * there must be with more ranks than experts, an expert is held by one rank of each: tied replicas
 * (MP_OPTIMIZER_REPLICATED), whose gradients are summed and which make the same update.  A source's
 * routes go to the holder in its own group, near or far. */
#pragma once

#include "reference/plan/system.h"

struct mp_expert_groups {
    const char *system; /* whose name errors begin with; borrowed */
    int layers, experts, ranks;
    int group;  /* ranks of a group, P */
    int groups; /* R / P, holders of every expert */
    int each;   /* experts of a rank, E / P */
};

/* The row of a system's option table: P as an int at `offset` of its options. */
#define MP_EXPERT_PARALLEL_OPTION(offset)                                                          \
    {                                                                                              \
        "expert-parallel", MP_OPTION_COUNT, offset, "ranks", "auto", -1, 4096, NULL,               \
            "ranks that share one set of experts; auto for min(ranks, experts); fewer ranks make " \
            "replicas"                                                                             \
    }

/* `expert_parallel`: P, MP_AUTO for min(R, E), MP_ALL for R.  MP_EINVAL: P below 1, groups that
 * don't divide the ranks, or ranks of a group that don't divide the experts. */
int mp_expert_groups_create(const char *system, const struct mp_setting *setting,
                            int expert_parallel, struct mp_expert_groups *groups,
                            struct mp_error *error);

/* Hooks of systems whose structs begin with a struct mp_expert_groups and lie in one piece of
 * memory.  Owners are where sums of gradients are made: groups take turns, so that no rank sums
 * more than others do where it can be helped.  Replicas persist: no plan adds any. */
void mp_expert_groups_owners(const void *self, int32_t owner[]);
void mp_expert_groups_holders(const void *self, struct mp_placement home[]);
void mp_expert_groups_policy(const void *self, struct mp_policy *policy);
int mp_expert_groups_copies_limit(const void *self);
/* These hooks in a system's descriptor. */
#define MP_EXPERT_GROUPS_HOOKS                                                                     \
    .initial_owners = mp_expert_groups_owners, .initial_holders = mp_expert_groups_holders,        \
    .policy = mp_expert_groups_policy, .copies_limit = mp_expert_groups_copies_limit

/* The rank of a group that keeps an expert under these homes. */
static inline int mp_expert_groups_holder(const struct mp_expert_groups *groups,
                                          const struct mp_placement *home, int group, int expert) {
    return mp_placement_next(home, expert, group * groups->group);
}

/* Every source's routes to its own copy of an expert, or to the holder in its group. */
int mp_expert_groups_dispatch_near(const struct mp_expert_groups *groups,
                                   const struct mp_load *load, struct mp_plan *plan,
                                   struct mp_error *error);

/* Every source's routes, those that the plan keeps (mp_plan_kept), to the holder in its group.
 * MP_EPLAN where homes are no longer the initial ones; MP_ENOMEM. */
int mp_expert_groups_dispatch(const struct mp_expert_groups *groups, const struct mp_load *load,
                              struct mp_plan *plan, struct mp_error *error);
