#include "reference/plan/planner.h"

/* ---- creation ---- */

/* [layers], or NULL: there is no room. */
static struct mp_placement *take_placements(struct mp_planner *planner) {
    const struct mp_setting *setting = &planner->setting;
    struct mp_placement *placement;
    MP_TAKE(&planner->memory, placement, setting->layers);
    for (int layer = 0; placement && layer < setting->layers; layer++)
        mp_placement_take(&planner->memory, setting->topology.ranks, setting->experts,
                          &placement[layer]);
    return placement;
}

static int plans_of(const struct mp_planner *planner) {
    return planner->keeps_plans ? planner->setting.layers : 1;
}

static int create_plans(struct mp_planner *planner, int64_t gradient_bytes,
                        struct mp_error *error) {
    const struct mp_setting *setting = &planner->setting;
    for (int i = 0; i < plans_of(planner); i++) {
        struct mp_plan *plan = &planner->plan[i];
        MP_TRY(mp_plan_create(&setting->topology, setting->experts, setting->expert_bytes, plan,
                              error));
        if (gradient_bytes > 0)
            plan->gradient_bytes = gradient_bytes;
        plan->policy = &planner->policy;
        if (planner->keeps_plans)
            MP_TRY(mp_plan_reserve(plan, setting->experts * (setting->topology.ranks - 1), error));
    }
    return MP_OK;
}

static int create_system(struct mp_planner *planner, const void *options, struct mp_error *error) {
    const struct mp_system *system = planner->system;
    MP_TRY(mp_system_create(system, &planner->setting, options, &planner->self, error));
    planner->law = (struct mp_plan_law){
        .drops_routes = system->capabilities & MP_SYSTEM_DROPS,
        .extra_copies_limit = system->copies_limit ? system->copies_limit(planner->self) : 0,
        .padding_limit = mp_system_padding_limit(system, &planner->setting, options),
    };
    mp_system_policy(system, planner->self, &planner->setting, &planner->policy);
    return MP_OK;
}

/* The most that one rank keeps between iterations; kept: as many zeros as ranks. */
static int find_homes_limit(const struct mp_planner *planner, int *kept) {
    const struct mp_setting *setting = &planner->setting;
    int ranks = setting->topology.ranks, experts = setting->layers * setting->experts;
    if (mp_optimizer_sliced(planner->policy.optimizer))
        return planner->law.extra_copies_limit;
    if (planner->system->homes_limit)
        return planner->system->homes_limit(planner->self);
    int most = (experts + ranks - 1) / ranks;
    for (int layer = 0; layer < setting->layers; layer++) {
        const struct mp_placement *home = &planner->home[layer];
        for (int expert = 0; expert < setting->experts; expert++)
            for (int rank = mp_placement_next(home, expert, 0); rank >= 0;
                 rank = mp_placement_next(home, expert, rank + 1))
                most = ++kept[rank] > most ? kept[rank] : most;
    }
    return most;
}

/* Homes change inside a step: room for all that may move, now. */
static int reserve_moves(struct mp_planner *planner, struct mp_error *error) {
    int64_t most = (int64_t)planner->homes_limit * planner->setting.topology.ranks;
    if (mp_optimizer_sliced(planner->policy.optimizer))
        most *= planner->setting.layers;
    return mp_transfers_reserve(&planner->moves, most, error);
}

/* Choices, and rows of tokens, are of whole experts. */
static int check_cut(const struct mp_planner *planner, struct mp_error *error) {
    bool deduplicates = mp_exchange_of(planner->plan[0].exchange)->deduplicates;
    if (!mp_policy_changes_gate(&planner->policy) && !deduplicates)
        return MP_OK;
    return mp_fail(error, MP_EREFUSED,
                   "system %s, whose plans %s, takes no experts cut into shards, but %d of each",
                   planner->system->name,
                   deduplicates ? "send a row of a token to all its experts on a rank"
                                : "change what the gate chooses",
                   planner->setting.shards);
}

static int create_all(struct mp_planner *planner, const struct mp_planner_config *config,
                      struct mp_error *error) {
    const struct mp_setting *setting = &planner->setting;
    int *kept;
    MP_TRY(create_system(planner, config->options, error));
    planner->home = take_placements(planner);
    planner->change.next = take_placements(planner);
    MP_TAKE(&planner->memory, planner->plan, plans_of(planner));
    MP_TAKE(&planner->memory, kept, setting->topology.ranks);
    if (planner->policy.updates_early) {
        planner->kept = take_placements(planner);
        planner->sent = take_placements(planner);
    }
    if (planner->policy.copies_stay && setting->micro_batches > 1)
        MP_TAKE_EACH(&planner->memory, setting->layers, planner->stayed, planner->staying);
    MP_TRY(mp_arena_check(&planner->memory, error));
    MP_TRY(create_plans(planner, config->gradient_bytes, error));
    MP_TRY(mp_system_initial_homes(planner->system, planner->self, setting->layers, planner->home,
                                   error));
    planner->homes_limit = find_homes_limit(planner, kept);
    if (planner->keeps_plans)
        MP_TRY(reserve_moves(planner, error));
    MP_TRY(mp_planner_begin_layer(planner, 0, 0, error));
    if (mp_setting_shards(setting) > 1)
        MP_TRY(check_cut(planner, error));
    return MP_OK;
}

int mp_planner_create(const struct mp_planner_config *config, struct mp_planner *planner,
                      struct mp_error *error) {
    *planner = (struct mp_planner){.system = config->system,
                                   .setting = *config->setting,
                                   .check_plans = config->check_plans,
                                   .move = config->move,
                                   .keeps_plans = config->keeps_plans,
                                   .planned = -1};
#ifndef NDEBUG
    planner->check_plans = true;
#endif
    int code = create_all(planner, config, error);
    if (code)
        mp_planner_destroy(planner);
    return code;
}

void mp_planner_destroy(struct mp_planner *planner) {
    for (int i = 0; planner->plan && i < plans_of(planner); i++)
        mp_plan_destroy(&planner->plan[i]);
    for (int layer = 0; planner->staying && layer < planner->setting.layers; layer++) {
        mp_transfers_destroy(&planner->stayed[layer]);
        mp_transfers_destroy(&planner->staying[layer]);
    }
    mp_transfers_destroy(&planner->moves);
    mp_system_destroy(planner->system, planner->self);
    mp_arena_release(&planner->memory);
    *planner = (struct mp_planner){0};
}

/* ---- a layer ---- */

/* Ranks to come get the sums of gradients, so that they can make the next update themselves. */
static int share_with_coming(const struct mp_planner *planner, struct mp_plan *plan,
                             struct mp_error *error) {
    const struct mp_placement *next = &planner->change.next[plan->layer];
    plan->coming = next;
    for (int expert = 0; expert < plan->experts; expert++)
        for (int rank = mp_placement_next(next, expert, 0); rank >= 0;
             rank = mp_placement_next(next, expert, rank + 1)) {
            if (mp_placement_holds(&plan->before, expert, rank))
                continue;
            MP_TRY(mp_transfers_add(&plan->share,
                                    (struct mp_transfer){.layer = plan->layer,
                                                         .expert = expert,
                                                         .from = plan->before.owner[expert],
                                                         .to = rank,
                                                         .bytes = plan->gradient_bytes,
                                                         .stage = MP_STAGE_BACKWARD_REDUCE},
                                    error));
        }
    return MP_OK;
}

void mp_planner_begin_micro_batch(struct mp_planner *planner, int micro_batch) {
    struct mp_transfers *before = planner->stayed;
    planner->micro_batch = micro_batch;
    planner->stayed = planner->staying;
    planner->staying = before;
}

static int note_staying(const struct mp_transfers *fetch, struct mp_transfers *staying,
                        struct mp_error *error) {
    staying->count = 0;
    for (int i = 0; i < fetch->count; i++)
        MP_TRY(mp_transfers_add(staying, fetch->item[i], error));
    return MP_OK;
}

int mp_planner_begin_layer(struct mp_planner *planner, int64_t iteration, int layer,
                           struct mp_error *error) {
    struct mp_plan *plan = mp_planner_plan(planner, layer);
    planner->planned = -1;
    plan->micro_batch = planner->micro_batch;
    plan->kept = planner->keeps && planner->micro_batch == 0 ? &planner->kept[layer] : NULL;
    plan->stayed = planner->stayed && planner->micro_batch > 0 ? &planner->stayed[layer] : NULL;
    int code = mp_system_begin_plan(planner->system, planner->self, iteration, layer,
                                    &planner->home[layer], plan, error);
    if (plan->exchange == MP_EXCHANGE_FLAT)
        plan->exchange = mp_system_exchange(planner->system, planner->setting.exchange);
    if (planner->setting.exchange_degree > 1)
        plan->degree = planner->setting.exchange_degree;
    return !code && planner->change.asynchronous ? share_with_coming(planner, plan, error) : code;
}

/* Who has parameters in the next iteration before anything is fetched. */
static void note_sent(const struct mp_transfers *ahead, const struct mp_placement *home,
                      struct mp_placement *sent) {
    mp_placement_copy(sent, home);
    for (int i = 0; i < ahead->count; i++)
        mp_placement_add(sent, ahead->item[i].expert, ahead->item[i].to);
}

int mp_planner_end_layer(struct mp_planner *planner, int layer, const struct mp_load *load,
                         struct mp_error *error) {
    struct mp_plan *plan = mp_planner_plan(planner, layer);
    MP_TRY(mp_system_end_plan(planner->system, planner->self, load, plan, error));
    if (planner->staying)
        MP_TRY(note_staying(&plan->fetch, &planner->staying[layer], error));
    if (planner->sent)
        note_sent(&plan->ahead, &plan->before, &planner->sent[layer]);
    if (mp_setting_shards(&planner->setting) > 1)
        MP_TRY(mp_plan_check_shards(plan, planner->setting.shards, error));
    if (planner->check_plans)
        MP_TRY(mp_plan_check(plan, load, &planner->law, NULL, error));
    planner->planned = layer;
    return MP_OK;
}

int mp_planner_again(struct mp_planner *planner, int64_t iteration, int layer,
                     const struct mp_load *load, struct mp_error *error) {
    if (planner->keeps_plans || planner->planned == layer)
        return MP_OK;
    MP_TRY(mp_planner_begin_layer(planner, iteration, layer, error));
    return mp_planner_end_layer(planner, layer, load, error);
}

/* ---- after the step ---- */

static int list_moves(struct mp_planner *planner, struct mp_error *error) {
    int64_t bytes = planner->move.parameters;
    if (!planner->change.leave_state)
        bytes += planner->move.state;
    if (mp_optimizer_sliced(planner->policy.optimizer))
        bytes = 0;
    return mp_rehome_transfers(planner->home, planner->change.next, planner->setting.layers,
                               &planner->setting.topology, bytes, &planner->moves, error);
}

int mp_planner_after_step(struct mp_planner *planner, int64_t iteration,
                          const struct mp_load load[], struct mp_error *error) {
    const struct mp_system *system = planner->system;
    struct mp_rehome *change = &planner->change;
    int layers = planner->setting.layers;
    planner->moves.count = 0;
    change->changed = change->leave_state = change->asynchronous = false;
    planner->keeps = planner->kept && !planner->policy.forward_only;
    for (int layer = 0; planner->kept && layer < layers; layer++)
        mp_placement_copy(&planner->kept[layer], &planner->sent[layer]);
    if (!system->after_step)
        return MP_OK;
    for (int layer = 0; layer < layers; layer++)
        mp_placement_copy(&change->next[layer], &planner->home[layer]);
    MP_TRY(system->after_step(planner->self, iteration, load, planner->home, change, error));
    if (planner->check_plans)
        MP_TRY(mp_rehome_check(planner->home, change, layers, planner->policy.optimizer,
                               planner->homes_limit, error));
    if (change->changed)
        MP_TRY(list_moves(planner, error));
    return MP_OK;
}

void mp_planner_adopt_homes(struct mp_planner *planner) {
    for (int layer = 0; planner->change.changed && layer < planner->setting.layers; layer++)
        mp_placement_copy(&planner->home[layer], &planner->change.next[layer]);
}
