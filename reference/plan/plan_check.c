/* The law for plans.
 *
 * Every rule is looked at and the broken one that stands first in enum mp_plan_violation is
 * reported, so that a mutation of one kind is named as that kind whatever follows from it.  A rule
 * about a rank or expert that does not exist is skipped by all rules that would index with it. */
#include "reference/plan/plan_check.h"

#include <stdarg.h>
#include <stdio.h>

#include "reference/base/arena.h"

const char *mp_plan_violation_name(enum mp_plan_violation violation) {
    static const char *const name[MP_PLAN_VIOLATIONS] = {"legal",
                                                         "shape",
                                                         "owner-out-of-range",
                                                         "owner-not-holder",
                                                         "owner-changed",
                                                         "holder-lost",
                                                         "holder-out-of-range",
                                                         "owner-accompanied",
                                                         "holder-unfed",
                                                         "fetch-from-non-holder",
                                                         "fetch-to-non-holder",
                                                         "fetch-twice",
                                                         "reduce-missing",
                                                         "reduce-twice",
                                                         "reduce-not-to-owner",
                                                         "reduce-from-non-holder",
                                                         "share-wrong",
                                                         "slices",
                                                         "wrong-stage",
                                                         "wrong-bytes",
                                                         "wrong-layer",
                                                         "holders-unlisted",
                                                         "route-to-non-holder",
                                                         "route-twice",
                                                         "route-lost",
                                                         "drop-below-capacity",
                                                         "over-capacity",
                                                         "padding",
                                                         "exchange",
                                                         "memory"};
    return (unsigned)violation < MP_PLAN_VIOLATIONS ? name[violation] : "unknown";
}

struct check {
    const struct mp_plan *plan;
    const struct mp_load *load;
    int ranks, experts, words;
    struct mp_placement present; /* who has the expert by now: before, then what fetches bring */
    struct mp_placement summed;  /* whose gradient is on its way to the owner */
    int64_t *last_pair;          /* [ranks], 1 + the (source, expert) that last used the holder */
    struct mp_placement shared;  /* which replicas get the sum */
    int64_t *kept;               /* [experts], routes dispatched */
    struct mp_placement sent;    /* to whom experts are sent ahead */
    int *sent_to;                /* [ranks], experts that are sent there ahead */
    int *extra;                  /* [ranks], copies beside what persists; with slices all held */
    enum mp_plan_violation violation;
    char text[384];
    struct mp_arena arena; /* of these tables */
};

/* Keeps the sentence if no violation that stands earlier in the enum is known. */
__attribute__((format(printf, 3, 4))) static void report(struct check *check,
                                                         enum mp_plan_violation violation,
                                                         const char *format, ...) {
    if (check->violation != MP_PLAN_LEGAL && check->violation <= violation)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(check->text, sizeof check->text, format, arguments);
    va_end(arguments);
    check->violation = violation;
}

static bool is_rank(const struct check *check, int rank) {
    return rank >= 0 && rank < check->ranks;
}

static bool is_expert(const struct check *check, int expert) {
    return expert >= 0 && expert < check->experts;
}

static bool holds(const struct check *check, const struct mp_placement *placement, int expert,
                  int rank) {
    return is_rank(check, rank) && mp_placement_holds(placement, expert, rank);
}

/* Sizes that everything below relies on. */
static void check_shape(struct check *check) {
    const struct mp_plan *plan = check->plan;
    const struct mp_load *load = check->load;
    int ranks = plan->topology.ranks, experts = plan->experts;

    if (ranks < 1 || experts < 1 || plan->topology.ranks_per_node < 1 || plan->expert_bytes < 1)
        report(check, MP_PLAN_SHAPE,
               "%d ranks, %d per node, %d experts of %lld bytes: none may be below 1", ranks,
               plan->topology.ranks_per_node, experts, (long long)plan->expert_bytes);
    const struct mp_placement *placement[2] = {&plan->before, &plan->during};
    for (int index = 0; index < 2; index++)
        if (placement[index]->ranks != ranks || placement[index]->experts != experts)
            report(check, MP_PLAN_SHAPE,
                   "a placement of %d ranks and %d experts in a plan of %d and %d",
                   placement[index]->ranks, placement[index]->experts, ranks, experts);
    if (!load)
        return;
    if (load->ranks != ranks || load->experts != experts)
        report(check, MP_PLAN_SHAPE, "a load of %d ranks and %d experts for a plan of %d and %d",
               load->ranks, load->experts, ranks, experts);
    int64_t pairs = (int64_t)ranks * experts;
    if (plan->pair != 0 && plan->pair != pairs)
        report(check, MP_PLAN_SHAPE, "dispatch written for %lld of %lld pairs of source and expert",
               (long long)plan->pair, (long long)pairs);
    if (check->violation != MP_PLAN_LEGAL)
        return;
    for (int64_t pair = 0; pair < pairs; pair++)
        if (plan->part_begin[pair] < 0 || plan->part_begin[pair + 1] < plan->part_begin[pair] ||
            plan->part_begin[pair + 1] > plan->part_capacity)
            report(check, MP_PLAN_SHAPE, "parts %lld .. %lld of source %lld, expert %lld",
                   (long long)plan->part_begin[pair], (long long)plan->part_begin[pair + 1],
                   (long long)(pair / experts), (long long)(pair % experts));
}

static void check_owners(struct check *check) {
    const struct mp_placement *before = &check->plan->before, *during = &check->plan->during;

    for (int expert = 0; expert < check->experts; expert++) {
        int owner = before->owner[expert], later = during->owner[expert];
        if (!is_rank(check, owner) || !is_rank(check, later)) {
            report(check, MP_PLAN_OWNER_OUT_OF_RANGE, "expert %d is owned by rank %d of %d", expert,
                   is_rank(check, owner) ? later : owner, check->ranks);
            continue;
        }
        if (!holds(check, before, expert, owner) || !holds(check, during, expert, later))
            report(check, MP_PLAN_OWNER_NOT_HOLDER, "rank %d owns expert %d and does not hold it",
                   holds(check, before, expert, owner) ? later : owner, expert);
        if (owner != later)
            report(check, MP_PLAN_OWNER_CHANGED,
                   "expert %d is owned by rank %d before and by rank %d during the layer", expert,
                   owner, later);
    }
}

static void check_holders(struct check *check) {
    const struct mp_placement *before = &check->plan->before, *during = &check->plan->during;
    int spare = check->words * 64 - check->ranks;
    uint64_t beyond = spare ? ~UINT64_C(0) << (64 - spare) : 0;

    for (int expert = 0; expert < check->experts; expert++) {
        long row = (long)expert * check->words;
        for (int word = 0; word < check->words; word++) {
            uint64_t lost = before->holder[row + word] & ~during->holder[row + word];
            if (lost)
                report(check, MP_PLAN_HOLDER_LOST,
                       "rank %d holds expert %d before and not during the layer",
                       word * 64 + __builtin_ctzll(lost), expert);
        }
        long last = row + check->words - 1;
        uint64_t outside = (before->holder[last] | during->holder[last]) & beyond;
        if (outside)
            report(check, MP_PLAN_HOLDER_OUT_OF_RANGE, "expert %d is held by rank %d of %d", expert,
                   (check->words - 1) * 64 + __builtin_ctzll(outside), check->ranks);
        int copies = mp_placement_copies(before, expert);
        if (copies > 1 && check->plan->policy->optimizer == MP_OPTIMIZER_OWNER)
            report(check, MP_PLAN_OWNER_ACCOMPANIED,
                   "expert %d is kept by %d ranks, and its optimizer by its owner %d alone", expert,
                   copies, before->owner[expert]);
    }
}

/* What holds for a transfer of either direction. */
static void check_transfer(struct check *check, const struct mp_transfer *transfer, int64_t bytes,
                           const char *kind) {
    if (transfer->bytes != bytes)
        report(check, MP_PLAN_WRONG_BYTES,
               "the %s of expert %d from rank %d to %d takes %lld bytes, an expert has %lld", kind,
               transfer->expert, transfer->from, transfer->to, (long long)transfer->bytes,
               (long long)bytes);
    if (transfer->layer != check->plan->layer || !is_expert(check, transfer->expert))
        report(check, MP_PLAN_WRONG_LAYER,
               "a %s of layer %d, expert %d in a plan of layer %d, %d experts", kind,
               transfer->layer, transfer->expert, check->plan->layer, check->experts);
}

/* Fetches of a stage travel together, so that none can feed another; and for backward all do. */
static void check_source(struct check *check, const struct mp_transfer *fetch) {
    const struct mp_plan *plan = check->plan;
    const struct mp_placement *has = plan->policy->rematerialise ? &plan->before : &check->present;

    if (is_expert(check, fetch->expert) && !holds(check, has, fetch->expert, fetch->from))
        report(check, MP_PLAN_FETCH_FROM_NON_HOLDER,
               "expert %d is fetched from rank %d, which does not have it, to rank %d",
               fetch->expert, fetch->from, fetch->to);
}

static void check_fetch(struct check *check, const struct mp_transfer *fetch) {
    const struct mp_plan *plan = check->plan;

    check_transfer(check, fetch, plan->expert_bytes, "fetch");
    if (!is_expert(check, fetch->expert))
        return;
    if (!holds(check, &plan->during, fetch->expert, fetch->to))
        report(check, MP_PLAN_FETCH_TO_NON_HOLDER,
               "expert %d is fetched to rank %d, which is no holder of it", fetch->expert,
               fetch->to);
    if (!is_rank(check, fetch->to))
        return;
    if (mp_placement_holds(&check->present, fetch->expert, fetch->to))
        report(check, MP_PLAN_FETCH_TWICE, "expert %d is fetched to rank %d, which has it already",
               fetch->expert, fetch->to);
    mp_placement_add(&check->present, fetch->expert, fetch->to);
}

/* Who keeps slices, and where. */
static void check_slices(struct check *check) {
    const struct mp_plan *plan = check->plan;

    int first = mp_keepers(plan->policy->optimizer, &plan->before, 0);
    for (int expert = 1; expert < check->experts; expert++) {
        int keepers = mp_keepers(plan->policy->optimizer, &plan->before, expert);
        if (keepers != first)
            report(check, MP_PLAN_SLICES,
                   "expert %d is kept in %d slices and expert 0 in %d: slices are equally long",
                   expert, keepers, first);
    }
}

/* Whether it is there, as its stage says: it has stayed, or was sent ahead. */
static bool is_kept(const struct check *check, int index) {
    const struct mp_transfers *stayed =
        check->plan->policy->rematerialise ? NULL : check->plan->stayed;
    const struct mp_transfer *fetch = &check->plan->fetch.item[index];
    const struct mp_transfer *before =
        stayed && index < stayed->count ? &stayed->item[index] : NULL;
    if (fetch->stage != MP_STAGE_BACKWARD_PREFETCH || !is_expert(check, fetch->expert) ||
        !is_rank(check, fetch->to))
        return false;
    return before ? before->expert == fetch->expert && before->to == fetch->to
                  : mp_plan_keeps(check->plan, fetch->expert, fetch->to);
}

/* In the order of time: what comes before the gate, or came in the iteration before, can feed what
 * comes after it. */
static void check_fetches(struct check *check) {
    const struct mp_transfers *list = &check->plan->fetch;

    for (int late = 0; late < 2; late++) {
        for (int index = 0; index < list->count; index++)
            if ((list->item[index].stage == MP_STAGE_AFTER_GATE) == late)
                check_source(check, &list->item[index]);
        for (int index = 0; index < list->count; index++) {
            const struct mp_transfer *fetch = &list->item[index];
            if ((fetch->stage == MP_STAGE_AFTER_GATE) != late)
                continue;
            check_fetch(check, fetch);
            if (!late && fetch->stage != MP_STAGE_BEFORE_GATE && !is_kept(check, index))
                report(check, MP_PLAN_WRONG_STAGE, "expert %d is fetched to rank %d in stage %s",
                       fetch->expert, fetch->to, mp_stage_name(fetch->stage));
        }
    }
    const struct mp_policy *policy = check->plan->policy;
    bool sliced = mp_optimizer_sliced(policy->optimizer);
    if (policy->gather_ahead < 0 || policy->gather_ahead > MP_MOST_AHEAD ||
        (policy->gather_ahead > 0 && !mp_policy_gathers(policy)))
        report(check, MP_PLAN_SLICES,
               "experts are to be put together %d layers ahead, in stage %s, with an optimizer %s",
               policy->gather_ahead, mp_stage_name(mp_plan_gather_stage(check->plan)),
               mp_optimizer_name(policy->optimizer));
    if (sliced && list->count > 0)
        report(check, MP_PLAN_SLICES,
               "experts are kept in slices, and there are %d fetches beside them", list->count);
    check_slices(check);
    for (int expert = 0; expert < check->experts && !sliced; expert++)
        for (int rank = mp_placement_next(&check->plan->during, expert, 0); is_rank(check, rank);
             rank = mp_placement_next(&check->plan->during, expert, rank + 1))
            if (!mp_placement_holds(&check->present, expert, rank))
                report(check, MP_PLAN_HOLDER_UNFED,
                       "rank %d is a holder of expert %d and no fetch brings it", rank, expert);
}

static void check_reduce(struct check *check, const struct mp_transfer *reduce) {
    const struct mp_placement *during = &check->plan->during;

    check_transfer(check, reduce, check->plan->gradient_bytes, "reduce");
    if (reduce->stage != MP_STAGE_BACKWARD_REDUCE)
        report(check, MP_PLAN_WRONG_STAGE,
               "the gradient of expert %d on rank %d is summed in stage %s", reduce->expert,
               reduce->from, mp_stage_name(reduce->stage));
    if (!is_expert(check, reduce->expert))
        return;
    int owner = during->owner[reduce->expert];
    if (reduce->to != owner)
        report(check, MP_PLAN_REDUCE_NOT_TO_OWNER,
               "the gradient of expert %d goes from rank %d to rank %d and not to its owner %d",
               reduce->expert, reduce->from, reduce->to, owner);
    if (reduce->from == owner || !holds(check, during, reduce->expert, reduce->from)) {
        report(check, MP_PLAN_REDUCE_FROM_NON_HOLDER,
               "a gradient of expert %d comes from rank %d, which has no copy of it",
               reduce->expert, reduce->from);
        return;
    }
    if (mp_placement_holds(&check->summed, reduce->expert, reduce->from))
        report(check, MP_PLAN_REDUCE_TWICE, "the gradient of expert %d on rank %d is summed twice",
               reduce->expert, reduce->from);
    mp_placement_add(&check->summed, reduce->expert, reduce->from);
}

/* What a rank holds beside what memory between iterations is made for. */
static bool is_extra(const struct check *check, int expert, int rank) {
    if (mp_optimizer_sliced(check->plan->policy->optimizer))
        return true;
    return !mp_placement_holds(&check->plan->before, expert, rank);
}

static void check_reduces(struct check *check) {
    const struct mp_placement *during = &check->plan->during;
    enum mp_optimizer_split optimizer = check->plan->policy->optimizer;
    bool summed = !mp_optimizer_sliced(optimizer) || mp_optimizer_sums(optimizer);

    for (int index = 0; index < check->plan->reduce.count; index++)
        check_reduce(check, &check->plan->reduce.item[index]);
    if (!summed && check->plan->reduce.count > 0)
        report(check, MP_PLAN_SLICES,
               "holders send slices of their own gradients, and %d of them are summed before",
               check->plan->reduce.count);
    for (int expert = 0; expert < check->experts; expert++)
        for (int rank = mp_placement_next(during, expert, 0); is_rank(check, rank);
             rank = mp_placement_next(during, expert, rank + 1)) {
            check->extra[rank] += is_extra(check, expert, rank);
            if (rank == during->owner[expert] || !summed)
                continue;
            if (!mp_placement_holds(&check->summed, expert, rank))
                report(check, MP_PLAN_REDUCE_MISSING,
                       "the gradient of expert %d on rank %d is not summed into its owner %d",
                       expert, rank, during->owner[expert]);
        }
}

/* By the owner, to each rank once, and no more than its memory takes. */
static void check_sent(struct check *check, const struct mp_transfer *ahead, int limit) {
    int expert = ahead->expert, from = ahead->from, to = ahead->to;

    check_transfer(check, ahead, check->plan->expert_bytes, "way ahead");
    if (ahead->stage != MP_STAGE_BACKWARD_PREFETCH)
        report(check, MP_PLAN_WRONG_STAGE, "expert %d is sent ahead to rank %d in stage %s", expert,
               to, mp_stage_name(ahead->stage));
    if (!is_expert(check, expert) || !is_rank(check, to))
        return;
    if (from != check->plan->during.owner[expert] || to == from)
        report(check, MP_PLAN_FETCH_FROM_NON_HOLDER,
               "expert %d of rank %d is sent ahead from rank %d to rank %d", expert,
               check->plan->during.owner[expert], from, to);
    if (mp_placement_holds(&check->sent, expert, to))
        report(check, MP_PLAN_FETCH_TWICE, "expert %d is sent ahead to rank %d twice", expert, to);
    mp_placement_add(&check->sent, expert, to);
    if (++check->sent_to[to] > limit && limit >= 0)
        report(check, MP_PLAN_MEMORY, "%d experts are sent ahead to rank %d, the limit is %d",
               check->sent_to[to], to, limit);
}

static void check_ahead(struct check *check, const struct mp_plan_law *law) {
    const struct mp_plan *plan = check->plan;
    const struct mp_policy *policy = plan->policy;
    bool may = policy->updates_early && policy->optimizer == MP_OPTIMIZER_OWNER &&
               !policy->rematerialise && !policy->offload;

    if (plan->ahead.count > 0 && !may)
        report(check, MP_PLAN_WRONG_STAGE, "%d experts are sent ahead, which the policy rules out",
               plan->ahead.count);
    for (int index = 0; index < plan->ahead.count; index++)
        check_sent(check, &plan->ahead.item[index], law->extra_copies_limit);
}

/* Whether a rank keeps an expert, or is about to. */
static bool keeps(const struct check *check, int expert, int rank) {
    return holds(check, &check->plan->before, expert, rank) ||
           (check->plan->coming && holds(check, check->plan->coming, expert, rank));
}

static void check_share(struct check *check, const struct mp_transfer *share) {
    const struct mp_placement *before = &check->plan->before;

    check_transfer(check, share, check->plan->gradient_bytes, "share");
    if (share->stage != MP_STAGE_BACKWARD_REDUCE)
        report(check, MP_PLAN_WRONG_STAGE, "the gradient sum of expert %d is shared in stage %s",
               share->expert, mp_stage_name(share->stage));
    if (!is_expert(check, share->expert))
        return;
    if (share->from != before->owner[share->expert] || share->to == share->from ||
        !keeps(check, share->expert, share->to) ||
        mp_placement_holds(&check->shared, share->expert, share->to)) {
        report(check, MP_PLAN_SHARE_WRONG,
               "the gradient sum of expert %d goes from rank %d to rank %d; it goes from the owner "
               "%d to every replica once",
               share->expert, share->from, share->to, before->owner[share->expert]);
        return;
    }
    mp_placement_add(&check->shared, share->expert, share->to);
}

/* Replicas that update, or that pass slices of the sum on, get it; nobody else does. */
static void check_shares(struct check *check) {
    const struct mp_placement *before = &check->plan->before;
    bool wanted = mp_optimizer_sums(check->plan->policy->optimizer);

    for (int index = 0; index < check->plan->share.count; index++)
        check_share(check, &check->plan->share.item[index]);
    if (!wanted && check->plan->share.count > 0)
        report(check, MP_PLAN_SHARE_WRONG, "%d gradient sums are shared with an optimizer %s",
               check->plan->share.count, mp_optimizer_name(check->plan->policy->optimizer));
    for (int expert = 0; expert < check->experts && wanted; expert++)
        for (int rank = 0; rank < check->ranks; rank++)
            if (rank != before->owner[expert] && keeps(check, expert, rank) &&
                !mp_placement_holds(&check->shared, expert, rank))
                report(check, MP_PLAN_SHARE_WRONG,
                       "the replica of expert %d on rank %d does not get the gradient sum", expert,
                       rank);
}

/* Before routes are followed through it. */
static void check_list(struct check *check) {
    const struct mp_plan *plan = check->plan;
    int32_t at = 0;

    for (int expert = 0; expert < check->experts; expert++) {
        bool right = plan->holder_begin[expert] == at &&
                     plan->holder_begin[expert + 1] <= plan->holder_capacity;
        for (int rank = mp_placement_next(&plan->during, expert, 0); right && is_rank(check, rank);
             rank = mp_placement_next(&plan->during, expert, rank + 1))
            right = at < plan->holder_begin[expert + 1] && plan->holder[at++] == rank;
        if (!right || plan->holder_begin[expert + 1] != at) {
            report(check, MP_PLAN_HOLDERS_UNLISTED,
                   "the list of the holders of expert %d is not that of the layer; none may be "
                   "added after dispatch has begun",
                   expert);
            return;
        }
    }
}

/* One part of a pair: its holders, none of them twice.  Returns its routes. */
static int64_t check_part(struct check *check, int source, int expert,
                          const struct mp_dispatch_part *part) {
    const struct mp_plan *plan = check->plan;
    int64_t pair = (int64_t)source * check->experts + expert;

    if (part->run < 1 || part->first < plan->holder_begin[expert] ||
        (int64_t)part->first + part->run > plan->holder_begin[expert + 1]) {
        report(check, MP_PLAN_ROUTE_TO_NON_HOLDER,
               "%u routes of rank %d for expert %d go to %d ranks that do not hold it", part->count,
               source, expert, part->run);
        return 0;
    }
    for (int32_t at = part->first; at < part->first + part->run; at++) {
        if (check->last_pair[plan->holder[at]] == pair + 1)
            report(check, MP_PLAN_ROUTE_TWICE,
                   "rank %d is named twice for the routes of rank %d to expert %d",
                   plan->holder[at], source, expert);
        check->last_pair[plan->holder[at]] = pair + 1;
    }
    return (int64_t)part->count * part->run;
}

static void check_padding(struct check *check, int source, int expert, int64_t dispatched,
                          int parts, int run) {
    int64_t padding = check->plan->padding;

    if (dispatched > padding)
        report(check, MP_PLAN_PADDING,
               "rank %d sends %lld routes to expert %d in %lld rows of a padded exchange", source,
               (long long)dispatched, expert, (long long)padding);
    if (parts != 1 || run != 1)
        report(check, MP_PLAN_PADDING,
               "the padded rows of rank %d for expert %d go to %d parts; they go to one rank",
               source, expert, parts);
}

static void check_pair(struct check *check, int source, int expert, bool drops) {
    const struct mp_plan *plan = check->plan;
    uint32_t wanted = mp_load_at(check->load, source, expert);
    int64_t dispatched = 0;
    int count;
    const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &count);

    for (int index = 0; index < count; index++)
        dispatched += check_part(check, source, expert, &part[index]);
    check->kept[expert] += dispatched;
    if (dispatched > wanted)
        report(check, MP_PLAN_ROUTE_TWICE,
               "rank %d has %u routes for expert %d and %lld are dispatched", source, wanted,
               expert, (long long)dispatched);
    if (dispatched < wanted && !drops)
        report(check, MP_PLAN_ROUTE_LOST,
               "rank %d has %u routes for expert %d and only %lld are dispatched", source, wanted,
               expert, (long long)dispatched);
    int64_t capacity = mp_plan_source_capacity(plan, source, expert);
    if (capacity >= 0 && dispatched > capacity)
        report(check, MP_PLAN_OVER_CAPACITY,
               "expert %d keeps %lld routes of rank %d, its capacity for a source is %lld", expert,
               (long long)dispatched, source, (long long)capacity);
    if (plan->padding > 0)
        check_padding(check, source, expert, dispatched, count, count > 0 ? part->run : 0);
}

static void check_capacity(struct check *check, int expert, bool drops) {
    const struct mp_plan *plan = check->plan;
    int64_t allowed = 0, kept = check->kept[expert], capacity = plan->capacity[expert];

    for (int source = 0; source < check->ranks; source++)
        allowed += mp_plan_kept(plan, check->load, source, expert);
    if (capacity >= 0 && allowed > capacity)
        allowed = capacity;
    if (drops && kept < allowed)
        report(check, MP_PLAN_DROP_BELOW_CAPACITY,
               "expert %d keeps %lld routes, capacities of %lld and %lld per source leave room for "
               "%lld",
               expert, (long long)kept, (long long)capacity, (long long)plan->source_capacity,
               (long long)allowed);
    if (capacity >= 0 && kept > capacity)
        report(check, MP_PLAN_OVER_CAPACITY, "expert %d keeps %lld routes, its capacity is %lld",
               expert, (long long)kept, (long long)capacity);
}

/* Groups inside one another, of an exchange that deduplicates. */
static void check_levels(struct check *check) {
    const int *size = check->plan->level_size;
    if (size[0] < 0 || size[0] > check->ranks)
        report(check, MP_PLAN_EXCHANGE, "there are no groups of %d among %d ranks", size[0],
               check->ranks);
    for (int i = 1; i < MP_MOST_LEVELS - 1; i++)
        if (size[i] && (size[i] < 2 || size[i] >= size[i - 1] || size[i - 1] % size[i] != 0))
            report(check, MP_PLAN_EXCHANGE, "groups of %d ranks in groups of %d", size[i],
                   size[i - 1]);
}

/* Chunks of whole experts, of rows that can be in any. */
static void check_place_chunks(struct check *check, const struct mp_exchange *exchange) {
    const struct mp_plan *plan = check->plan;
    if (plan->padding > 0 || (exchange && exchange->deduplicates))
        report(check, MP_PLAN_EXCHANGE, "chunks of whole experts take rows of routes, unpadded");
    for (int32_t at = 0; at < plan->holder_begin[plan->experts]; at++)
        if (plan->place_chunk[at] >= plan->degree)
            report(check, MP_PLAN_EXCHANGE, "rows to rank %d are in chunk %d of %d",
                   plan->holder[at], plan->place_chunk[at], plan->degree);
}

static void check_exchange(struct check *check, const struct mp_plan_law *law) {
    const struct mp_plan *plan = check->plan;
    const struct mp_exchange *exchange = mp_exchange_of(plan->exchange);

    if (!exchange)
        report(check, MP_PLAN_EXCHANGE, "there is no exchange number %d", (int)plan->exchange);
    if (exchange && exchange->steps && exchange->steps(check->ranks, plan->group_size) < 1)
        report(check, MP_PLAN_EXCHANGE, "groups of %d do not divide %d ranks", plan->group_size,
               check->ranks);
    if (exchange && !mp_exchange_takes_degree(exchange, plan->degree))
        report(check, MP_PLAN_EXCHANGE, "an exchange that is %s takes no degree %d", exchange->name,
               plan->degree);
    if (exchange && exchange->deduplicates && plan->degree > 1 &&
        plan->policy->route_order != MP_ROUTES_BY_TOKEN)
        report(check, MP_PLAN_EXCHANGE, "chunks of tokens take routes by token, not %s",
               mp_route_order_name(plan->policy->route_order));
    if (exchange && exchange->deduplicates)
        check_levels(check);
    if (plan->place_chunk)
        check_place_chunks(check, exchange);
    if (exchange && !exchange->takes_padding && plan->padding > 0)
        report(check, MP_PLAN_EXCHANGE, "an exchange of %lld padded rows is not %s",
               (long long)plan->padding, exchange->name);
    const bool sends = plan->part_begin[(int64_t)plan->topology.ranks * plan->experts] > 0;
    if (plan->policy->one_hot && plan->padding == 0 && sends)
        report(check, MP_PLAN_PADDING, "a one-hot matrix takes padded rows, and none are padded");
    if (plan->policy->overlaid && (plan->padding == 0 || plan->policy->one_hot ||
                                   plan->policy->route_order != MP_ROUTES_BY_CHOICE))
        report(check, MP_PLAN_PADDING,
               "rows of two routes are padded, copied and by choice; these are padded to %lld, %s "
               "and %s",
               (long long)plan->padding, plan->policy->one_hot ? "one-hot" : "copied",
               mp_route_order_name(plan->policy->route_order));
    if (plan->padding > law->padding_limit)
        report(check, MP_PLAN_PADDING, "%lld rows of a pair are padded to, the limit is %lld",
               (long long)plan->padding, (long long)law->padding_limit);
}

static void check_dispatch(struct check *check, const struct mp_plan_law *law) {
    check_list(check);
    if (check->violation == MP_PLAN_HOLDERS_UNLISTED)
        return; /* parts index the list */
    for (int source = 0; source < check->ranks; source++)
        for (int expert = 0; expert < check->experts; expert++)
            check_pair(check, source, expert, law->drops_routes);
    for (int expert = 0; expert < check->experts; expert++)
        check_capacity(check, expert, law->drops_routes);
    check_exchange(check, law);
}

static void check_memory(struct check *check, const struct mp_plan_law *law) {
    for (int rank = 0; rank < check->ranks && law->extra_copies_limit >= 0; rank++)
        if (check->extra[rank] > law->extra_copies_limit)
            report(check, MP_PLAN_MEMORY,
                   "rank %d takes more extra copies, %d, than copies_limit says, %d", rank,
                   check->extra[rank], law->extra_copies_limit);
}

static int create_working(struct check *check, struct mp_error *error) {
    const struct mp_plan *plan = check->plan;

    check->ranks = plan->topology.ranks;
    check->experts = plan->experts;
    check->words = plan->before.words;
    mp_placement_take(&check->arena, check->ranks, check->experts, &check->present);
    mp_placement_take(&check->arena, check->ranks, check->experts, &check->summed);
    mp_placement_take(&check->arena, check->ranks, check->experts, &check->shared);
    mp_placement_take(&check->arena, check->ranks, check->experts, &check->sent);
    MP_TAKE_EACH(&check->arena, check->ranks, check->last_pair, check->extra, check->sent_to);
    MP_TAKE(&check->arena, check->kept, check->experts);
    MP_TRY(mp_arena_check(&check->arena, error));
    mp_placement_copy(&check->present, &plan->before);
    for (long word = 0; word < (long)check->experts * check->words; word++)
        check->summed.holder[word] = check->shared.holder[word] = check->sent.holder[word] = 0;
    return MP_OK;
}

static int check_all(struct check *check, const struct mp_plan_law *law, struct mp_error *error) {
    check_shape(check);
    if (check->violation != MP_PLAN_LEGAL)
        return MP_OK; /* nothing can be indexed safely */
    int code = create_working(check, error);
    if (!code) {
        check_owners(check);
        check_holders(check);
        check_fetches(check);
        check_reduces(check);
        check_shares(check);
        check_ahead(check, law);
        if (check->load)
            check_dispatch(check, law);
        check_memory(check, law);
    }
    mp_arena_release(&check->arena);
    return code;
}

int mp_plan_check(const struct mp_plan *plan, const struct mp_load *load,
                  const struct mp_plan_law *law, enum mp_plan_violation *violation,
                  struct mp_error *error) {
    struct check check = {.plan = plan, .load = load, .violation = MP_PLAN_LEGAL};

    int code = check_all(&check, law, error);
    if (violation)
        *violation = check.violation;
    if (code || check.violation == MP_PLAN_LEGAL)
        return code;
    return mp_fail(error, MP_EPLAN, "the plan of iteration %lld, layer %d is illegal (%s): %s",
                   (long long)plan->iteration, plan->layer, mp_plan_violation_name(check.violation),
                   check.text);
}

static int64_t dispatched(const struct mp_plan *plan, int source, int expert) {
    int64_t routes = 0;
    int parts;
    const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);
    for (int i = 0; i < parts; i++)
        routes += (int64_t)part[i].run * part[i].count;
    return routes;
}

int mp_plan_check_shards(const struct mp_plan *plan, int shards, struct mp_error *error) {
    int whole = plan->experts / shards;
    for (int source = 0; source < plan->topology.ranks; source++)
        for (int expert = whole; expert < plan->experts; expert++) {
            int64_t first = dispatched(plan, source, expert % whole);
            int64_t routes = dispatched(plan, source, expert);
            if (routes != first)
                return mp_fail(error, MP_EPLAN,
                               "iteration %lld, layer %d: rank %d has %lld routes for shard %d of "
                               "expert %d and %lld for the first one; routes to all shards of an "
                               "expert are kept or dropped together",
                               (long long)plan->iteration, plan->layer, source, (long long)routes,
                               expert / whole, expert % whole, (long long)first);
        }
    return MP_OK;
}
