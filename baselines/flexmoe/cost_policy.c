/* Steps that relieve the busiest rank, then Migrates that save synchronisation, as long as the cost
 * model says that they pay. */
#include <math.h>

#include "baselines/flexmoe/flexmoe.h"

/* The three ranks with the largest figures, so that those without any two ranks are known. */
struct top {
    double figure[3];
    int rank[3];
};
static const struct top nobody = {.rank = {-1, -1, -1}};

static void note(struct top *top, int rank, double figure) {
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

static double largest_without(const struct top *top, int one, int other) {
    for (int at = 0; at < 3 && top->rank[at] >= 0; at++)
        if (top->rank[at] != one && top->rank[at] != other)
            return top->figure[at];
    return 0;
}

/* Part of an expert's routes that a rank gains; less than 0: that it loses.  Expert -1: nothing. */
struct gain {
    int expert;
    double part;
};
static const struct gain nothing = {.expert = -1};

/* What `rank` gains if an expert has `more` slots more, `here` of them on it. */
static struct gain of_slots(const struct mp_flex *flex, int rank, int expert, int more, int here) {
    if (expert < 0)
        return nothing;
    int mine = mp_flex_here(flex, rank, expert), slots = flex->slots[expert];
    return (struct gain){expert,
                         (mine + here) * flex->inverse[slots + more] - mine * flex->inverse[slots]};
}

/* What a rank has to do, s: its own T_C and T_A2A, with these gains. */
static double busy(const struct mp_flex *flex, const struct mp_flex_costs *costs, int rank,
                   struct gain one, struct gain other) {
    const double unit = 1.0 / (1 << MP_FLEX_UNIT_BITS);
    double load = (double)flex->load[rank] * unit, local = (double)flex->local[rank] * unit;
    double sent = (double)flex->sent[rank] * unit;

    if (one.expert >= 0) {
        load += one.part * (double)flex->routes[one.expert];
        local += one.part * mp_load_at(flex->source, rank, one.expert);
    }
    if (other.expert >= 0) {
        load += other.part * (double)flex->routes[other.expert];
        local += other.part * mp_load_at(flex->source, rank, other.expert);
    }
    return costs->route * load + costs->row * ((load > sent ? load : sent) - local);
}

/* A step: an expert gets a slot, or two slots change places. */
struct step {
    int slot;   /* -1: there is none */
    int expert; /* of an Expand; -1: a Migrate */
    int other;  /* slot, of a Migrate */
};

struct search {
    struct mp_flex *flex;
    const struct mp_flex_costs *costs;
    double least;     /* T since the round began, s; its slots are kept */
    int busiest;      /* rank */
    double most;      /* what it has to do, s */
    struct step best; /* so far */
    double cost;      /* of it: what the busiest rank concerned has to do, and T_Sync more, s */
};

static void consider(struct search *search, struct step step, double busiest, int replicas) {
    double cost = busiest + search->costs->replica * replicas;

    if (search->best.slot < 0 || cost < search->cost) {
        search->best = step;
        search->cost = cost;
    }
}

/* An Expand of `expert` into a slot whose expert gives it up, which makes ranks `raised`. */
static void consider_expand(struct search *search, int expert, int slot, const struct top *raised) {
    const struct mp_flex *flex = search->flex;
    int from = flex->expert[slot], rank = slot / flex->per_rank;
    double most = largest_without(raised, rank, search->busiest);

    if (from == expert || !mp_flex_falls(most, search->most))
        return;
    for (int side = 0; side < 2; side++) {
        int at = side == 0 ? search->busiest : rank, here = at == rank;
        double now = busy(flex, search->costs, at, of_slots(flex, at, expert, 1, here),
                          of_slots(flex, at, from, -1, -here));
        if (!mp_flex_falls(now, search->most))
            return;
        most = now > most ? now : most;
    }
    consider(search, (struct step){.slot = slot, .expert = expert}, most,
             (mp_flex_here(flex, rank, expert) == 0) -
                 (from >= 0 && mp_flex_here(flex, rank, from) == 1));
}

/* Of several slots on one rank the first stands for all. */
static bool repeats(const struct mp_flex *flex, int list, int32_t at) {
    return at > flex->begin[list] &&
           flex->listed[at] / flex->per_rank == flex->listed[at - 1] / flex->per_rank;
}

/* The slots of a list, for the experts of the busiest rank; those on that rank, for all. */
static void consider_expands(struct search *search, int list) {
    const struct mp_flex *flex = search->flex;
    struct top raised = nobody;

    for (int32_t at = flex->begin[list]; at < flex->begin[list + 1] && list < flex->experts; at++) {
        int rank = flex->listed[at] / flex->per_rank;
        if (!repeats(flex, list, at))
            note(&raised, rank,
                 busy(flex, search->costs, rank, of_slots(flex, rank, list, -1, 0), nothing));
    }
    for (int32_t at = flex->begin[list]; at < flex->begin[list + 1]; at++) {
        int slot = flex->listed[at];
        bool own = slot / flex->per_rank == search->busiest;
        const int32_t *some = flex->expert + search->busiest * flex->per_rank;
        for (int i = 0; i < (own ? flex->experts : flex->per_rank) && !repeats(flex, list, at); i++)
            if (own || some[i] >= 0)
                consider_expand(search, own ? i : some[i], slot, &raised);
    }
}

static void consider_migrate(struct search *search, int slot, int other) {
    const struct mp_flex *flex = search->flex;
    int expert[2] = {flex->expert[slot], flex->expert[other]}, replicas = 0;
    double most = 0;

    if (expert[0] < 0 || (expert[1] >= 0 && flex->share[expert[1]] >= flex->share[expert[0]]))
        return; /* it would have more to do */
    for (int side = 0; side < 2; side++) {
        int rank = (side == 0 ? slot : other) / flex->per_rank;
        int lost = expert[side], gained = expert[1 - side];
        double now = busy(flex, search->costs, rank, of_slots(flex, rank, gained, 0, 1),
                          of_slots(flex, rank, lost, 0, -1));
        if (!mp_flex_falls(now, search->most))
            return;
        most = now > most ? now : most;
        replicas += (gained >= 0 && mp_flex_here(flex, rank, gained) == 0) -
                    (lost >= 0 && mp_flex_here(flex, rank, lost) == 1);
    }
    consider(search, (struct step){.slot = slot, .expert = -1, .other = other}, most, replicas);
}

static void consider_migrates(struct search *search) {
    const struct mp_flex *flex = search->flex;
    int first = search->busiest * flex->per_rank, end = first + flex->per_rank;

    for (int slot = first; slot < end; slot++)
        for (int other = 0; other < flex->ranks * flex->per_rank; other++)
            if (other < first || other >= end)
                consider_migrate(search, slot, other);
}

static void find_busiest(struct search *search) {
    search->most = -1;
    for (int rank = 0; rank < search->flex->ranks; rank++) {
        double now = busy(search->flex, search->costs, rank, nothing, nothing);
        if (now > search->most) {
            search->most = now;
            search->busiest = rank;
        }
    }
}

/* Finds the step that relieves the busiest rank most. */
static void find_relief(struct search *search, bool expands) {
    const struct mp_flex *flex = search->flex;

    find_busiest(search);
    for (int list = 0; list <= flex->experts && expands; list++)
        if (list == flex->experts || flex->slots[list] > 1)
            consider_expands(search, list);
    consider_migrates(search);
}

/* Finds a slot for the expert with the largest share: from the one whose share would be the least
 * if it gave one up, if that is less, on the rank that then has least to do. */
static void find_shift(struct search *search) {
    const struct mp_flex *flex = search->flex;
    double least = 0;
    int high = 0, low = -1;

    for (int expert = 1; expert < flex->experts; expert++)
        if (flex->share[expert] > flex->share[high])
            high = expert;
    for (int expert = 0; expert < flex->experts; expert++) {
        if (expert == high || flex->slots[expert] < 2)
            continue;
        double share = (double)flex->routes[expert] * flex->inverse[flex->slots[expert] - 1];
        if (low < 0 || share < least) {
            low = expert;
            least = share;
        }
    }
    if (low < 0 ||
        !mp_flex_falls(least, (double)flex->routes[high] * flex->inverse[flex->slots[high]]))
        return;
    for (int32_t at = flex->begin[low]; at < flex->begin[low + 1]; at++) {
        int slot = flex->listed[at], rank = slot / flex->per_rank;
        consider(search, (struct step){.slot = slot, .expert = high},
                 busy(flex, search->costs, rank, of_slots(flex, rank, high, 1, 1),
                      of_slots(flex, rank, low, -1, -1)),
                 0);
    }
}

enum kind { RELIEF, SHIFT, RELIEF_BY_MIGRATES };

/* Steps of one kind, as long as there are any. */
static void take_steps(struct search *search, enum kind kind) {
    struct mp_flex *flex = search->flex;
    const struct step *step = &search->best;

    for (int left = flex->ranks * flex->per_rank; left > 0; left--) {
        search->best.slot = -1;
        mp_flex_index(flex);
        if (kind == SHIFT)
            find_shift(search);
        else
            find_relief(search, kind == RELIEF);
        if (step->slot < 0)
            return;
        if (step->expert < 0) {
            mp_flex_migrate(flex, step->slot, step->other);
        } else {
            mp_flex_shrink(flex, step->slot);
            mp_flex_expand(flex, step->expert, step->slot);
        }
        mp_flex_measure(flex);
        double time = mp_flex_cost(flex, search->costs);
        if (mp_flex_falls(time, search->least)) {
            search->least = time;
            mp_flex_keep(flex);
        }
    }
}

static bool find_better(struct mp_flex *flex, const struct mp_flex_costs *costs) {
    double before = mp_flex_cost(flex, costs);
    struct search search = {.flex = flex, .costs = costs, .least = before};

    mp_flex_keep(flex);
    for (enum kind kind = RELIEF; kind <= RELIEF_BY_MIGRATES; kind++)
        take_steps(&search, kind);
    mp_flex_go_back(flex);
    return search.least < before;
}

struct migration {
    struct mp_flex *flex;
    const struct mp_flex_costs *costs;
    struct top load, traffic;
    double time;
};

static void begin_migrations(struct migration *migration) {
    const struct mp_flex *flex = migration->flex;

    migration->load = migration->traffic = nobody;
    for (int rank = 0; rank < flex->ranks; rank++) {
        note(&migration->load, rank, (double)flex->load[rank]);
        note(&migration->traffic, rank,
             (double)mp_flex_traffic(flex, rank, flex->load[rank], flex->local[rank]));
    }
    migration->time = mp_flex_time(migration->costs, migration->load.figure[0],
                                   migration->traffic.figure[0], flex->replicas);
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
    double load = largest_without(&migration->load, rank[0], rank[1]);
    double traffic = largest_without(&migration->traffic, rank[0], rank[1]);

    for (int side = 0; side < 2; side++) {
        int64_t now = changed_load(flex, rank[side], expert[side], expert[1 - side]);
        int64_t own = changed_local(flex, rank[side], expert[side], expert[1 - side]);
        load = fmax(load, (double)now);
        traffic = fmax(traffic, (double)mp_flex_traffic(flex, rank[side], now, own));
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
            replicas +=
                (mp_flex_here(flex, rank, other) == 0) - (mp_flex_here(flex, to, other) == 1);
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
        bool done = flex->expert[from] != expert || mp_flex_here(flex, rank, expert) != 1;
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
    bool better = find_better(flex, costs), migrated = migrate_all(flex, costs);
    return better || migrated;
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
