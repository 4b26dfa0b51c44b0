#include "reference/plan/distinct.h"

#include <math.h>
#include <string.h>

#include "reference/base/elementary.h"

void mp_distinct_model_create(struct mp_arena *memory, int ranks, int experts, int top_k,
                              struct mp_distinct_model *model) {
    size_t e = (size_t)experts, k = (size_t)top_k, sums = (e + 1) * (k + 1);
    *model = (struct mp_distinct_model){.experts = experts, .top_k = top_k};
    MP_TAKE_EACH(memory, e, model->certain, model->count, model->weight, model->wanted, model->step,
                 model->lack, model->order, model->rank);
    MP_TAKE(memory, model->sum, k + 1);
    MP_TAKE_EACH(memory, sums, model->prefix, model->before, model->behind);
    MP_TAKE(memory, model->share, (size_t)mp_levels_most_groups(ranks) * e);
    MP_TAKE(memory, model->always, k);
    MP_TAKE(memory, model->sure, e + 1);
    MP_TAKE(memory, model->begin, (size_t)ranks + 1);
    MP_TAKE_EACH(memory, e, model->part, model->held, model->taken, model->met);
}

/* ---- weights ---- */

/* Into sum[0 .. degree], e_0 .. e_degree of what it is of and one weight more. */
static void add_weight(double weight, int degree, double sum[]) {
    for (int k = degree; k > 0; k--)
        sum[k] += weight * sum[k - 1];
}

static void begin_sum(int degree, double sum[]) {
    memset(sum, 0, ((size_t)degree + 1) * sizeof *sum);
    sum[0] = 1;
}

/* The sums `to` of what those of `from` are of and one weight more. */
static void step_sum(double weight, int degree, const double from[], double to[]) {
    to[0] = 1;
    for (int k = 1; k <= degree; k++)
        to[k] = from[k] + weight * from[k - 1];
}

/* The sums before every expert, and behind all of them. */
static void sum_up(struct mp_distinct_model *model) {
    size_t width = (size_t)model->drawn + 1;
    double *before = model->prefix;
    begin_sum(model->drawn, before);
    for (int e = 0; e < model->experts; e++, before += width)
        step_sum(model->weight[e], model->drawn, before, before + width);
}

/* The step from a probability to the one that is wanted, nearly the logarithm of the ratio x of
 * their odds: 2 (x - 1) / (x + 1); and the ratio that a step stands for. */
static double step_of(double probability, double wanted) {
    return 2 * (wanted - probability) / (wanted + probability - 2 * wanted * probability);
}
static double ratio_of(double step) {
    const double most = 1.8; /* a factor of 19 */
    step = step > most ? most : step < -most ? -most : step;
    return (2 + step) / (2 - step);
}

/* lack[]: the step that every expert's weight lacks; the largest difference of probabilities.  An
 * expert's probability is its weight times e_(K-1) of all others, those before it and those behind
 * it. */
static double find_lack(struct mp_distinct_model *model) {
    int degree = model->drawn;
    size_t width = (size_t)degree + 1;
    const double *before = model->prefix + (size_t)model->experts * width;
    const double part = 1 / before[degree];
    double *behind = model->sum, worst = 0, terms = 0, mean = 0;
    begin_sum(degree, behind);
    for (int e = model->experts - 1; e >= 0; e--) {
        double weight = model->weight[e], wanted = model->wanted[e], others = 0;
        before -= width;
        for (int k = 0; k < degree; k++)
            others += before[k] * behind[degree - 1 - k];
        add_weight(weight, degree, behind);
        model->lack[e] = 0;
        if (weight == 0)
            continue;
        double probability = weight * others * part, term = wanted * (1 - wanted);
        double difference = fabs(probability - wanted);
        worst = difference > worst ? difference : worst;
        model->lack[e] = step_of(probability, wanted);
        terms += term;
        mean += term * model->lack[e];
    }
    mean /= terms;
    for (int e = 0; e < model->experts; e++) /* a factor to all weights is none */
        model->lack[e] -= mean;
    return worst;
}

/* Takes the step, less as much of what the last one brought as makes the rest least; last_lack:
 * before it.  At the first there is none. */
static void improve(struct mp_distinct_model *model, bool first, double last_lack[]) {
    double along = 0, square = 0;
    for (int e = 0; e < model->experts; e++) {
        double term = model->wanted[e] * (1 - model->wanted[e]);
        double change = model->lack[e] - last_lack[e];
        along += term * change * model->lack[e];
        square += term * change * change;
    }
    double part = !first && square > 0 ? along / square : 0;
    for (int e = 0; e < model->experts; e++) {
        double change = model->step[e] + model->lack[e] - last_lack[e];
        model->step[e] = model->lack[e] - part * change;
        model->weight[e] *= ratio_of(model->step[e]);
        last_lack[e] = model->lack[e];
    }
}

/* Who is taken by every token, and with which probability the others. */
static void find_wanted(struct mp_distinct_model *model) {
    const double nearly = 1 - 1e-7;
    double routes = 0;
    int found;
    for (int e = 0; e < model->experts; e++) {
        model->certain[e] = false;
        routes += model->count[e];
    }
    model->drawn = model->top_k;
    do {
        double most = routes * nearly, left = routes;
        int drawn = model->drawn;
        found = 0;
        for (int e = 0; e < model->experts; e++)
            if (!model->certain[e] && model->count[e] > 0 &&
                (double)model->count[e] * drawn > most && found < drawn) {
                model->certain[e] = true;
                left -= model->count[e];
                found++;
            }
        model->drawn -= found;
        routes = left;
    } while (found > 0 && model->drawn > 0 && routes > 0);
    int always = 0;
    for (int e = model->experts - 1; e >= 0; e--) {
        if (model->certain[e])
            model->always[always++] = e;
        model->wanted[e] = model->certain[e] || routes <= 0 || model->drawn == 0
                               ? 0
                               : model->count[e] * (model->drawn / routes);
    }
}

static void begin_weights(struct mp_distinct_model *model) {
    double terms = 0, mean = 0, sum = 0;
    for (int e = 0; e < model->experts; e++) {
        double wanted = model->wanted[e];
        terms += wanted * (1 - wanted);
        mean += wanted * wanted * (1 - wanted);
    }
    for (int e = 0; e < model->experts; e++) {
        double wanted = model->wanted[e];
        double step = wanted > 0 ? (mean / terms - wanted) / terms : 0;
        model->weight[e] = wanted / (1 - wanted) * ratio_of(step);
        sum += model->weight[e];
    }
    for (int e = 0; sum > 0 && e < model->experts; e++) /* so that no product is too large */
        model->weight[e] *= model->drawn / sum;
}

bool mp_distinct_model_fit(struct mp_distinct_model *model, const uint32_t count[]) {
    enum { TURNS = 64 };
    const double near = 1e-8;
    size_t bytes = (size_t)model->experts * sizeof *count;
    double *last_lack = model->before; /* which the weights make old */
    if (model->fitted && !memcmp(model->count, count, bytes))
        return false;
    model->fitted = true;
    memcpy(model->count, count, bytes);
    find_wanted(model);
    begin_weights(model);
    bool any = false;
    for (int e = 0; e < model->experts; e++) {
        any = any || model->weight[e] > 0;
        last_lack[e] = model->step[e] = 0;
    }
    sum_up(model);
    for (int turn = 0; any && turn < TURNS && find_lack(model) > near; turn++) {
        improve(model, turn == 0, last_lack);
        sum_up(model);
    }
    model->all =
        model->prefix[(size_t)model->experts * ((size_t)model->drawn + 1) + (size_t)model->drawn];
    return true;
}

/* ---- experts in groups ---- */

void mp_distinct_model_arrange(struct mp_distinct_model *model, const int32_t order[], int whole) {
    int degree = model->drawn;
    size_t width = (size_t)degree + 1;
    double *before = model->before, *behind = model->behind + (size_t)whole * width;
    model->whole = whole;
    if (order != model->order)
        memcpy(model->order, order, (size_t)model->experts * sizeof *order);
    begin_sum(degree, before);
    begin_sum(degree, behind);
    model->sure[0] = 0;
    for (int i = 0; i < whole; i++, before += width) {
        model->sure[i + 1] = model->sure[i] + model->certain[order[i]];
        step_sum(model->weight[order[i]], degree, before, before + width);
    }
    for (int i = whole; i > 0; i--, behind -= width)
        step_sum(model->weight[order[i - 1]], degree, behind, behind - width);
}

/* A coefficient of the product of two. */
static double multiply(const double one[], const double other[], int degree) {
    double sum = 0;
    for (int k = 0; k <= degree; k++)
        sum += one[k] * other[degree - k];
    return sum;
}

double mp_distinct_model_meets(const struct mp_distinct_model *model, int begin, int end,
                               const double share[]) {
    int degree = model->drawn, parted = model->experts - model->whole;
    size_t width = (size_t)degree + 1;
    const double *before = model->before + (size_t)begin * width;
    const double *behind = model->behind + (size_t)end * width;
    if (model->sure[end] > model->sure[begin])
        return 1;
    if (model->all <= 0)
        return 0;
    if (parted == 0)
        return 1 - multiply(before, behind, degree) / model->all;
    double *sum = model->sum, misses = 1;
    for (int k = 0; k <= degree; k++)
        sum[k] = multiply(before, behind, k);
    for (int i = 0; i < parted; i++) {
        int32_t e = model->order[model->whole + i];
        if (model->certain[e])
            misses *= 1 - share[i];
        else
            add_weight(model->weight[e] * (1 - share[i]), degree, sum);
    }
    return 1 - misses * sum[degree] / model->all;
}

/* ---- tokens one by one ---- */

/* Of the experts before `end`, the last of `left` that a token takes: it is before e with
 * probability e_left(w before e) / e_left(w before end). */
static int draw_last(const struct mp_distinct_model *model, int end, int left, double uniform) {
    size_t width = (size_t)model->drawn + 1;
    const double *column = model->prefix + left;
    double limit = uniform * column[(size_t)end * width];
    int low = left - 1, high = end - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (column[((size_t)middle + 1) * width] > limit)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void mp_distinct_model_draw(const struct mp_distinct_model *model, uint64_t seed, uint64_t token,
                            int32_t expert[]) {
    int always = model->top_k - model->drawn, added = 0, taken = 0, end = model->experts;
    for (int left = model->all > 0 ? model->drawn : 0; left > 0; left--) {
        end = draw_last(model, end, left, mp_elementary_uniform(seed, token, (uint64_t)left));
        while (added < always && model->always[added] > end)
            expert[taken++] = model->always[added++];
        expert[taken++] = end;
    }
    while (added < always)
        expert[taken++] = model->always[added++];
    for (; taken < model->top_k; taken++)
        expert[taken] = -1;
}

/* ---- plans ---- */

/* Where all of an expert's routes from a source go, where there are none anywhere; -1: not to one
 * rank. */
static int32_t find_rank(const struct mp_plan *plan, const struct mp_load *load, int source,
                         int expert) {
    int parts;
    if (mp_load_at(load, source, expert) == 0)
        return 0;
    const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);
    bool one = parts == 1 && part->run == 1 && part->count == mp_load_at(load, source, expert);
    return one ? plan->holder[part->first] : -1;
}

/* Whether experts from this source go elsewhere than those of the last arrangement. */
static bool find_ranks(struct mp_distinct_model *model, const struct mp_plan *plan,
                       const struct mp_load *load, int source) {
    bool other = false;
    for (int e = 0; e < plan->experts; e++) {
        int32_t rank = find_rank(plan, load, source, e);
        other = other || rank < 0 || rank != model->rank[e];
        model->rank[e] = rank;
    }
    return other;
}

/* Experts in the order of the ranks that they go to, those that do not go to one rank last. */
static void arrange(struct mp_distinct_model *model, int ranks) {
    int32_t *begin = model->begin;
    int whole = 0, parted = 0;
    memset(begin, 0, ((size_t)ranks + 1) * sizeof *begin);
    for (int e = 0; e < model->experts; e++)
        if (model->rank[e] >= 0) {
            begin[model->rank[e] + 1]++;
            whole++;
        }
    for (int rank = 0; rank < ranks; rank++)
        begin[rank + 1] += begin[rank];
    for (int e = 0; e < model->experts; e++)
        model->order[model->rank[e] >= 0 ? begin[model->rank[e]]++ : whole + parted++] = e;
    memmove(begin + 1, begin, (size_t)ranks * sizeof *begin); /* all have come to their ends */
    begin[0] = 0;
    mp_distinct_model_arrange(model, model->order, whole);
}

/* Of each parted expert's routes from a source, the parts that go to each group. */
static void find_shares(struct mp_distinct_model *model, const struct mp_plan *plan,
                        const struct mp_load *load, int source, const struct mp_levels *levels) {
    size_t parted = (size_t)(model->experts - model->whole);
    double *share = model->share;
    memset(share, 0, (size_t)mp_levels_groups(levels) * parted * sizeof *share);
    for (size_t i = 0; i < parted; i++) {
        int parts, e = model->order[(size_t)model->whole + i];
        const struct mp_dispatch_part *part = mp_plan_parts(plan, source, e, &parts);
        for (int p = 0; p < parts; p++)
            for (int32_t h = 0; h < part[p].run; h++) {
                int rank = plan->holder[part[p].first + h];
                double routes = part[p].count / (double)mp_load_at(load, source, e);
                for (int l = 0; l < levels->count; l++)
                    share[(size_t)mp_levels_group(levels, l, rank) * parted + i] += routes;
            }
    }
}

static void count_tokens(const struct mp_distinct_model *model, const struct mp_levels *levels,
                         double tokens, double distinct[]) {
    size_t parted = (size_t)(model->experts - model->whole);
    const double *share = model->share;
    const int32_t *begin = model->begin;
    for (int level = 0; level < levels->count; level++) {
        const struct mp_topology *groups = &levels->groups[level];
        for (int group = 0; group < mp_topology_nodes(groups); group++, share += parted) {
            int first = begin[mp_topology_node_begin(groups, group)];
            int past = begin[mp_topology_node_end(groups, group)];
            *distinct++ = tokens * mp_distinct_model_meets(model, first, past, share);
        }
    }
}

/* ---- tokens that are known ---- */

/* Where the next route of an expert goes, or -1: it is dropped. */
static int32_t next_rank(struct mp_distinct_model *model, const struct mp_plan *plan, int source,
                         int expert) {
    int parts;
    const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);
    int32_t *at = &model->part[expert], *held = &model->held[expert];
    int32_t *taken = &model->taken[expert];
    while (*at < parts && (*held == part[*at].run || part[*at].count == 0)) {
        ++*at;
        *held = *taken = 0;
    }
    if (*at == parts)
        return -1;
    int32_t rank = plan->holder[part[*at].first + *held];
    if ((uint32_t)++ * taken == part[*at].count) {
        ++*held;
        *taken = 0;
    }
    return rank;
}

/* Adds tokens of a rank to those of groups. */
static void count_known(struct mp_distinct_model *model, const struct mp_plan *plan,
                        const struct mp_routes *routes, int source, int32_t first, int64_t tokens,
                        const struct mp_levels *levels, double distinct[]) {
    size_t top_k = (size_t)routes->top_k;
    int32_t *rank = model->met;
    for (int32_t t = first; t < first + tokens; t++) {
        const int32_t *expert = routes->expert + (size_t)t * top_k;
        int count = 0;
        for (size_t j = 0; j < top_k; j++) {
            rank[count] = expert[j] < 0 ? -1 : next_rank(model, plan, source, expert[j]);
            if (rank[count] < 0)
                continue;
            for (int l = mp_levels_apart(levels, rank, count); l < levels->count; l++)
                distinct[mp_levels_group(levels, l, rank[count])]++;
            count++;
        }
    }
}

/* A rank's tokens, chunk after chunk. */
static void count_source(struct mp_distinct_model *model, const struct mp_plan *plan,
                         const struct mp_routes *routes, int source, const struct mp_levels *levels,
                         double distinct[]) {
    int32_t first = routes->begin[source], all = routes->begin[source + 1] - first;
    int counts = mp_levels_groups(levels);
    memset(distinct, 0, (size_t)(plan->degree * counts) * sizeof *distinct);
    for (int e = 0; e < model->experts; e++)
        model->part[e] = model->held[e] = model->taken[e] = 0;
    for (int chunk = 0; chunk < plan->degree; chunk++) {
        int64_t tokens = mp_exchange_chunk(all, plan->degree, chunk);
        count_known(model, plan, routes, source, first, tokens, levels, distinct + chunk * counts);
        first += (int32_t)tokens;
    }
}

/* The same by the model, unless they are those of the rank before. */
static void expect_source(struct mp_distinct_model *model, const struct mp_plan *plan,
                          const struct mp_load *load, int source, const struct mp_levels *levels,
                          double distinct[]) {
    const uint32_t *count = load->count + (size_t)source * (size_t)load->experts;
    int counts = mp_levels_groups(levels), all = plan->degree * counts;
    double tokens = 0;
    bool fitted = mp_distinct_model_fit(model, count);
    bool other = find_ranks(model, plan, load, source);
    if (source > 0 && !fitted && !other) {
        memcpy(distinct, distinct - all, (size_t)all * sizeof *distinct);
        return;
    }
    for (int e = 0; e < load->experts; e++)
        tokens += (double)count[e] / model->top_k;
    arrange(model, load->ranks);
    find_shares(model, plan, load, source, levels);
    count_tokens(model, levels, tokens / plan->degree, distinct);
    for (int i = counts; i < all; i++)
        distinct[i] = distinct[i - counts];
}

void mp_distinct_tokens(struct mp_distinct_model *model, const struct mp_plan *plan,
                        const struct mp_load *load, double distinct[]) {
    const struct mp_levels levels = mp_plan_token_levels(plan);
    int counts = plan->degree * mp_levels_groups(&levels);
    const uint32_t *known = load->distinct_counts == counts ? load->distinct : NULL;
    for (int i = 0; known && i < load->ranks * counts; i++)
        distinct[i] = known[i];
    for (int source = 0; !known && source < load->ranks; source++, distinct += counts)
        if (load->routes)
            count_source(model, plan, load->routes, source, &levels, distinct);
        else
            expect_source(model, plan, load, source, &levels, distinct);
}
