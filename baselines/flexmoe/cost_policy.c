/* Expand with Shrink, then Migrates, as long as the cost model says that they pay. */
#include "baselines/flexmoe/flexmoe.h"

/* Who gets a slot, and whose slots may be it; -1: there is none.  While there are empty slots,
 * nobody has to give one up. */
static int hottest(const struct mp_flex *flex) {
    int high = 0;
    for (int expert = 1; expert < flex->experts; expert++)
        if (flex->share[expert] > flex->share[high])
            high = expert;
    return high;
}

static int coldest(const struct mp_flex *flex, int but) {
    int low = -1;
    if (flex->begin[flex->experts] < flex->begin[flex->experts + 1])
        return flex->experts;
    for (int expert = 0; expert < flex->experts; expert++)
        if (expert != but && flex->slots[expert] > 1 &&
            (low < 0 || flex->share[expert] < flex->share[low]))
            low = expert;
    return low;
}

/* The slot of a list where an Expand, with the Shrink it needs, makes T least; -1 if it falls
 * nowhere.  Of several slots on one rank the first. */
static int best_slot(struct mp_flex *flex, const struct mp_flex_costs *costs, int high, int list) {
    double least = mp_flex_cost(flex, costs);
    int best = -1;

    for (int32_t at = flex->begin[list]; at < flex->begin[list + 1]; at++) {
        int slot = flex->listed[at], low = flex->expert[slot];
        if (at > flex->begin[list] &&
            slot / flex->per_rank == flex->listed[at - 1] / flex->per_rank)
            continue;
        mp_flex_shrink(flex, slot);
        mp_flex_expand(flex, high, slot);
        mp_flex_measure(flex);
        double time = mp_flex_cost(flex, costs);
        mp_flex_shrink(flex, slot);
        if (low >= 0)
            mp_flex_expand(flex, low, slot);
        if (mp_flex_falls(time, least)) {
            least = time;
            best = slot;
        }
    }
    mp_flex_measure(flex);
    return best;
}

static bool expand_and_shrink(struct mp_flex *flex, const struct mp_flex_costs *costs) {
    mp_flex_index(flex);
    int high = hottest(flex), list = coldest(flex, high);
    int slot = list < 0 ? -1 : best_slot(flex, costs, high, list);
    if (slot < 0)
        return false;
    mp_flex_shrink(flex, slot);
    mp_flex_expand(flex, high, slot);
    mp_flex_measure(flex);
    return true;
}

/* The three ranks with the largest figures, so that those without any two ranks are known. */
struct top {
    int64_t figure[3];
    int rank[3];
};

static void note(struct top *top, int rank, int64_t figure) {
    int at = 3;
    while (at > 0 && (top->rank[at - 1] < 0 || figure > top->figure[at - 1]))
        at--;
    for (int below = 2; below > at; below--) {
        top->figure[below] = top->figure[below - 1];
        top->rank[below] = top->rank[below - 1];
    }
    if (at < 3) {
        top->figure[at] = figure;
        top->rank[at] = rank;
    }
}

static int64_t largest_without(const struct top *top, int one, int other) {
    for (int at = 0; at < 3 && top->rank[at] >= 0; at++)
        if (top->rank[at] != one && top->rank[at] != other)
            return top->figure[at];
    return 0;
}

struct migration {
    struct mp_flex *flex;
    const struct mp_flex_costs *costs;
    struct top load, traffic;
    double time;
};

static void begin_migrations(struct migration *migration) {
    const struct mp_flex *flex = migration->flex;
    const struct top none = {.rank = {-1, -1, -1}};

    migration->load = migration->traffic = none;
    for (int rank = 0; rank < flex->ranks; rank++) {
        note(&migration->load, rank, flex->load[rank]);
        note(&migration->traffic, rank,
             mp_flex_traffic(flex, rank, flex->load[rank], flex->local[rank]));
    }
    migration->time = mp_flex_time(migration->costs, migration->load.figure[0],
                                   migration->traffic.figure[0], flex->replicas);
}

static int slots_on(const struct mp_flex *flex, int rank, int expert) {
    int count = 0;
    for (int slot = rank * flex->per_rank; slot < (rank + 1) * flex->per_rank; slot++)
        count += flex->expert[slot] == expert;
    return count;
}

/* Load and local routes of a rank with `gained` in place of `lost`. */
static int64_t changed_load(const struct mp_flex *flex, int rank, int lost, int gained) {
    return flex->load[rank] - (lost < 0 ? 0 : flex->share[lost]) +
           (gained < 0 ? 0 : flex->share[gained]);
}
static int64_t changed_local(const struct mp_flex *flex, int rank, int lost, int gained) {
    return flex->local[rank] - (lost < 0 ? 0 : mp_flex_own(flex, rank, lost)) +
           (gained < 0 ? 0 : mp_flex_own(flex, rank, gained));
}

/* T if two slots changed places, `replicas` counted already. */
static double time_after(const struct migration *migration, int one, int other, int64_t replicas) {
    const struct mp_flex *flex = migration->flex;
    int rank[2] = {one / flex->per_rank, other / flex->per_rank};
    int expert[2] = {flex->expert[one], flex->expert[other]};
    int64_t load = largest_without(&migration->load, rank[0], rank[1]);
    int64_t traffic = largest_without(&migration->traffic, rank[0], rank[1]);

    for (int side = 0; side < 2; side++) {
        int64_t now = changed_load(flex, rank[side], expert[side], expert[1 - side]);
        int64_t own = changed_local(flex, rank[side], expert[side], expert[1 - side]);
        int64_t crossing = mp_flex_traffic(flex, rank[side], now, own);
        load = now > load ? now : load;
        traffic = crossing > traffic ? crossing : traffic;
    }
    return mp_flex_time(migration->costs, load, traffic, replicas);
}

/* Brings the expert of slot `from` together with its replica on rank `to`, in exchange for the
 * first slot there for which T_Sync and T fall. */
static bool migrate_to(struct migration *migration, int from, int to) {
    struct mp_flex *flex = migration->flex;
    int rank = from / flex->per_rank, expert = flex->expert[from];

    for (int slot = to * flex->per_rank; slot < (to + 1) * flex->per_rank; slot++) {
        int other = flex->expert[slot];
        int64_t replicas = flex->replicas - 1;
        if (other == expert)
            continue;
        if (other >= 0)
            replicas += !mp_flex_holds(flex, rank, other) - (slots_on(flex, to, other) == 1);
        if (replicas >= flex->replicas ||
            !mp_flex_falls(time_after(migration, from, slot, replicas), migration->time))
            continue;
        int64_t load[2] = {changed_load(flex, rank, expert, other),
                           changed_load(flex, to, other, expert)};
        int64_t local[2] = {changed_local(flex, rank, expert, other),
                            changed_local(flex, to, other, expert)};
        mp_flex_migrate(flex, from, slot);
        flex->load[rank] = load[0];
        flex->load[to] = load[1];
        flex->local[rank] = local[0];
        flex->local[to] = local[1];
        begin_migrations(migration);
        return true;
    }
    return false;
}

/* The slots listed for an expert before the first of its Migrates: those that have gone since are
 * passed over. */
static bool migrate_expert(struct migration *migration, int expert) {
    struct mp_flex *flex = migration->flex;
    bool any = false;

    for (int32_t at = flex->begin[expert]; at < flex->begin[expert + 1]; at++) {
        int from = flex->listed[at], rank = from / flex->per_rank;
        bool done = flex->expert[from] != expert || slots_on(flex, rank, expert) != 1;
        for (int32_t with = flex->begin[expert]; with < flex->begin[expert + 1] && !done; with++) {
            int slot = flex->listed[with], to = slot / flex->per_rank;
            if (to != rank && flex->expert[slot] == expert && migrate_to(migration, from, to))
                any = done = true;
        }
    }
    return any;
}

static bool migrate_all(struct mp_flex *flex, const struct mp_flex_costs *costs) {
    struct migration migration = {.flex = flex, .costs = costs};
    bool any = false;

    if (flex->per_rank == 1)
        return false;
    mp_flex_index(flex);
    begin_migrations(&migration);
    for (int expert = 0; expert < flex->experts; expert++)
        if (flex->holders[expert] > 1)
            any |= migrate_expert(&migration, expert);
    return any;
}

bool mp_flex_cost_round(struct mp_flex *flex, const struct mp_flex_costs *costs) {
    bool expanded = expand_and_shrink(flex, costs), migrated = migrate_all(flex, costs);
    return expanded || migrated;
}

static bool out_of_balance(const struct mp_flex *flex, double threshold) {
    int64_t largest = 0;
    double sum = 0;

    for (int rank = 0; rank < flex->ranks; rank++) {
        sum += (double)flex->load[rank];
        if (flex->load[rank] > largest)
            largest = flex->load[rank];
    }
    return (double)largest * flex->ranks > threshold * sum;
}

int mp_flex_cost_policy(struct mp_flex *flex, const struct mp_flex_costs *costs, double threshold,
                        int rounds) {
    int changed = 0;
    while (changed < rounds && out_of_balance(flex, threshold) && mp_flex_cost_round(flex, costs))
        changed++;
    return changed;
}
