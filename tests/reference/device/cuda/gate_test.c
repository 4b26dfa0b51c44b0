/* The gate of the cuda back end: choices are those of a plain search in the
 * logits to the last one, all else is compared with double precision over the same inputs. */
#include "tests/reference/device/cuda/routes_support.h"
#include "tests/reference/device/rules.h"

static float *gate_logits(const struct test_case *c) {
    size_t count = (size_t)c->tokens * (size_t)c->experts;
    float *logits = random_values(count, 6);
    for (size_t i = 0; c->kind == TIES && i < count; i++)
        logits[i] = i % 5 == 0 ? -INFINITY : rintf(logits[i] / 4) * 0.5f; /* -0, too */
    for (size_t i = 0; c->kind == NOT_NUMBERS && i < count; i++)
        if (test_random_int(&random_state, 0, 2 * c->experts) == 0)
            logits[i] = test_random_int(&random_state, 0, 1) ? NAN : -NAN;
    return logits;
}

/* The j-th largest logit's expert; experts 0, 1, ... where there is NaN. */
static void naive_choices(const struct test_case *c, const float *row, int32_t *choice) {
    bool taken[1024] = {false}, number = true;
    for (int e = 0; e < c->experts; e++)
        number = number && !isnan(row[e]);
    for (int j = 0; j < c->top_k; j++) {
        int best = -1;
        for (int e = 0; e < c->experts; e++)
            if (!taken[e] && (best < 0 || row[e] > row[best]))
                best = e;
        choice[j] = number ? best : j;
        taken[best] = true;
    }
}

static void check_gate_row(const struct test_case *c, bool renormalise, const float *row,
                           const float *probability, const int32_t *choice, const float *weight) {
    double largest = -INFINITY, sum = 0, share = 0, expected[1024];
    for (int e = 0; e < c->experts; e++)
        largest = row[e] > largest || isnan(row[e]) ? row[e] : largest;
    for (int e = 0; e < c->experts; e++)
        sum += expected[e] = exp((double)row[e] - largest);
    for (int e = 0; e < c->experts; e++) {
        expected[e] /= sum;
        assert_near(probability[e], expected[e], 1e-6 * expected[e] + 1e-30, "probability", e);
    }
    for (int j = 0; j < c->top_k; j++)
        share += expected[choice[j]];
    for (int j = 0; j < c->top_k; j++) {
        double whole = expected[choice[j]] / (renormalise ? share : 1);
        assert_near(weight[j], whole, 2e-6 * whole + 1e-30, "weight", j);
    }
}

static void gate_chooses(struct mp_device *device, const struct test_case *c) {
    size_t n = (size_t)c->tokens, e = (size_t)c->experts, k = (size_t)c->top_k;
    bool renormalise = test_random_int(&random_state, 0, 1);
    float *logits = gate_logits(c);
    int32_t *forced = random_choices(c->tokens, c->experts, c->top_k);
    struct placed in = send(device, logits, 4 * n * e, 4 * (size_t)c->shift);
    struct placed given = send(device, forced, 4 * n * k, 0);
    struct placed out = place(device, 4 * n * e, 4 * (size_t)c->shift);
    struct placed chosen = place(device, 4 * n * k, 0), shares = place(device, 4 * n * k, 0);
    device->operations->gate_forward(
        device, NULL, c->tokens, c->experts, c->top_k, SOFTMAX(renormalise), (float *)in.at, NULL,
        c->kind == FORCED ? (int32_t *)given.at : NULL, (float *)out.at, NULL, (int32_t *)chosen.at,
        (float *)shares.at);
    float *probability = take(device, &out), *weight = take(device, &shares);
    int32_t *choice = take(device, &chosen);
    for (size_t t = 0; t < n; t++) {
        int32_t expected[16];
        naive_choices(c, logits + t * e, expected);
        if (c->kind == FORCED)
            memcpy(expected, forced + t * k, k * sizeof *expected);
        assert_memory_equal(choice + t * k, expected, k * sizeof *expected);
        check_gate_row(c, renormalise, logits + t * e, probability + t * e, expected,
                       weight + t * k);
    }
    drop(device, &in);
    drop(device, &given);
    FREE(logits, forced, probability, weight, choice);
}

/* Gradients of the probabilities of a token, and the sizes of the terms that they are sums of. */
static void naive_route_gradients(const struct test_case *c, bool renormalise,
                                  const float *probability, const int32_t *choice,
                                  const int32_t *position, const float *weight,
                                  const float *dweight, double *gradient, double *terms) {
    double sum = 0, common = 0, common_terms = 0;
    bool shared = c->kind == SURVIVORS || renormalise;
    for (int j = 0; j < c->top_k; j++) {
        if (c->kind == SURVIVORS && position[j] < 0)
            continue;
        sum += (double)probability[choice[j]];
        common += (double)dweight[j] * weight[j];
        common_terms += fabs((double)dweight[j] * weight[j]);
    }
    if (c->kind == SURVIVORS && sum < FLT_MIN) {
        sum = FLT_MIN;
        common = common_terms = 0;
    }
    for (int j = 0; j < c->top_k; j++) {
        if (c->kind == SURVIVORS && position[j] < 0)
            continue;
        gradient[choice[j]] += shared ? (dweight[j] - common) / sum : dweight[j];
        terms[choice[j]] += shared ? (fabsf(dweight[j]) + common_terms) / sum : fabsf(dweight[j]);
    }
}

static void check_gradient_row(const struct test_case *c, enum mp_element type,
                               const float *probability, const double *gradient,
                               const double *terms, const float *dlogits) {
    double product = 0, size = 0;
    for (int e = 0; e < c->experts; e++) {
        product += probability[e] * gradient[e];
        size += probability[e] * terms[e];
    }
    for (int e = 0; e < c->experts; e++) {
        double expected = probability[e] * (gradient[e] - product);
        assert_near(dlogits[e], expected,
                    tolerance_of(type, expected, probability[e] * (terms[e] + size)), "gradient",
                    e);
    }
}

/* Choices are any, so that routes of a token may share an expert, as forced ones may. */
static void gate_passes_gradients(struct mp_device *device, const struct test_case *c) {
    enum mp_element type = device->element;
    size_t n = (size_t)c->tokens, e = (size_t)c->experts, k = (size_t)c->top_k;
    bool renormalise = test_random_int(&random_state, 0, 1);
    float *probability = random_values(n * e, 1), *auxiliary = random_values(e, 0.5);
    float *weight = random_values(n * k, 1), *dweight = random_values(n * k, 1);
    int32_t *choice = random_choices(c->tokens, c->experts, c->top_k);
    int32_t *position = random_positions(c->tokens * c->top_k);
    for (size_t i = 0; i < n * e; i++)
        probability[i] = fabsf(probability[i]) / (float)c->experts;
    for (size_t i = 0; c->kind == SURVIVORS && i < n * e; i++) /* sums below their least */
        probability[i] *= i / e % 5 ? 1 : FLT_MIN / 4;
    for (size_t i = 1; i < n * k; i += 7)
        choice[i] = choice[i - 1];
    struct placed p = send(device, probability, 4 * n * e, 4 * (size_t)c->shift);
    struct placed a = send(device, auxiliary, 4 * e, 0);
    struct placed w = send(device, weight, 4 * n * k, 0), dw = send(device, dweight, 4 * n * k, 0);
    struct placed chosen = send(device, choice, 4 * n * k, 0);
    struct placed at = send(device, position, 4 * n * k, 0);
    size_t element = bytes_of(type, 1);
    struct placed out = place(device, element * n * e, element * (size_t)c->shift);
    device->operations->gate_backward(
        device, NULL, c->tokens, c->experts, c->top_k, SOFTMAX(renormalise), (float *)p.at, NULL,
        (int32_t *)chosen.at, c->kind == SURVIVORS ? (int32_t *)at.at : NULL, (float *)w.at,
        (float *)dw.at, (float *)a.at, out.at);
    float *dlogits = take_elements(device, type, &out);
    for (size_t t = 0; t < n; t++) {
        double gradient[1024], terms[1024];
        for (size_t i = 0; i < e; i++) {
            gradient[i] = auxiliary[i];
            terms[i] = fabsf(auxiliary[i]);
        }
        naive_route_gradients(c, renormalise, probability + t * e, choice + t * k, position + t * k,
                              weight + t * k, dweight + t * k, gradient, terms);
        check_gradient_row(c, type, probability + t * e, gradient, terms, dlogits + t * e);
    }
    struct placed *inputs[] = {&p, &a, &w, &dw, &chosen, &at};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        drop(device, inputs[i]);
    FREE(probability, auxiliary, weight, dweight, choice, position, dlogits);
}

static void survivors_share_the_weight(struct mp_device *device, const struct test_case *c) {
    size_t n = (size_t)c->tokens, e = (size_t)c->experts, k = (size_t)c->top_k;
    float *probability = random_values(n * e, 1);
    int32_t *choice = random_choices(c->tokens, c->experts, c->top_k);
    int32_t *position = random_positions(c->tokens * c->top_k);
    for (size_t i = 0; i < n * e; i++)
        probability[i] = i % 3 ? fabsf(probability[i]) : 0;
    struct placed p = send(device, probability, 4 * n * e, 0);
    struct placed chosen = send(device, choice, 4 * n * k, 0);
    struct placed at = send(device, position, 4 * n * k, 0), out = place(device, 4 * n * k, 0);
    device->operations->survivor_weights(device, NULL, c->tokens, c->experts, c->top_k,
                                         SOFTMAX(true), (float *)p.at, (int32_t *)chosen.at,
                                         (int32_t *)at.at, (float *)out.at);
    float *weight = take(device, &out);
    for (size_t t = 0; t < n; t++) {
        double sum = 0;
        for (size_t i = t * k; i < (t + 1) * k; i++)
            sum += position[i] < 0 ? 0 : (double)probability[t * e + (size_t)choice[i]];
        for (size_t i = t * k; i < (t + 1) * k; i++) {
            double own = position[i] < 0 ? 0 : (double)probability[t * e + (size_t)choice[i]];
            assert_near(weight[i], own / fmax(sum, FLT_MIN), 1e-6, "weight", (int64_t)i);
        }
    }
    drop(device, &p);
    drop(device, &chosen);
    drop(device, &at);
    FREE(probability, choice, position, weight);
}

static void check_statistics(const struct test_case *c, const float *probability,
                             const int32_t *choice, const uint32_t *routes, const uint32_t *firsts,
                             const float *mass) {
    for (int e = 0; e < c->experts; e++) {
        uint32_t all = 0, first = 0;
        double sum = 0;
        for (int t = 0; t < c->tokens; t++) {
            sum += (double)probability[(size_t)t * (size_t)c->experts + (size_t)e];
            first += choice[t * c->top_k] == e;
            for (int j = 0; j < c->top_k; j++)
                all += choice[t * c->top_k + j] == e;
        }
        assert_int_equal(routes[e], all);
        assert_int_equal(firsts[e], first);
        assert_near(mass[e], sum, 1e-6 * sum, "mass", e);
    }
}

/* Twice: sums of floats repeat to the last bit. */
static void gate_is_counted(struct mp_device *device, const struct test_case *c) {
    size_t n = (size_t)c->tokens, e = (size_t)c->experts, k = (size_t)c->top_k;
    float *probability = random_values(n * e, 1), *mass[2];
    int32_t *choice = random_choices(c->tokens, c->experts, c->top_k);
    for (size_t i = 0; i < n * e; i++)
        probability[i] = fabsf(probability[i]);
    for (size_t i = 0; c->kind == ONE_EXPERT && i < n * k; i++)
        choice[i] = c->experts - 1;
    struct placed p = send(device, probability, 4 * n * e, 4 * (size_t)c->shift);
    struct placed chosen = send(device, choice, 4 * n * k, 0);
    for (int round = 0; round < 2; round++) {
        struct placed out[3];
        for (int i = 0; i < 3; i++)
            out[i] = place(device, 4 * e, 0);
        device->operations->gate_statistics(
            device, NULL, c->tokens, c->experts, c->top_k, (float *)p.at, (int32_t *)chosen.at,
            (uint32_t *)out[0].at, (uint32_t *)out[1].at, (float *)out[2].at);
        uint32_t *routes = take(device, &out[0]), *firsts = take(device, &out[1]);
        mass[round] = take(device, &out[2]);
        check_statistics(c, probability, choice, routes, firsts, mass[round]);
        FREE(routes, firsts);
    }
    assert_memory_equal(mass[0], mass[1], 4 * e);
    drop(device, &p);
    drop(device, &chosen);
    FREE(probability, choice, mass[0], mass[1]);
}

static void too_much_is_refused(struct mp_device *device, const struct test_case *c) {
    const struct mp_device_operations *operations = device->operations;
    float value[1] = {0};
    int32_t choice[1] = {0};
    uint32_t count[1];
    int code = c->experts > 1024 ? MP_ELIMIT : MP_EINVAL;
    operations->gate_forward(device, NULL, 1, c->experts, c->top_k, SOFTMAX(true), value, NULL,
                             NULL, value, NULL, choice, value);
    assert_failed(device, code);
    operations->gate_backward(device, NULL, 1, c->experts, c->top_k, SOFTMAX(true), value, NULL,
                              choice, NULL, value, value, value, value);
    assert_failed(device, code);
    operations->survivor_weights(device, NULL, 1, c->experts, c->top_k, SOFTMAX(true), value,
                                 choice, choice, value);
    assert_failed(device, code);
    operations->gate_statistics(device, NULL, 1, c->experts, c->top_k, value, choice, count, count,
                                value);
    assert_failed(device, code);
}

static const struct test_case cases[] = {
    {"forward, 2 of 8", gate_chooses, 300, 8, 2, PLAIN, 0, 0, 0},
    {"forward, 8 of 8", gate_chooses, 70, 8, 8, PLAIN, 0, 0, 0},
    {"forward, 1 of 1", gate_chooses, 131, 1, 1, PLAIN, 0, 0, 0},
    {"forward, 2 of 2, ties", gate_chooses, 131, 2, 2, TIES, 0, 0, 0},
    {"forward, 3 of 7", gate_chooses, 65, 7, 3, PLAIN, 0, 0, 0},
    {"forward, 16 of 16", gate_chooses, 33, 16, 16, PLAIN, 0, 0, 0},
    {"forward, 5 of 13, ties", gate_chooses, 100, 13, 5, TIES, 0, 0, 0},
    {"forward, 9 of 32, ties", gate_chooses, 60, 32, 9, TIES, 0, 0, 0},
    {"forward, 2 of 64", gate_chooses, 150, 64, 2, PLAIN, 0, 0, 0},
    {"forward, 11 of 60, ties", gate_chooses, 50, 60, 11, TIES, 0, 0, 0},
    {"forward, 2 of 64, not aligned", gate_chooses, 50, 64, 2, PLAIN, 1, 0, 0},
    {"forward, 4 of 128, ties", gate_chooses, 40, 128, 4, TIES, 0, 0, 0},
    {"forward, 6 of 101", gate_chooses, 30, 101, 6, PLAIN, 0, 0, 0},
    {"forward, 8 of 256", gate_chooses, 30, 256, 8, PLAIN, 0, 0, 0},
    {"forward, 3 of 333, ties", gate_chooses, 20, 333, 3, TIES, 0, 0, 0},
    {"forward, 16 of 512", gate_chooses, 10, 512, 16, PLAIN, 0, 0, 0},
    {"forward, 2 of 1024, ties", gate_chooses, 10, 1024, 2, TIES, 0, 0, 0},
    {"forward, 16 of 1023", gate_chooses, 9, 1023, 16, PLAIN, 0, 0, 0},
    {"forward, one token", gate_chooses, 1, 48, 2, PLAIN, 0, 0, 0},
    {"forward, no tokens", gate_chooses, 0, 64, 2, PLAIN, 0, 0, 0},
    {"forward, forced", gate_chooses, 130, 24, 3, FORCED, 0, 0, 0},
    {"forward, all 8 forced", gate_chooses, 130, 8, 8, FORCED, 0, 0, 0},
    {"forward, forced among 1024", gate_chooses, 9, 1024, 16, FORCED, 0, 0, 0},
    {"forward, not numbers", gate_chooses, 200, 12, 4, NOT_NUMBERS, 0, 0, 0},
    {"forward, not numbers among 900", gate_chooses, 12, 900, 7, NOT_NUMBERS, 0, 0, 0},
    {"backward, 2 of 8", gate_passes_gradients, 300, 8, 2, PLAIN, 0, 0, 0},
    {"backward, 8 of 8", gate_passes_gradients, 60, 8, 8, SURVIVORS, 0, 0, 0},
    {"backward, 1 of 1", gate_passes_gradients, 100, 1, 1, PLAIN, 0, 0, 0},
    {"backward, 5 of 13", gate_passes_gradients, 100, 13, 5, SURVIVORS, 0, 0, 0},
    {"backward, 2 of 32", gate_passes_gradients, 90, 32, 2, PLAIN, 0, 0, 0},
    {"backward, 2 of 64", gate_passes_gradients, 90, 64, 2, SURVIVORS, 0, 0, 0},
    {"backward, 2 of 64, not aligned", gate_passes_gradients, 50, 64, 2, PLAIN, 1, 0, 0},
    {"backward, 9 of 101", gate_passes_gradients, 33, 101, 9, PLAIN, 0, 0, 0},
    {"backward, 8 of 256", gate_passes_gradients, 33, 256, 8, SURVIVORS, 0, 0, 0},
    {"backward, 16 of 512", gate_passes_gradients, 10, 512, 16, PLAIN, 0, 0, 0},
    {"backward, 16 of 1023", gate_passes_gradients, 9, 1023, 16, PLAIN, 0, 0, 0},
    {"backward, 2 of 1024", gate_passes_gradients, 9, 1024, 2, PLAIN, 0, 0, 0},
    {"backward, no tokens", gate_passes_gradients, 0, 8, 2, PLAIN, 0, 0, 0},
    {"survivors, 1 of 3", survivors_share_the_weight, 300, 3, 1, PLAIN, 0, 0, 0},
    {"survivors, 2 of 16", survivors_share_the_weight, 300, 16, 2, PLAIN, 0, 0, 0},
    {"survivors, 16 of 40", survivors_share_the_weight, 40, 40, 16, PLAIN, 0, 0, 0},
    {"survivors, no tokens", survivors_share_the_weight, 0, 40, 2, PLAIN, 0, 0, 0},
    {"statistics, 2 of 8", gate_is_counted, 3000, 8, 2, PLAIN, 0, 0, 0},
    {"statistics, 1 of 1", gate_is_counted, 100, 1, 1, PLAIN, 0, 0, 0},
    {"statistics, 3 of 7", gate_is_counted, 777, 7, 3, PLAIN, 0, 0, 0},
    {"statistics, 2 of 64", gate_is_counted, 1000, 64, 2, ONE_EXPERT, 0, 0, 0},
    {"statistics, 2 of 64, not aligned", gate_is_counted, 200, 64, 2, PLAIN, 1, 0, 0},
    {"statistics, 4 of 300", gate_is_counted, 131, 300, 4, PLAIN, 0, 0, 0},
    {"statistics, 8 of 1023", gate_is_counted, 70, 1023, 8, PLAIN, 0, 0, 0},
    {"statistics, 2 of 1024", gate_is_counted, 70, 1024, 2, PLAIN, 0, 0, 0},
    {"statistics, one token", gate_is_counted, 1, 20, 2, PLAIN, 0, 0, 0},
    {"statistics, no tokens", gate_is_counted, 0, 20, 2, PLAIN, 0, 0, 0},
    {"2 of 1 expert", too_much_is_refused, 1, 1, 2, PLAIN, 0, 0, 0},
    {"17 of 20 experts", too_much_is_refused, 1, 20, 17, PLAIN, 0, 0, 0},
    {"2 of 1025 experts", too_much_is_refused, 1, 1025, 2, PLAIN, 0, 0, 0},
};

int main(void) {
    return run_cases("gate on cuda", cases, sizeof cases / sizeof *cases);
}
