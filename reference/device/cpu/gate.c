/* The gate: scores of experts, the largest top_k, and their gradients. */
#include "reference/base/random.h"
#include "reference/device/cpu/auction.h"
#include "reference/device/cpu/cpu.h"
#include "reference/device/cpu/vector.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MOST_EXPERTS = 1024 };
/* Streams of random numbers; the noise of expert e has DRAW_GUMBEL + e. */
enum { DRAW_SECOND, DRAW_GUMBEL };

/* With prototypes a row is one of a token's, of as many experts as it has, and chooses one. */
struct arguments {
    size_t experts; /* of a row */
    int top_k;      /* of a row */
    int parts;      /* rows of a token */
    const struct mp_gate_rule *rule;
    float scale;
    const float *logits, *bias;
    const int32_t *forced;
    float *probability, *kept;
    int32_t *choice;
    const int32_t *position;
    float *weight;
    const float *dweight;
    const float *auxiliary;
    float *dlogits;
};

static struct arguments arguments_of(int experts, int top_k, const struct mp_gate_rule *rule,
                                     const float *probability, const int32_t *choice,
                                     const float *weight) {
    int parts = rule->prototypes ? rule->prototypes : 1;
    return (struct arguments){.experts = (size_t)(experts / parts),
                              .top_k = rule->prototypes ? 1 : top_k,
                              .parts = parts,
                              .rule = rule,
                              .scale = rule->scale != 0 ? rule->scale : 1,
                              .probability = (float *)probability,
                              .choice = (int32_t *)choice,
                              .weight = (float *)weight};
}

/* Whether weights are sigmoids, while probabilities are those over the sum of all. */
static bool weighs_sigmoids(const struct arguments *a) {
    return a->rule->scores == MP_SCORES_SIGMOID && !a->rule->renormalise;
}

/* The first expert of a row. */
static size_t first_expert(const struct arguments *a, size_t row) {
    return row % (size_t)a->parts * a->experts;
}

/* A choice of an expert so many numbers further on. */
static int32_t moved(int32_t choice, int32_t by) {
    return choice < 0 ? choice - by : choice + by;
}

/* Returns the logarithm of the sum of exponentials. */
static float softmax(size_t count, const float *restrict logits, float *restrict probability) {
    float largest = vector_largest(count, logits);
    float sum = vector_exponentials(count, logits, largest, probability);
    float inverse = 1.0f / sum;
    for (size_t e = 0; e < count; e++)
        probability[e] *= inverse;
    return largest + logf(sum);
}

/* Returns the sum of the sigmoids, which are not yet divided by it. */
static float sigmoids(size_t count, const float *restrict logits, float *restrict score) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t e = 0; e < count; e++) {
        score[e] = 1.0f / (1.0f + vector_exp(-logits[e]));
        sum += score[e];
    }
    return sum;
}

/* Keeps the best so far in descending order.  An expert enters only above a strictly smaller one,
 * so that of equal ones the lower id stays ahead.  Rows of NaN choose experts 0, 1, ... */
static void choose(size_t experts, int top_k, const float *probability, int32_t *choice) {
    float best[MP_CHOICES_LIMIT];
    for (int j = 0; j < top_k; j++) {
        best[j] = -INFINITY;
        choice[j] = j;
    }
    for (size_t e = 0; e < experts; e++) {
        float p = probability[e];
        /* top_k is 1 .. MP_CHOICES_LIMIT, as gate_forward has checked.
         * NOLINTNEXTLINE(clang-analyzer-core.*) */
        if (!(p > best[top_k - 1]))
            continue;
        int place = top_k - 1;
        /* NOLINTNEXTLINE(clang-analyzer-core.*): place < top_k */
        for (; place > 0 && p > best[place - 1]; place--) {
            best[place] = best[place - 1];
            choice[place] = choice[place - 1];
        }
        best[place] = p;
        choice[place] = (int32_t)e;
    }
}

/* The sum of a group's largest keys. */
static float group_score(size_t count, int best, const float *key) {
    float sum = 0;
    int32_t place[MP_CHOICES_LIMIT];
    if ((size_t)best >= count) {
        for (size_t e = 0; e < count; e++)
            sum += key[e];
        return sum;
    }
    choose(count, best, key, place);
    for (int j = 0; j < best; j++)
        sum += key[place[j]];
    return sum;
}

/* The largest keys of the best groups; those of others are lowered below all. */
static void choose_in_groups(const struct arguments *a, float *key, int32_t *choice) {
    const struct mp_gate_rule *rule = a->rule;
    size_t size = a->experts / (size_t)rule->groups;
    float score[MOST_EXPERTS];
    for (int g = 0; g < rule->groups; g++)
        score[g] = group_score(size, rule->group_best, key + (size_t)g * size);
    for (int closed = rule->groups_kept; closed < rule->groups; closed++) {
        int worst = 0; /* of equal ones the later group goes */
        for (int g = 1; g < rule->groups; g++)
            worst = score[g] <= score[worst] ? g : worst;
        score[worst] = INFINITY;
        for (size_t e = 0; e < size; e++)
            key[(size_t)worst * size + e] = -INFINITY;
    }
    choose(a->experts, a->top_k, key, choice);
}

/* Scores that are not yet divided by their sum, with bias and in groups. */
static void choose_by_key(const struct arguments *a, const float *score, int32_t *choice) {
    float key[MOST_EXPERTS];
    for (size_t e = 0; e < a->experts; e++)
        key[e] = a->bias ? score[e] + a->bias[e] : score[e];
    if (a->rule->groups)
        choose_in_groups(a, key, choice);
    else
        choose(a->experts, a->top_k, key, choice);
}

/* Uniform in (0, 1). */
static float drawn(const struct arguments *a, uint64_t stream, uint64_t index) {
    uint64_t bits = mp_random_bits(a->rule->seed, stream, index);
    return ((float)(bits >> 41) + 0.5f) * 0x1p-23f;
}

static uint64_t token_number(const struct arguments *a, size_t row) {
    return (uint64_t)a->rule->first_token + row;
}

/* Which of the choices after the first are not taken. */
static void leave_choices(const struct arguments *a, size_t row, const float *probability,
                          int32_t *choice) {
    if (a->rule->random_second) {
        float first = probability[choice[0]], second = probability[choice[1]];
        if (2 * second < drawn(a, DRAW_SECOND, token_number(a, row)) * (first + second))
            choice[1] = -1 - choice[1];
    }
    for (int j = 1; j < a->top_k && a->rule->least_weight > 0; j++)
        if (probability[choice[j]] < a->rule->least_weight)
            choice[j] = -1 - choice[j];
}

/* Choices, numbered within the row. */
static void take_choices(const struct arguments *a, size_t row, const float *score,
                         int32_t *choice) {
    size_t top_k = (size_t)a->top_k;
    if (a->forced)
        for (size_t j = 0; j < top_k; j++)
            choice[j] = moved(a->forced[row * top_k + j], -(int32_t)first_expert(a, row));
    else if (a->bias || a->rule->groups)
        choose_by_key(a, score, choice);
    else
        choose(a->experts, a->top_k, score, choice);
    if (!a->forced && (a->rule->random_second || a->rule->least_weight > 0))
        leave_choices(a, row, score, choice);
}

/* Whether an expert's probability is above that of the token's last choice and its group is not
 * that of the first. */
static bool is_outside(const struct arguments *a, size_t e, const float *probability,
                       const int32_t *choice) {
    size_t size = a->experts / (size_t)a->rule->groups;
    return e / size != (size_t)mp_choice_expert(choice[0]) / size &&
           probability[e] > probability[mp_choice_expert(choice[a->top_k - 1])];
}

static float alignment_loss(const struct arguments *a, const float *probability,
                            const int32_t *choice) {
    float sum = 0;
    for (size_t e = 0; e < a->experts; e++)
        if (is_outside(a, e, probability, choice))
            sum += probability[e] - probability[mp_choice_expert(choice[a->top_k - 1])];
    return sum;
}

/* Of logits with Gumbel noise, over the temperature. */
static float noisy_softmax(const struct arguments *a, size_t row, const float *logits,
                           float *probability) {
    float noisy[MOST_EXPERTS] = {0};
    for (size_t e = 0; e < a->experts; e++) {
        float noise = -logf(-logf(drawn(a, DRAW_GUMBEL + e, token_number(a, row))));
        noisy[e] = (logits[e] + noise) / a->rule->temperature;
    }
    return softmax(a->experts, noisy, probability);
}

/* Probabilities and choices; returns what is kept of the row. */
static float score_row(const struct arguments *a, size_t row, float *probability, int32_t *choice) {
    const float *logits = a->logits + row * a->experts;
    if (a->rule->scores == MP_SCORES_FORCED) {
        memset(probability, 0, a->experts * sizeof *probability);
        take_choices(a, row, probability, choice);
        probability[mp_choice_expert(choice[0])] = 1;
        return 0;
    }
    if (a->rule->scores == MP_SCORES_SOFTMAX) {
        float logarithm = a->rule->temperature > 0 ? noisy_softmax(a, row, logits, probability)
                                                   : softmax(a->experts, logits, probability);
        take_choices(a, row, probability, choice);
        return a->rule->alignment_slope > 0 ? alignment_loss(a, probability, choice) : logarithm;
    }
    float sum = sigmoids(a->experts, logits, probability);
    take_choices(a, row, probability, choice);
    for (size_t e = 0; a->rule->scores == MP_SCORES_SIGMOID && e < a->experts; e++)
        probability[e] /= sum;
    return sum;
}

static void forward_range(const void *argument, size_t begin, size_t end) {
    const struct arguments *a = argument;
    size_t top_k = (size_t)a->top_k;
    for (size_t row = begin; row < end; row++) {
        float *probability = a->probability + row * a->experts;
        int32_t *choice = a->choice + row * top_k;
        float *weight = a->weight + row * top_k;
        float kept = score_row(a, row, probability, choice), sum = 0;
        if (a->kept)
            a->kept[row] = kept;
        for (size_t j = 0; j < top_k; j++) {
            float share = probability[mp_choice_expert(choice[j])];
            weight[j] = choice[j] < 0 ? 0 : share;
            sum += share;
        }
        float divisor = a->rule->renormalise ? sum : weighs_sigmoids(a) ? 1 / kept : 1;
        for (size_t j = 0; j < top_k; j++)
            weight[j] = a->scale * weight[j] / divisor;
        for (size_t j = 0; a->parts > 1 && j < top_k; j++)
            choice[j] = moved(choice[j], (int32_t)first_expert(a, row));
    }
}

/* ---- Experts that choose ---- */

static uint32_t key_of(float probability) {
    uint32_t key;
    memcpy(&key, &probability, sizeof key); /* orders as the numbers, none of which is negative */
    return key;
}

/* The smallest key that an expert takes, and how many of those that have just that. */
struct cuts {
    uint32_t key[MOST_EXPERTS];
    int64_t equal[MOST_EXPERTS];
};

/* How many tokens' keys reach `least`, of every expert. */
static void count_keys(const struct arguments *a, const float *probability,
                       const uint32_t *restrict least, uint32_t *restrict count) {
    memset(count, 0, a->experts * sizeof *count);
    for (size_t t = 0; t < (size_t)a->rule->together; t++)
        for (size_t e = 0; e < a->experts; e++)
            count[e] += key_of(probability[t * a->experts + e]) >= least[e];
}

/* The largest numbers that as many keys reach as an expert takes, from their highest bit on. */
static void find_cuts(const struct arguments *a, const float *probability, struct cuts *cuts) {
    uint32_t least[MOST_EXPERTS], count[MOST_EXPERTS], capacity = (uint32_t)a->rule->capacity;
    memset(cuts, 0, sizeof *cuts);
    for (int bit = 30; bit >= 0; bit--) {
        for (size_t e = 0; e < a->experts; e++)
            least[e] = cuts->key[e] | 1u << bit;
        count_keys(a, probability, least, count);
        for (size_t e = 0; e < a->experts; e++)
            cuts->key[e] = count[e] >= capacity ? least[e] : cuts->key[e];
    }
    for (size_t e = 0; e < a->experts; e++)
        least[e] = cuts->key[e] + 1;
    count_keys(a, probability, least, count);
    for (size_t e = 0; e < a->experts; e++)
        cuts->equal[e] = (int64_t)capacity - count[e];
}

/* The choices of a token, of which the first ones are those that take it. */
static void be_chosen(const struct arguments *a, size_t token, struct cuts *cuts) {
    const float *probability = a->probability + token * a->experts;
    int32_t *choice = a->choice + token * (size_t)a->top_k;
    float taken[MOST_EXPERTS];
    size_t e = 0;
    do { /* there is at least one expert */
        uint32_t key = key_of(probability[e]);
        bool takes = key > cuts->key[e] || (key == cuts->key[e] && cuts->equal[e]-- > 0);
        taken[e] = takes ? probability[e] : -1;
    } while (++e < a->experts);
    choose(a->experts, a->top_k, taken, choice);
    for (int j = 0; j < a->top_k; j++) {
        float weight = taken[choice[j]];
        a->weight[token * (size_t)a->top_k + (size_t)j] = weight < 0 ? 0 : weight;
        choice[j] = weight < 0 ? -1 - choice[j] : choice[j];
    }
}

static void match_range(const void *argument, size_t begin, size_t end) {
    const struct arguments *a = argument;
    size_t together = (size_t)a->rule->together;
    for (size_t group = begin; group < end; group++) {
        struct cuts cuts;
        find_cuts(a, a->probability + group * together * a->experts, &cuts);
        for (size_t token = group * together; token < (group + 1) * together; token++)
            be_chosen(a, token, &cuts);
    }
}

static void gate_forward(struct mp_device *device, mp_stream stream, int tokens, int experts,
                         int top_k, const struct mp_gate_rule *rule, const float *logits,
                         const float *bias, const int32_t *forced, float *probability, float *kept,
                         int32_t *choice, float *weight) {
    (void)stream;
    if (top_k < 1 || top_k > MP_CHOICES_LIMIT || top_k > experts) {
        mp_fail(&device->error, MP_EINVAL, "gate: top %d of %d experts (at most %d)", top_k,
                experts, MP_CHOICES_LIMIT);
        return;
    }
    if ((bias || rule->groups || rule->temperature > 0 || rule->matching) &&
        experts > MOST_EXPERTS) {
        mp_fail(&device->error, MP_ELIMIT,
                "gate: %d experts in groups, with bias, noise or a matching (at most %d)", experts,
                MOST_EXPERTS);
        return;
    }
    if (!forced && rule->matching == MP_MATCH_AUCTION) {
        MP_CPU_NAME(auction)(device, tokens, experts, rule, logits, choice, weight);
        forced = choice;
    }
    struct arguments arguments = arguments_of(experts, top_k, rule, probability, choice, weight);
    arguments.logits = logits;
    arguments.bias = bias;
    arguments.forced = forced;
    arguments.kept = kept;
    mp_cpu_parallel(mp_cpu_of(device), (size_t)tokens * (size_t)arguments.parts,
                    mp_cpu_grain(arguments.experts), forward_range, &arguments);
    if (!forced && rule->matching == MP_MATCH_EXPERTS)
        mp_cpu_parallel(mp_cpu_of(device), (size_t)(tokens / rule->together),
                        mp_cpu_grain((size_t)rule->together * arguments.experts), match_range,
                        &arguments);
}

/* Sum of a token's probabilities over the routes that were not dropped. */
static float surviving_sum(const struct arguments *a, size_t token) {
    const float *probability = a->probability + token * a->experts;
    float sum = 0;
    for (size_t j = token * (size_t)a->top_k; j < (token + 1) * (size_t)a->top_k; j++)
        sum += a->position[j] < 0 ? 0 : probability[a->choice[j]];
    return sum;
}

static void survivor_range(const void *argument, size_t begin, size_t end) {
    const struct arguments *a = argument;
    for (size_t token = begin; token < end; token++) {
        const float *probability = a->probability + token * a->experts;
        float sum = fmaxf(surviving_sum(a, token), FLT_MIN);
        for (size_t j = token * (size_t)a->top_k; j < (token + 1) * (size_t)a->top_k; j++)
            a->weight[j] = a->position[j] < 0 ? 0 : a->scale * probability[a->choice[j]] / sum;
    }
}

static void survivor_weights(struct mp_device *device, mp_stream stream, int tokens, int experts,
                             int top_k, const struct mp_gate_rule *rule, const float *probability,
                             const int32_t *choice, const int32_t *position, float *weight) {
    (void)stream;
    struct arguments arguments = arguments_of(experts, top_k, rule, probability, choice, weight);
    arguments.position = position;
    mp_cpu_parallel(mp_cpu_of(device), (size_t)tokens, mp_cpu_grain((size_t)top_k), survivor_range,
                    &arguments);
}

/* The same as below for weights of survivors.  Where the sum is held at its least, weights are
 * probabilities times a constant. */
static void survivor_gradient(const struct arguments *a, size_t token, float *dprobability) {
    size_t first = token * (size_t)a->top_k, end = first + (size_t)a->top_k;
    float sum = surviving_sum(a, token), common = 0;
    if (sum < FLT_MIN) {
        sum = FLT_MIN;
    } else {
        for (size_t j = first; j < end; j++)
            common += a->position[j] < 0 ? 0 : a->dweight[j] * a->weight[j];
    }
    for (size_t j = first; j < end; j++)
        if (a->position[j] >= 0)
            dprobability[a->choice[j]] += (a->scale * a->dweight[j] - common) / sum;
}

static void alignment_gradient(const struct arguments *a, const float *probability,
                               const int32_t *choice, float *dprobability) {
    float slope = a->rule->alignment_slope;
    for (size_t e = 0; e < a->experts; e++)
        if (is_outside(a, e, probability, choice)) {
            dprobability[e] += slope;
            dprobability[mp_choice_expert(choice[a->top_k - 1])] -= slope;
        }
}

/* Into dlogits: the gradient of the probabilities.  A renormalised weight is w_j = s p_j / sum,
 * s being the scale, hence dp_j = (s dw_j - sum_i dw_i w_i) / sum. */
static void probability_gradient(const struct arguments *a, size_t row, float *dprobability) {
    size_t first = row * (size_t)a->top_k, offset = first_expert(a, row);
    const float *probability = a->probability + row * a->experts;
    memcpy(dprobability, a->auxiliary + offset, a->experts * sizeof *dprobability);
    if (a->rule->alignment_slope > 0)
        alignment_gradient(a, probability, a->choice + first, dprobability);
    if (a->position) {
        survivor_gradient(a, row, dprobability);
        return;
    }
    if (weighs_sigmoids(a))
        return;
    float sum = 1, common = 0;
    if (a->rule->renormalise) {
        sum = 0;
        for (size_t j = first; j < first + (size_t)a->top_k; j++) {
            sum += probability[mp_choice_expert(a->choice[j])];
            common += a->dweight[j] * a->weight[j];
        }
    }
    for (size_t j = first; j < first + (size_t)a->top_k; j++) {
        float own = a->choice[j] < 0 ? 0 : a->scale * a->dweight[j];
        dprobability[(size_t)mp_choice_expert(a->choice[j]) - offset] += (own - common) / sum;
    }
}

/* `shift` is a loss's gradient by the logarithm of the sum of exponentials. */
static void softmax_gradient(size_t count, const float *restrict probability, float shift,
                             float *restrict gradient) {
    float product = 0;
#pragma omp simd reduction(+ : product)
    for (size_t e = 0; e < count; e++)
        product += probability[e] * gradient[e];
    product -= shift;
    for (size_t e = 0; e < count; e++)
        gradient[e] = probability[e] * (gradient[e] - product);
}

/* Of p = s / sum(s), s being sigmoids: dlogit = s (1 - s) / sum(s) times (dp - sum of dp p). */
static void sigmoid_gradient(size_t count, const float *restrict probability, float sum,
                             float *restrict gradient) {
    softmax_gradient(count, probability, 0, gradient);
    for (size_t e = 0; e < count; e++)
        gradient[e] *= 1 - probability[e] * sum;
}

/* Of weights that are scaled sigmoids s themselves: dlogit = scale s (1 - s) dw. */
static void add_whole_sigmoids(const struct arguments *a, size_t row, const float *probability,
                               float *gradient) {
    for (size_t j = row * (size_t)a->top_k; j < (row + 1) * (size_t)a->top_k; j++) {
        float score = probability[a->choice[j]] * a->kept[row];
        gradient[a->choice[j]] += a->scale * a->dweight[j] * score * (1 - score);
    }
}

static void backward_range(const void *argument, size_t begin, size_t end) {
    const struct arguments *a = argument;
    for (size_t row = begin; row < end; row++) {
        float *gradient = a->dlogits + row * a->experts;
        const float *probability = a->probability + row * a->experts;
        float shift = a->rule->z_slope > 0 ? 2 * a->rule->z_slope * a->kept[row] : 0;
        if (a->rule->scores == MP_SCORES_FORCED) {
            memset(gradient, 0, a->experts * sizeof *gradient);
            continue;
        }
        probability_gradient(a, row, gradient);
        if (weighs_sigmoids(a)) {
            sigmoid_gradient(a->experts, probability, a->kept[row], gradient);
            add_whole_sigmoids(a, row, probability, gradient);
        } else if (a->rule->scores == MP_SCORES_SIGMOID)
            sigmoid_gradient(a->experts, probability, a->kept[row], gradient);
        else if (a->rule->scores == MP_SCORES_APART)
            for (size_t e = 0; e < a->experts; e++)
                gradient[e] *= probability[e] * (1 - probability[e]);
        else
            softmax_gradient(a->experts, probability, shift, gradient);
        for (size_t e = 0; a->rule->temperature > 0 && e < a->experts; e++)
            gradient[e] /= a->rule->temperature;
    }
}

static void gate_backward(struct mp_device *device, mp_stream stream, int tokens, int experts,
                          int top_k, const struct mp_gate_rule *rule, const float *probability,
                          const float *kept, const int32_t *choice, const int32_t *position,
                          const float *weight, const float *dweight, const float *auxiliary,
                          void *dlogits) {
    (void)stream;
    struct arguments arguments = arguments_of(experts, top_k, rule, probability, choice, weight);
    arguments.kept = (float *)kept;
    arguments.position = position;
    arguments.dweight = dweight;
    arguments.auxiliary = auxiliary;
    arguments.dlogits = dlogits;
    mp_cpu_parallel(mp_cpu_of(device), (size_t)tokens * (size_t)arguments.parts,
                    mp_cpu_grain(arguments.experts), backward_range, &arguments);
}

static void gate_statistics(struct mp_device *device, mp_stream stream, int tokens, int experts,
                            int top_k, const float *probability, const int32_t *choice,
                            uint32_t *routes, uint32_t *firsts, float *mass) {
    (void)device;
    (void)stream;
    size_t count = (size_t)experts;
    memset(routes, 0, count * sizeof *routes);
    memset(firsts, 0, count * sizeof *firsts);
    memset(mass, 0, count * sizeof *mass);
    for (int token = 0; token < tokens; token++) {
        const float *restrict row = probability + (size_t)token * count;
        float *restrict sum = mass;
        for (size_t e = 0; e < count; e++)
            sum[e] += row[e];
        const int32_t *chosen = choice + (size_t)token * (size_t)top_k;
        for (int j = 0; j < top_k; j++) {
            if (chosen[j] < 0)
                continue;
            routes[chosen[j]]++;
            firsts[chosen[j]] += j == 0;
        }
    }
}

void MP_CPU_NAME(install_gate)(struct mp_device_operations *operations) {
    operations->gate_forward = gate_forward;
    operations->gate_backward = gate_backward;
    operations->gate_statistics = gate_statistics;
    operations->survivor_weights = survivor_weights;
}
