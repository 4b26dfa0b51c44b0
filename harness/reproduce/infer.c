#include "harness/reproduce/infer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/predict/workers.h"
#include "reference/base/elementary.h"
#include "reference/base/random.h"

enum {
    ROUND = 8,   /* sets of a round of steps */
    PARENTS = 3, /* from which steps are made */
    LENGTHS = 4, /* of steps that are tried */
    LEAST = 4    /* sets */
};
static const double first_step = 0.2;    /* of a range */
static const double sampled_share = 0.6; /* of the budget */
static const double half_counted = 0.1;  /* distance that counts as half a row */

/* ---- values ---- */

static void name_values(const struct mp_inference *all, struct mp_infer_set *set) {
    for (int u = 0; u < all->reproduction->unknowns; u++)
        mp_reproduction_value(&all->reproduction->unknown[u], set->place[u], set->value[u]);
}

/* In every unknown the sets take the parts of its range in an order of their own. */
static void draw_hypercube(struct mp_inference *all, uint64_t seed, int order[]) {
    for (int u = 0; u < all->reproduction->unknowns; u++) {
        for (int i = 0; i < all->sampled; i++)
            order[i] = i;
        for (int i = all->sampled - 1; i > 0; i--) {
            int other = (int)mp_random_below(seed, (uint64_t)u, (uint64_t)i, (uint64_t)i + 1);
            int kept = order[i];
            order[i] = order[other];
            order[other] = kept;
        }
        for (int i = 0; i < all->sampled; i++)
            all->set[i].place[u] =
                (order[i] + mp_elementary_uniform(seed, (uint64_t)u + 1000, (uint64_t)i)) /
                all->sampled;
    }
    for (int i = 0; i < all->sampled; i++)
        name_values(all, &all->set[i]);
}

static bool is_new(const struct mp_inference *all, int set) {
    for (int i = 0; i < set; i++)
        if (!memcmp(all->set[i].value, all->set[set].value, sizeof all->set[i].value))
            return false;
    return true;
}

/* The best of the first `sets`, best first; earlier ones before equals. */
static int find_parents(const struct mp_inference *all, int sets, int parent[PARENTS]) {
    int found = 0;
    for (int i = 0; i < sets; i++) {
        int at = found < PARENTS ? found++ : PARENTS;
        while (at > 0 && mp_infer_better(&all->set[i], &all->set[parent[at - 1]])) {
            if (at < PARENTS)
                parent[at] = parent[at - 1];
            at--;
        }
        if (at < PARENTS)
            parent[at] = i;
    }
    return found;
}

/* One unknown of a parent is moved; of words to the next one at least. */
static void step_from(const struct mp_inference *all, const struct mp_infer_set *parent,
                      int unknown, double step, struct mp_infer_set *set) {
    const struct mp_reproduce_unknown *moved = &all->reproduction->unknown[unknown];
    double least = moved->choices ? 1.0 / moved->choices : 0;
    double by = fabs(step) > least ? step : step < 0 ? -least : least;
    memcpy(set->place, parent->place, sizeof set->place);
    double place = set->place[unknown] + by;
    set->place[unknown] = place < 0 ? 0 : place > 1 ? 1 : place;
    name_values(all, set);
}

/* Fills the sets of a round from `first` on with steps that lead to sets not seen yet, shorter ones
 * where all of a length have been made. */
static void draw_steps(struct mp_inference *all, int first, int count, int number) {
    int parent[PARENTS], turns = 2 * all->reproduction->unknowns;
    int parents = find_parents(all, first, parent);
    for (int i = 0; i < count && parents > 0; i++) {
        double step = first_step / (1 << (number / 2 < 6 ? number / 2 : 6));
        for (int try = 0; try < LENGTHS * turns; try++) {
            int turn = number * count + i + try;
            step_from(all, &all->set[parent[i % parents]], turn / 2 % (turns / 2),
                      turn % 2 ? -step : step, &all->set[first + i]);
            if (is_new(all, first + i))
                break;
            if (try % turns == turns - 1)
                step /= 2;
        }
    }
}

/* ---- how good a set is ---- */

double mp_infer_ratio(const struct mp_paper_row *row, double number) {
    double low, high, more = row->unit == MP_PAPER_CHANGE ? 1 : 0;
    mp_paper_range(row, &low, &high);
    if (number >= low && number <= high)
        return 1;
    return (number + more) / (number > high ? high + more : low + more);
}

/* How much a number counts that is outside, 0 .. 1. */
static double miss(const struct mp_paper_row *row, double number) {
    double ratio = mp_infer_ratio(row, number);
    double distance = ratio > 0 ? fabs(mp_elementary_log(ratio)) : INFINITY;
    return isfinite(distance) ? distance / (distance + half_counted) : 1;
}

/* Mean over rows of means over their lines. */
static double loss_of(const struct mp_inference *all, const struct mp_infer_set *set) {
    double sum = 0, row_sum = 0;
    int rows = 0, of_row = 0;
    for (int i = 0; i < all->lines; i++) {
        const struct mp_reproduce_row *row = all->line[i].row;
        if (row->use == MP_USE_FIT && !isnan(set->number[i])) {
            row_sum += miss(&row->published, set->number[i]);
            of_row++;
        }
        bool is_last = i + 1 == all->lines ||
                       strcmp(all->line[i + 1].row->published.id, row->published.id) != 0;
        if (!is_last)
            continue;
        sum += of_row ? row_sum / of_row : 0;
        rows += of_row > 0;
        row_sum = of_row = 0;
    }
    return rows ? sum / rows : INFINITY;
}

/* ---- predicting sets ---- */

/* Share of the iteration in layers with experts, mean over a row's cells of its first job. */
static double share_of(const struct mp_reproduction *all, const struct mp_reproduce_row *row) {
    int cells = 0, job = __builtin_ctz(row->of);
    double sum = 0;
    for (int machine = 0; machine < all->machines.count; machine++)
        for (int model = 0; model < all->models.count; model++) {
            const struct mp_reproduce_cell *cell = mp_reproduction_cell(all, machine, model, job);
            if (!(row->machines >> machine & 1) || !(row->models >> model & 1) || !cell->is_done)
                continue;
            sum += cell->figure[MP_FIGURE_MOE] / cell->figure[MP_FIGURE_SECONDS];
            cells++;
        }
    return cells ? sum / cells : NAN;
}

static void fill_quantities(const struct mp_reproduction *all, struct mp_infer_set *set) {
    for (int job = 0; job < all->jobs.count; job++) {
        double *quantity = set->quantity[job];
        int cells = 0, pairs = all->machines.count * all->models.count;
        memset(quantity, 0, sizeof set->quantity[job]);
        for (int i = 0; i < pairs; i++) {
            const struct mp_reproduce_cell *cell = &all->cell[i * all->jobs.count + job];
            if (!cell->is_done)
                continue;
            double seconds = cell->figure[MP_FIGURE_SECONDS];
            quantity[MP_INFER_MOE] += cell->figure[MP_FIGURE_MOE] / seconds;
            quantity[MP_INFER_EXCHANGE] += cell->figure[MP_FIGURE_EXCHANGE] / seconds;
            quantity[MP_INFER_IMBALANCE] += cell->figure[MP_FIGURE_IMBALANCE];
            cells++;
        }
        for (int q = 0; q < MP_INFER_QUANTITIES; q++)
            quantity[q] = cells ? quantity[q] / cells : NAN;
    }
}

/* Why one of its jobs is refused; NULL: none is. */
static const char *refusal_of(const struct mp_reproduction *all) {
    for (int i = 0; i < all->machines.count * all->models.count * all->jobs.count; i++)
        if (all->cell[i].refusal)
            return all->cell[i].refusal;
    return NULL;
}

/* A set that can't be predicted says why. */
static void predict_set(struct mp_inference *all, struct mp_reproduction *reproduction,
                        const struct mp_infer_settings *settings, int number) {
    struct mp_infer_set *set = &all->set[number];
    struct mp_reproduce_settings reproduce = settings->reproduce;
    struct mp_error error = {0};
    reproduce.value = (const char(*)[MP_REPRODUCE_VALUE])set->value;
    reproduce.progress = NULL;
    mp_reproduction_forget(reproduction);
    int code = mp_reproduction_run(reproduction, &reproduce, &error);
    const char *refusal = code ? error.text : refusal_of(reproduction);
    if (refusal) {
        snprintf(set->refused, sizeof set->refused, "%.250s", refusal);
        set->loss = INFINITY;
        return;
    }
    for (int i = 0; i < all->lines; i++) {
        set->share[i] = share_of(reproduction, reproduction->line[i].row);
        set->number[i] = reproduction->line[i].value;
        set->out_of_memory[i] = reproduction->line[i].out_of_memory;
    }
    fill_quantities(reproduction, set);
    set->loss = loss_of(all, set);
    set->fitted = mp_infer_count(all, number, MP_USE_FIT).inside;
}

struct running {
    struct mp_inference *all;
    struct mp_reproduction *reproduction;
    const struct mp_infer_settings *settings;
    int first; /* set of the round */
};

static void work(void *context, int set) {
    struct running *running = context;
    predict_set(running->all, running->reproduction, running->settings, set);
}

static bool tell(void *context, int done) {
    struct running *running = context;
    const struct mp_infer_settings *settings = running->settings;
    return !settings->progress ||
           settings->progress(settings->context, running->first + done, running->all->sets);
}

/* Predicts the sets up to `end` that are not predicted yet, each in whichever process is free. */
static int predict_sets(struct running *running, int first, int end, struct mp_error *error) {
    const struct mp_workers workers = {running->settings->processes, running, work, tell};
    running->first = first;
    return mp_workers_run(&workers, first, end, error);
}

/* ---- all ---- */

static void find_best(struct mp_inference *all) {
    all->best = 0;
    for (int i = 1; i < all->sets; i++)
        if (mp_infer_better(&all->set[i], &all->set[all->best]))
            all->best = i;
    for (int i = 0; i < all->lines; i++) {
        all->line[i].value = all->set[all->best].number[i];
        all->line[i].out_of_memory = all->set[all->best].out_of_memory[i];
        all->line[i].is_inside = mp_infer_inside(all, all->best, i);
    }
}

static int search(struct running *running, struct mp_error *error) {
    struct mp_inference *all = running->all;
    MP_AUTO(memory) int *order = NULL;
    MP_TRY(MP_NEW(order, all->sampled, error));
    draw_hypercube(all, running->settings->seed, order);
    int number = 0;
    MP_TRY(predict_sets(running, 0, all->sampled, error));
    for (int first = all->sampled; first < all->sets; first += ROUND, number++) {
        int count = all->sets - first < ROUND ? all->sets - first : ROUND;
        draw_steps(all, first, count, number);
        MP_TRY(predict_sets(running, first, first + count, error));
    }
    find_best(all);
    const struct mp_infer_set *best = &all->set[all->best];
    if (isfinite(best->loss))
        return MP_OK;
    return mp_fail(error, MP_EINVAL, "%s",
                   *best->refused ? best->refused : "no row is to be fitted");
}

static int count_sets(struct mp_inference *all, const struct mp_infer_settings *settings,
                      int needed, struct mp_error *error) {
    const struct mp_reproduction *reproduction = all->reproduction;
    int64_t budget = settings->budget ? settings->budget : reproduction->budget;
    if (!reproduction->unknowns)
        return mp_fail(error, MP_EINVAL, "%s has no unknowns to infer", reproduction->path);
    if (budget < (int64_t)LEAST * needed || budget / needed > 1000000)
        return mp_fail(error, MP_EINVAL,
                       "a budget of %lld predictions is not %d to 1000000 sets of %d",
                       (long long)budget, LEAST, needed);
    all->sets = (int)(budget / needed);
    all->sampled = (int)(sampled_share * all->sets);
    all->predictions = (int64_t)all->sets * needed;
    return MP_OK;
}

int mp_infer(struct mp_reproduction *reproduction, const struct mp_infer_settings *settings,
             struct mp_inference **inference, struct mp_error *error) {
    MP_AUTO(inference) struct mp_inference *all = NULL;
    MP_TRY(MP_NEW(all, 1, error));
    all->reproduction = reproduction;
    mp_reproduction_forget(reproduction);
    MP_TRY(mp_reproduction_lines(reproduction, error));
    MP_TRY(count_sets(all, settings, mp_reproduction_needed(reproduction), error));
    if (reproduction->lines > MP_INFER_LINES)
        return mp_fail(error, MP_EINVAL, "%s: its rows have %d lines; inferring takes %d at most",
                       reproduction->path, reproduction->lines, MP_INFER_LINES);
    for (int i = 0; i < reproduction->lines; i++)
        all->line[all->lines++] = reproduction->line[i];
    all->size = ((size_t)all->sets + 1) * sizeof *all->set;
    all->set = mp_workers_memory(all->size);
    if (!all->set)
        return mp_no_memory(error);
    struct running running = {all, reproduction, settings, 0};
    MP_TRY(search(&running, error));
    *inference = all;
    all = NULL;
    return MP_OK;
}

void mp_inference_destroy(struct mp_inference *inference) {
    if (!inference)
        return;
    mp_workers_release(inference->set, inference->size);
    free(inference);
}

/* ---- asking ---- */

bool mp_infer_inside(const struct mp_inference *all, int set, int line) {
    return isfinite(all->set[set].loss) &&
           mp_paper_inside(&all->line[line].row->published, all->set[set].number[line]);
}

struct mp_infer_counts mp_infer_count(const struct mp_inference *all, int set,
                                      enum mp_reproduce_use use) {
    struct mp_infer_counts counts = {0};
    for (int i = 0; i < all->lines; i++)
        if (all->line[i].row->use == (int)use && !isnan(all->set[set].number[i])) {
            counts.inside += mp_infer_inside(all, set, i);
            counts.all++;
        }
    return counts;
}

bool mp_infer_near(const struct mp_inference *all, int set) {
    const struct mp_infer_set *one = &all->set[set], *best = &all->set[all->best];
    return one->fitted + MP_INFER_FEWER >= best->fitted &&
           one->loss <= best->loss + MP_INFER_TOLERANCE;
}

void mp_infer_widen(struct mp_infer_interval *interval, double value) {
    if (isnan(value))
        return;
    if (isnan(interval->low) || value < interval->low)
        interval->low = value;
    if (isnan(interval->high) || value > interval->high)
        interval->high = value;
}

struct mp_infer_interval mp_infer_prior(const struct mp_inference *all, int line) {
    struct mp_infer_interval interval = {NAN, NAN};
    for (int i = 0; i < all->sampled; i++)
        if (isfinite(all->set[i].loss))
            mp_infer_widen(&interval, all->set[i].number[line]);
    return interval;
}

struct mp_infer_interval mp_infer_line(const struct mp_inference *all, int line) {
    struct mp_infer_interval interval = {NAN, NAN};
    for (int i = 0; i < all->sets; i++)
        if (mp_infer_near(all, i))
            mp_infer_widen(&interval, all->set[i].number[line]);
    return interval;
}

struct mp_infer_interval mp_infer_unknown(const struct mp_inference *all, int unknown) {
    struct mp_infer_interval interval = {NAN, NAN};
    for (int i = 0; i < all->sets; i++)
        if (mp_infer_near(all, i))
            mp_infer_widen(&interval, all->set[i].place[unknown]);
    return interval;
}
