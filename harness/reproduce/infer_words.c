/* What no set explains, in words: see infer.h. */
#include <math.h>

#include "harness/reproduce/infer.h"
#include "reference/base/characters.h"

static const double expected_together = 3; /* sets, for a pair to be remarked on */
enum {
    PAIRS = 12,    /* most that are told */
    NAMED = 6,     /* rows of a sentence */
    SETTING = 1024 /* characters of a set's values, or of such rows */
};

struct telling {
    const struct mp_inference *all;
    int inside[MP_INFER_LINES]; /* sets in which a line is inside */
    json_t *sentences;
};

static void tell(const struct telling *telling, const char *text) {
    json_array_append_new(telling->sentences, json_string(text));
}

static void name_number(const struct mp_paper_row *row, double number, char text[32]) {
    if (row->unit == MP_PAPER_CHANGE)
        snprintf(text, 32, "%+.1f %%", 100 * number);
    else if (row->unit == MP_PAPER_SHARE)
        snprintf(text, 32, "%.1f %%", 100 * number);
    else
        snprintf(text, 32, "%.4g", number);
}

/* ---- lines that are outside ---- */

/* The values of a set, "loads.spread 0.4, ...". */
static void name_set(const struct mp_inference *all, int set, char text[SETTING]) {
    *text = '\0';
    for (int u = 0; u < all->reproduction->unknowns; u++)
        mp_text_add(text, SETTING, ", ", "%s %s", all->reproduction->unknown[u].key,
                    all->set[set].value[u]);
}

/* How far a line is from inside under a set, as a factor of at least 1. */
static double distance(const struct mp_inference *all, int set, int line) {
    double number = all->set[set].number[line];
    if (!isfinite(all->set[set].loss) || isnan(number))
        return INFINITY;
    double ratio = mp_infer_ratio(&all->line[line].row->published, number);
    return ratio > 1 ? ratio : 1 / ratio;
}

static void tell_never(const struct telling *telling, int line, const char *name) {
    const struct mp_inference *all = telling->all;
    const struct mp_paper_row *row = &all->line[line].row->published;
    char low[32], high[32], from[32], to[32], near[32], setting[SETTING], text[2 * SETTING];
    struct mp_infer_interval range = {NAN, NAN};
    int nearest = all->best;
    for (int i = 0; i < all->sets; i++) {
        double number = all->set[i].number[line];
        if (!isfinite(all->set[i].loss) || isnan(number))
            continue;
        mp_infer_widen(&range, number);
        nearest = distance(all, i, line) < distance(all, nearest, line) ? i : nearest;
    }
    double number = all->set[nearest].number[line];
    name_number(row, isfinite(row->low) ? row->low : row->high, low);
    name_number(row, row->high, high);
    name_number(row, range.low, from);
    name_number(row, range.high, to);
    name_number(row, number, near);
    name_set(all, nearest, setting);
    bool is_range = isfinite(row->low) && row->low < row->high;
    snprintf(text, sizeof text,
             "%s is inside under no set: published %s%s%s, predicted %s to %s; nearest %s, %.2f "
             "times what would be inside, under %s",
             name, is_range ? low : high, is_range ? " to " : "", is_range ? high : "", from, to,
             near, mp_infer_ratio(row, number), setting);
    tell(telling, text);
}

/* Lines that are inside with the best set and outside with another, "a; b and 3 more". */
static void name_lost(const struct mp_inference *all, int set, char text[SETTING]) {
    int lost = 0;
    char name[MP_REPRODUCE_LABEL * 2];
    *text = '\0';
    for (int i = 0; i < all->lines; i++) {
        if (!mp_infer_inside(all, all->best, i) || mp_infer_inside(all, set, i) || ++lost > NAMED)
            continue;
        mp_reproduced_name(&all->line[i], name);
        mp_text_add(text, SETTING, "; ", "%.100s", name);
    }
    if (lost > NAMED)
        mp_text_add(text, SETTING, "", " and %d more", lost - NAMED);
    if (!lost)
        snprintf(text, SETTING, "none, but rows that are outside lie further off");
}

static void tell_cost(const struct telling *telling, int line, const char *name) {
    const struct mp_inference *all = telling->all;
    char lost[SETTING], text[2 * SETTING];
    int cheapest = -1, near = 0;
    for (int i = 0; i < all->sets; i++) {
        if (!mp_infer_inside(all, i, line))
            continue;
        near += mp_infer_near(all, i);
        if (cheapest < 0 || mp_infer_better(&all->set[i], &all->set[cheapest]))
            cheapest = i;
    }
    name_lost(all, cheapest, lost);
    const struct mp_infer_set *there = &all->set[cheapest], *best = &all->set[all->best];
    snprintf(text, sizeof text,
             "%s is inside under %d of %d sets, at best with %d fitted inside instead of %d and a "
             "loss of %.3f instead of %.3f; what is outside there, and inside now: %s",
             name, telling->inside[line], all->sets, there->fitted, best->fitted, there->loss,
             best->loss, lost);
    if (near)
        mp_text_add(text, sizeof text, "",
                    "; %d of these sets are nearly as good: fitted rows leave it open", near);
    tell(telling, text);
}

/* ---- layers and iterations (Amdahl) ---- */

static bool is_speed_up(const struct mp_reproduce_row *row, enum mp_reproduce_figure figure) {
    return row->figure == (int)figure && row->over && row->published.unit == MP_PAPER_SPEED_UP &&
           !(row->of & (row->of - 1)) && !(row->over & (row->over - 1));
}

static int job_of(uint32_t set) {
    return __builtin_ctz(set);
}

/* A layer L times and an iteration S times as fast: 1 / S = 1 - share + share / L. */
static double share_of(double iteration, double layer) {
    return (1 - 1 / iteration) / (1 - 1 / layer);
}

static void tell_shares(const struct telling *telling, int layers, int iterations) {
    const struct mp_inference *all = telling->all;
    const struct mp_reproduce_row *layer = all->line[layers].row,
                                  *iteration = all->line[iterations].row;
    const struct mp_paper_row *of_layer = &layer->published, *of_iteration = &iteration->published;
    if (!is_speed_up(layer, MP_FIGURE_MOE) || !is_speed_up(iteration, MP_FIGURE_SECONDS) ||
        layer->of != iteration->of || layer->over != iteration->over ||
        !(layer->machines & iteration->machines) || !(layer->models & iteration->models) ||
        (iterations > 0 && all->line[iterations - 1].row == iteration) || layer->single ||
        iteration->single || of_layer->low != of_layer->high ||
        of_iteration->high >= of_layer->high)
        return;
    double most = share_of(of_iteration->high, of_layer->high), least = INFINITY, highest = 0;
    for (int i = 0; i < all->sets; i++) {
        double share = all->set[i].share[layers];
        if (!isfinite(all->set[i].loss) || isnan(share))
            continue;
        least = share < least ? share : least;
        highest = share > highest ? share : highest;
    }
    char text[MP_INFER_SENTENCE];
    snprintf(text, sizeof text,
             "%s (%.4g) and %s (at most %.4g) hold together only where at most %.0f %% of %s's "
             "iteration is layers with experts; under the sets it is %.0f to %.0f %%",
             of_layer->id, of_layer->high, of_iteration->id, of_iteration->high, 100 * most,
             all->reproduction->jobs.part[job_of(layer->of)].name, 100 * least, 100 * highest);
    tell(telling, text);
}

/* ---- pairs ---- */

static bool are_never_together(const struct mp_inference *all, int a, int b) {
    for (int i = 0; i < all->sets; i++)
        if (mp_infer_inside(all, i, a) && mp_infer_inside(all, i, b))
            return false;
    return true;
}

/* Of sets where one line is inside: the least and the most of a quantity, or of an unknown. */
static struct mp_infer_interval range_where(const struct mp_inference *all, int line, int job,
                                            int quantity) {
    struct mp_infer_interval range = {NAN, NAN};
    for (int i = 0; i < all->sets; i++) {
        const struct mp_infer_set *set = &all->set[i];
        if (mp_infer_inside(all, i, line))
            mp_infer_widen(&range, job < 0 ? set->place[quantity] : set->quantity[job][quantity]);
    }
    return range;
}

/* What keeps two lines apart: all values of the one above all of the other. */
struct condition {
    int job, quantity; /* job -1: of the unknown */
    bool a_above;
    double above, below, gap; /* the upper one's least, the lower one's most */
};

static void try_condition(const struct mp_inference *all, int a, int b, int job, int quantity,
                          struct condition *best) {
    struct mp_infer_interval of_a = range_where(all, a, job, quantity),
                             of_b = range_where(all, b, job, quantity);
    bool a_above = of_a.low > of_b.high;
    double above = a_above ? of_a.low : of_b.low, below = a_above ? of_b.high : of_a.high;
    double span = (of_a.high > of_b.high ? of_a.high : of_b.high) -
                  (of_a.low < of_b.low ? of_a.low : of_b.low);
    double gap = span > 0 ? (above - below) / span : 0;
    if (above > below && gap > best->gap)
        *best = (struct condition){job, quantity, a_above, above, below, gap};
}

/* "more than 60 % of ep's iteration is layers with experts"; `value` is the bound. */
static void describe(const struct mp_inference *all, const struct condition *condition,
                     bool is_above, char text[MP_INFER_SENTENCE / 2]) {
    static const char *const share[] = {"layers with experts", "dispatch and combine"};
    const char *more = is_above ? "at least" : "at most";
    double bound = is_above ? condition->above : condition->below;
    const struct mp_reproduction *reproduction = all->reproduction;
    if (condition->job < 0) {
        char value[MP_REPRODUCE_VALUE];
        const struct mp_reproduce_unknown *unknown = &reproduction->unknown[condition->quantity];
        mp_reproduction_value(unknown, bound, value);
        snprintf(text, MP_INFER_SENTENCE / 2, "%.100s is %s %s", unknown->key, more, value);
    } else if (condition->quantity == MP_INFER_IMBALANCE) {
        snprintf(text, MP_INFER_SENTENCE / 2, "the fullest rank under %.60s has %s %.2f x the mean",
                 reproduction->jobs.part[condition->job].name, more, bound);
    } else {
        snprintf(text, MP_INFER_SENTENCE / 2, "%s %.0f %% of %.60s's iteration is %s", more,
                 100 * bound, reproduction->jobs.part[condition->job].name,
                 share[condition->quantity]);
    }
}

static void tell_pair(const struct telling *telling, int a, int b) {
    const struct mp_inference *all = telling->all;
    const struct mp_reproduce_row *row_a = all->line[a].row, *row_b = all->line[b].row;
    struct condition best = {.gap = 0};
    uint32_t jobs = row_a->of | row_a->over | row_b->of | row_b->over;
    for (int u = 0; u < all->reproduction->unknowns; u++)
        if (!all->reproduction->unknown[u].choices)
            try_condition(all, a, b, -1, u, &best);
    for (int job = 0; job < all->reproduction->jobs.count; job++)
        for (int q = 0; jobs >> job & 1 && q < MP_INFER_QUANTITIES; q++)
            try_condition(all, a, b, job, q, &best);
    char name_a[MP_REPRODUCE_LABEL * 2], name_b[MP_REPRODUCE_LABEL * 2];
    char of_a[MP_INFER_SENTENCE / 2], of_b[MP_INFER_SENTENCE / 2], text[4 * MP_INFER_SENTENCE];
    mp_reproduced_name(&all->line[a], name_a);
    mp_reproduced_name(&all->line[b], name_b);
    snprintf(text, sizeof text,
             "%s and %s are never inside together, alone under %d and %d of %d sets", name_a,
             name_b, telling->inside[a], telling->inside[b], all->sets);
    if (best.gap > 0) {
        describe(all, &best, best.a_above, of_a);
        describe(all, &best, !best.a_above, of_b);
        mp_text_add(text, sizeof text, "", ": the first only where %s, the second only where %s",
                    of_a, of_b);
    }
    tell(telling, text);
}

/* Pairs with the most evidence first. */
static void tell_pairs(const struct telling *telling) {
    const struct mp_inference *all = telling->all;
    struct {
        int a, b;
        double expected;
    } pair[PAIRS];
    int found = 0, left_out = 0;
    for (int a = 0; a < all->lines; a++)
        for (int b = a + 1; b < all->lines; b++) {
            double expected = (double)telling->inside[a] * telling->inside[b] / all->sets;
            if (expected < expected_together || all->line[a].row == all->line[b].row ||
                !are_never_together(all, a, b))
                continue;
            left_out += found == PAIRS;
            int at = found < PAIRS ? found++ : PAIRS;
            for (; at > 0 && expected > pair[at - 1].expected; at--)
                if (at < PAIRS)
                    pair[at] = pair[at - 1];
            if (at < PAIRS) {
                pair[at].a = a;
                pair[at].b = b;
                pair[at].expected = expected;
            }
        }
    for (int i = 0; i < found; i++)
        tell_pair(telling, pair[i].a, pair[i].b);
    if (left_out) {
        char text[MP_INFER_SENTENCE];
        snprintf(text, sizeof text, "%d more pairs are never inside together", left_out);
        tell(telling, text);
    }
}

static struct telling begin(const struct mp_inference *all) {
    struct telling telling = {.all = all, .sentences = json_array()};
    for (int line = 0; line < all->lines; line++)
        for (int i = 0; i < all->sets; i++)
            telling.inside[line] += mp_infer_inside(all, i, line);
    return telling;
}

json_t *mp_infer_contradictions(const struct mp_inference *all) {
    struct telling telling = begin(all);
    for (int a = 0; a < all->lines; a++)
        for (int b = 0; b < all->lines; b++)
            tell_shares(&telling, a, b);
    tell_pairs(&telling);
    return telling.sentences;
}

json_t *mp_infer_outside(const struct mp_inference *all) {
    struct telling telling = begin(all);
    for (int line = 0; line < all->lines; line++) {
        const struct mp_reproduced *one = &all->line[line];
        char name[MP_REPRODUCE_LABEL * 2];
        if (isnan(one->value) || one->is_inside)
            continue;
        mp_reproduced_name(one, name);
        (telling.inside[line] ? tell_cost : tell_never)(&telling, line, name);
    }
    return telling.sentences;
}
