#include "reference/plan/distinct.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/elementary.h"

int mp_distinct_model_create(int ranks, int experts, int top_k, struct mp_distinct_model *model,
                             struct mp_error *error) {
    size_t count = (size_t)experts, groups = 2 * (size_t)ranks; /* at most as many as ranks */
    *model = (struct mp_distinct_model){.experts = experts, .top_k = top_k};
    model->weight =
        calloc((groups + 2) * count + (count + 2) * ((size_t)top_k + 1), sizeof(double));
    model->certain = calloc(count, sizeof *model->certain);
    if (!model->weight || !model->certain) {
        mp_distinct_model_destroy(model);
        return mp_fail(error, MP_ENOMEM, "no memory for the tokens of %d experts", experts);
    }
    model->wanted = model->weight + count;
    model->share = model->wanted + count;
    model->prefix = model->share + groups * count;
    model->sum = model->prefix + (count + 1) * ((size_t)top_k + 1);
    return MP_OK;
}

void mp_distinct_model_destroy(struct mp_distinct_model *model) {
    free(model->weight);
    free(model->certain);
    *model = (struct mp_distinct_model){0};
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

/* The sums before every expert, of which the last, behind all of them, is returned. */
static double *sum_up(struct mp_distinct_model *model) {
    size_t width = (size_t)model->drawn + 1;
    double *before = model->prefix;
    begin_sum(model->drawn, before);
    for (int e = 0; e < model->experts; e++, before += width) {
        memcpy(before + width, before, width * sizeof *before);
        add_weight(model->weight[e], model->drawn, before + width);
    }
    return before;
}

/* Makes every expert's weight the larger the less probable it is with them than it should be; the
 * largest difference.  An expert's probability is its weight times e_(K-1) of all others, those
 * before it and those behind it. */
static double improve(struct mp_distinct_model *model) {
    int degree = model->drawn;
    size_t width = (size_t)degree + 1;
    double *before = sum_up(model), *behind = model->sum, worst = 0;
    double all = before[degree];
    begin_sum(degree, behind);
    for (int e = model->experts - 1; e >= 0; e--) {
        double weight = model->weight[e], others = 0;
        before -= width;
        for (int k = 0; k < degree; k++)
            others += before[k] * behind[degree - 1 - k];
        add_weight(weight, degree, behind);
        if (weight == 0)
            continue;
        double probability = weight * others / all;
        worst = fmax(worst, fabs(probability - model->wanted[e]));
        model->weight[e] = model->wanted[e] * all / others;
    }
    return worst;
}

void mp_distinct_model_fit(struct mp_distinct_model *model, const uint32_t count[]) {
    enum { TURNS = 64 };
    const double near = 1e-7;
    double tokens = 0, rest = 0;
    for (int e = 0; e < model->experts; e++)
        tokens += (double)count[e] / model->top_k;
    model->drawn = model->top_k;
    for (int e = 0; e < model->experts; e++) {
        double wanted = tokens > 0 ? count[e] / tokens : 0;
        model->certain[e] = model->drawn > 0 && wanted > 1 - near;
        model->drawn -= model->certain[e];
        model->wanted[e] = model->certain[e] ? 0 : wanted;
        model->weight[e] = wanted / (1 - model->wanted[e]);
        if (model->certain[e])
            model->weight[e] = 0;
        rest += model->weight[e];
    }
    for (int e = 0; rest > 0 && e < model->experts; e++) /* so that no product is too large */
        model->weight[e] *= model->drawn / rest;
    for (int turn = 0; model->drawn > 0 && turn < TURNS && improve(model) > near; turn++)
        ;
    model->all = sum_up(model)[model->drawn];
}

double mp_distinct_model_meets(const struct mp_distinct_model *model, const double share[]) {
    double *sum = model->sum, misses = 1;
    begin_sum(model->drawn, sum);
    for (int e = 0; e < model->experts; e++) {
        if (model->certain[e])
            misses *= 1 - share[e];
        else
            add_weight(model->weight[e] * (1 - share[e]), model->drawn, sum);
    }
    return model->all > 0 ? 1 - misses * sum[model->drawn] / model->all : 0;
}

void mp_distinct_model_draw(const struct mp_distinct_model *model, uint64_t seed, uint64_t token,
                            int32_t expert[]) {
    size_t width = (size_t)model->drawn + 1;
    int left = model->drawn, taken = 0;
    for (int e = model->experts - 1; e >= 0; e--) {
        const double *before = model->prefix + (size_t)e * width;
        bool takes = model->certain[e];
        if (!takes && left > 0 && model->weight[e] > 0) {
            double chance = model->weight[e] * before[left - 1] / before[width + (size_t)left];
            takes = mp_elementary_uniform(seed, token, (uint64_t)e) < chance;
            left -= takes;
        }
        if (takes)
            expert[taken++] = e;
    }
    for (; taken < model->top_k; taken++)
        expert[taken] = -1;
}

/* ---- plans ---- */

/* Of each expert's routes from a source, the parts that go to each group and rank. */
static void find_shares(const struct mp_plan *plan, const struct mp_load *load, int source,
                        double share[]) {
    const struct mp_topology groups = mp_plan_token_groups(plan);
    size_t experts = (size_t)plan->experts;
    double *ranks = share + (size_t)mp_topology_nodes(&groups) * experts;
    memset(share, 0, (size_t)mp_exchange_counts(&groups) * experts * sizeof *share);
    for (int e = 0; e < plan->experts; e++) {
        int parts;
        const struct mp_dispatch_part *part = mp_plan_parts(plan, source, e, &parts);
        for (int p = 0; p < parts; p++)
            for (int32_t i = 0; i < part[p].run; i++) {
                int rank = plan->holder[part[p].first + i];
                double routes = part[p].count / (double)mp_load_at(load, source, e);
                share[(size_t)mp_topology_node(&groups, rank) * experts + (size_t)e] += routes;
                ranks[(size_t)rank * experts + (size_t)e] += routes;
            }
    }
}

void mp_distinct_tokens(struct mp_distinct_model *model, const struct mp_plan *plan,
                        const struct mp_load *load, double distinct[]) {
    const struct mp_topology groups = mp_plan_token_groups(plan);
    int counts = mp_exchange_counts(&groups);
    const uint32_t *known = load->distinct_counts == counts ? load->distinct : NULL;
    for (int source = 0; source < load->ranks; source++, distinct += counts) {
        const uint32_t *count = load->count + (size_t)source * (size_t)load->experts;
        double tokens = 0;
        for (int i = 0; known && i < counts; i++)
            distinct[i] = *known++;
        if (known)
            continue;
        for (int e = 0; e < load->experts; e++)
            tokens += (double)count[e] / model->top_k;
        mp_distinct_model_fit(model, count);
        find_shares(plan, load, source, model->share);
        for (int i = 0; i < counts; i++)
            distinct[i] = tokens * mp_distinct_model_meets(
                                       model, model->share + (size_t)i * (size_t)load->experts);
    }
}
