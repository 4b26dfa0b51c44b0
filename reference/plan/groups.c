#include "reference/plan/groups.h"

static int check_sizes(const struct mp_expert_groups *groups, struct mp_error *error) {
    int ranks = groups->ranks, experts = groups->experts, group = groups->group;
    if (group < 1)
        return mp_fail(error, MP_EINVAL, "%s needs expert-parallel of at least 1, not %d",
                       groups->system, group);
    if (ranks % group != 0)
        return mp_fail(error, MP_EINVAL,
                       "%s needs expert-parallel to divide the ranks: %d ranks can't form groups "
                       "of %d, which hold the %d experts once each",
                       groups->system, ranks, group, experts);
    if (experts % group != 0)
        return mp_fail(error, MP_EINVAL,
                       "%s needs the same number of experts on every rank: %d experts can't be "
                       "shared by groups of %d of the %d ranks",
                       groups->system, experts, group, ranks);
    return MP_OK;
}

int mp_expert_groups_create(const char *system, const struct mp_setting *setting,
                            int expert_parallel, struct mp_expert_groups *groups,
                            struct mp_error *error) {
    int ranks = setting->topology.ranks, experts = setting->experts;
    int most = ranks < experts ? ranks : experts;
    *groups = (struct mp_expert_groups){.system = system,
                                        .layers = setting->layers,
                                        .experts = experts,
                                        .ranks = ranks,
                                        .group = expert_parallel == MP_ALL    ? ranks
                                                 : expert_parallel == MP_AUTO ? most
                                                                              : expert_parallel};
    MP_TRY(check_sizes(groups, error));
    groups->groups = ranks / groups->group;
    groups->each = experts / groups->group;
    return MP_OK;
}

static int holder_of(const struct mp_expert_groups *groups, int group, int expert) {
    return group * groups->group + expert / groups->each;
}

void mp_expert_groups_owners(const void *self, int32_t owner[]) {
    const struct mp_expert_groups *groups = self;
    for (int layer = 0; layer < groups->layers; layer++)
        for (int expert = 0; expert < groups->experts; expert++)
            *owner++ = holder_of(groups, expert % groups->groups, expert);
}

void mp_expert_groups_holders(const void *self, struct mp_placement home[]) {
    const struct mp_expert_groups *groups = self;
    for (int layer = 0; layer < groups->layers; layer++)
        for (int expert = 0; expert < groups->experts; expert++)
            for (int group = 0; group < groups->groups; group++)
                mp_placement_add(&home[layer], expert, holder_of(groups, group, expert));
}

void mp_expert_groups_policy(const void *self, struct mp_policy *policy) {
    const struct mp_expert_groups *groups = self;
    if (groups->groups > 1)
        policy->optimizer = MP_OPTIMIZER_REPLICATED;
}

int mp_expert_groups_copies_limit(const void *self) {
    (void)self;
    return 0;
}

/* Holder number g of an expert is the one in group g, as long as homes are the initial ones. */
static int check_homes(const struct mp_expert_groups *groups, const struct mp_plan *plan,
                       struct mp_error *error) {
    for (int expert = 0; expert < groups->experts; expert++) {
        const int32_t *holder = plan->holder + plan->holder_begin[expert];
        int holders = plan->holder_begin[expert + 1] - plan->holder_begin[expert];
        for (int group = 0; group < groups->groups; group++)
            if (holders != groups->groups || holder[group] != holder_of(groups, group, expert))
                return mp_fail(error, MP_EPLAN,
                               "iteration %lld, layer %d: expert %d should be on the %d ranks that "
                               "%s put it on, among them rank %d; it is on %d ranks",
                               (long long)plan->iteration, plan->layer, expert, groups->groups,
                               groups->system, holder_of(groups, group, expert), holders);
    }
    return MP_OK;
}

int mp_expert_groups_dispatch(const struct mp_expert_groups *groups, const struct mp_load *load,
                              struct mp_plan *plan, struct mp_error *error) {
    MP_TRY(mp_plan_dispatch_begin(plan, error));
    MP_TRY(check_homes(groups, plan, error));
    for (int source = 0; source < groups->ranks; source++) {
        int group = source / groups->group;
        for (int expert = 0; expert < groups->experts; expert++) {
            uint32_t kept = (uint32_t)mp_plan_kept(plan, load, source, expert);
            MP_TRY(mp_plan_dispatch_run(plan, plan->holder_begin[expert] + group, 1, kept, error));
            mp_plan_dispatch_end_pair(plan);
        }
    }
    return MP_OK;
}

int mp_expert_groups_dispatch_near(const struct mp_expert_groups *groups,
                                   const struct mp_load *load, struct mp_plan *plan,
                                   struct mp_error *error) {
    MP_TRY(mp_plan_dispatch_begin(plan, error));
    for (int source = 0; source < groups->ranks; source++)
        for (int expert = 0; expert < groups->experts; expert++) {
            int rank = source;
            if (!mp_placement_holds(&plan->during, expert, source))
                rank =
                    mp_expert_groups_holder(groups, &plan->before, source / groups->group, expert);
            MP_TRY(mp_plan_dispatch_part(plan, rank, mp_load_at(load, source, expert), error));
            mp_plan_dispatch_end_pair(plan);
        }
    return MP_OK;
}
