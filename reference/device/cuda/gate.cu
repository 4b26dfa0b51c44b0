/* The gate: scores of experts, the largest top_k, and their gradients.
 *
 * All of it is bound by memory.  The least that has to be moved, in bytes per token of E experts
 * and K choices, s being the size of an element:
 *   gate_forward       8 E + 8 K            logits read, probabilities written
 *   gate_backward      (4 + s) E + 12 K     probabilities read, gradients written
 *   choices in groups  4 E + 4 K            logits read, before gate_forward
 *   survivor_weights   12 K, and a sector of 32 for every probability that is looked up */
#include "reference/device/cuda/expert_row.cuh"
#include "reference/device/cuda/matching.cuh"

#include <float.h>
#include <math.h>

namespace mp {

constexpr int GATE_THREADS = 128;

template <class Layout> int64_t row_blocks(int64_t rows) {
    return pieces_of(rows, GATE_THREADS / Layout::LANES);
}

static int parts_of(const struct mp_gate_rule *rule) {
    return rule->prototypes > 0 ? rule->prototypes : 1;
}

static float scale_of(const struct mp_gate_rule *rule) {
    return rule->scale != 0.0f ? rule->scale : 1.0f;
}

template <class Layout> __device__ __forceinline__ int64_t row_of_group() {
    return (int64_t)blockIdx.x * (GATE_THREADS / Layout::LANES) + threadIdx.x / Layout::LANES;
}

/* ---- Forward ---- */

/* With prototypes a row is one of a token's, of as many experts as it has, and chooses one. */
struct gate_rows {
    int64_t rows;
    int experts, top_k, parts;
    struct mp_gate_rule rule;
    float scale;
    const float *logits;
    const int32_t *forced;
    float *probability, *kept;
    int32_t *choice;
    float *weight;
};

/* The first expert of a row. */
template <typename Arguments>
__device__ __forceinline__ int32_t first_expert(const Arguments &a, int64_t row) {
    return a.parts > 1 ? (int32_t)(row % a.parts) * a.experts : 0;
}

/* A choice of an expert so many numbers further on. */
__device__ __forceinline__ int32_t moved(int32_t choice, int32_t by) {
    return choice < 0 ? choice - by : choice + by;
}

/* The exponent is held above that of the smallest normal number. */
__device__ __forceinline__ float exponential(float logit, float largest) {
    float x = logit - largest;
    return expf(x < -87.0f ? -87.0f : x);
}

__device__ __forceinline__ float sigmoid(float logit) {
    return 1.0f / (1.0f + expf(-logit));
}

/* Uniform in (0, 1), from the bits of reference/base/random.h. */
constexpr uint64_t DRAW_SECOND = 0,
                   DRAW_GUMBEL = 1; /* streams; that of expert e: DRAW_GUMBEL + e */
__device__ __forceinline__ float uniform(const struct mp_gate_rule &rule, uint64_t stream,
                                         int64_t row) {
    const uint64_t token = (uint64_t)(rule.first_token + row);
    const uint64_t bits = mixed(mixed(mixed(rule.seed) ^ stream) ^ token);
    return ((float)(bits >> 41) + 0.5f) * 0x1p-23f;
}

/* A logit with Gumbel noise over the temperature, where the rule has one. */
__device__ __forceinline__ float noisy(const struct mp_gate_rule &rule, int64_t row, int expert,
                                       float logit) {
    if (!(rule.temperature > 0))
        return logit;
    const float noise = -logf(-logf(uniform(rule, DRAW_GUMBEL + (uint64_t)expert, row)));
    return (logit + noise) / rule.temperature;
}

__device__ __forceinline__ bool is_sigmoid(enum mp_gate_scores scores) {
    return scores == MP_SCORES_SIGMOID || scores == MP_SCORES_APART;
}

/* Whether weights are sigmoids, while probabilities are those over the sum of all. */
__device__ __forceinline__ bool weighs_sigmoids(const struct mp_gate_rule &rule) {
    return rule.scores == MP_SCORES_SIGMOID && !rule.renormalise;
}

/* A score that is not yet divided by the sum of all. */
__device__ __forceinline__ float score(enum mp_gate_scores scores, float logit, float largest) {
    return is_sigmoid(scores) ? sigmoid(logit) : exponential(logit, largest);
}

/* Choices, dealt to the lanes in turn; `best` is the first.  They are those of the largest logits,
 * which are the largest probabilities, too, whatever the rounding of exponentials makes equal. */
template <class Layout>
__device__ __forceinline__ void choose(int top_k, candidate best, uint32_t (&key)[Layout::VALUES],
                                       int32_t (&chosen)[Layout::SLOTS]) {
#pragma unroll
    for (int slot = 0; slot < Layout::SLOTS; slot++) {
#pragma unroll 1
        for (int lane = 0; lane < Layout::LANES && slot * Layout::LANES + lane < top_k; lane++) {
            if (slot + lane > 0) {
                leave_out<Layout>(best.expert, key);
                best = largest<Layout>(key);
            }
            if (lane == Layout::lane())
                chosen[slot] = best.expert;
        }
    }
}

/* Whether the token takes its choice j, of probability `share`, `sum` being that of all. */
__device__ __forceinline__ bool takes(const gate_rows &a, int64_t row, int j, float share,
                                      float sum) {
    if (a.forced || j == 0)
        return true;
    if (a.rule.random_second && 2 * share < uniform(a.rule, DRAW_SECOND, row) * sum)
        return false;
    return !(share < a.rule.least_weight);
}

/* Weights of the choices that this lane was dealt. */
template <class Layout>
__device__ __forceinline__ void write_choices(const gate_rows &a, int64_t row, float most,
                                              float inverse, int32_t (&chosen)[Layout::SLOTS]) {
    const bool there = row < a.rows;
    float share[Layout::SLOTS], sum = 0;
#pragma unroll
    for (int slot = 0; slot < Layout::SLOTS; slot++) {
        share[slot] = 0;
        if (there && slot * Layout::LANES + Layout::lane() < a.top_k) {
            const int expert = expert_of(chosen[slot]);
            const float logit = noisy(a.rule, row, expert, a.logits[row * a.experts + expert]);
            share[slot] = score(a.rule.scores, logit, most) * inverse;
        }
        sum += share[slot];
    }
    sum = a.rule.renormalise        ? group_sum<Layout::LANES>(sum)
          : weighs_sigmoids(a.rule) ? inverse
                                    : 1.0f;
#pragma unroll
    for (int slot = 0; slot < Layout::SLOTS; slot++) {
        const int j = slot * Layout::LANES + Layout::lane();
        if (there && j < a.top_k) {
            const bool taken = chosen[slot] >= 0 && takes(a, row, j, share[slot], sum);
            const int32_t expert = expert_of(chosen[slot]) + first_expert(a, row);
            a.choice[row * a.top_k + j] = taken ? expert : -1 - expert;
            a.weight[row * a.top_k + j] = taken ? a.scale * share[slot] / sum : 0.0f;
        }
    }
}

/* The first and the last choice of a row that has forced ones, and its groups' size. */
struct group_choices {
    int first, last, size;
};

__device__ __forceinline__ group_choices choices_of(const int32_t *choice, int top_k, int experts,
                                                    int groups) {
    return {expert_of(choice[0]), expert_of(choice[top_k - 1]), experts / groups};
}

/* By how much it exceeds the last choice's, if it is of another group than the first. */
__device__ __forceinline__ float excess(const group_choices &c, int expert, float probability,
                                        float last) {
    return expert / c.size != c.first / c.size && probability > last ? probability - last : 0.0f;
}

/* What backward needs of the row: see mp_gate_keeps. */
template <class Layout>
__device__ __forceinline__ void keep(const gate_rows &a, int64_t row, float most, float sum,
                                     const float (&probability)[Layout::VALUES]) {
    float kept = a.rule.scores == MP_SCORES_SIGMOID ? sum : most + logf(sum);
    if (a.rule.alignment_slope > 0) {
        const bool there = row < a.rows;
        const int64_t at = there ? row : 0;
        const group_choices c =
            choices_of(a.forced + at * a.top_k, a.top_k, a.experts, a.rule.groups);
        const float last = exponential(a.logits[at * a.experts + c.last], most) / sum;
        kept = 0;
#pragma unroll
        for (int i = 0; i < Layout::VALUES; i++)
            if (there && Layout::expert(i) < a.experts)
                kept += excess(c, Layout::expert(i), probability[i], last);
        kept = group_sum<Layout::LANES>(kept);
    }
    if (row < a.rows && Layout::lane() == 0)
        a.kept[row] = kept;
}

/* Whether a rule is none but softmax and the largest logits, as nearly every model has it. */
static bool is_plain(const gate_rows &a) {
    return a.rule.scores == MP_SCORES_SOFTMAX && !(a.rule.temperature > 0) && a.parts == 1 &&
           !a.forced && !a.rule.random_second && !(a.rule.alignment_slope > 0);
}

/* Plain rules have kernels of their own, in which the compiler leaves out what the others need:
 * instructions of those rules, even passed over, take longer than memory does. */
template <class Layout, bool PLAIN>
__global__ void __launch_bounds__(GATE_THREADS) gate_forward_kernel(const gate_rows given) {
    gate_rows a = given;
    if (PLAIN) {
        a.rule.scores = MP_SCORES_SOFTMAX;
        a.rule.temperature = a.rule.alignment_slope = 0;
        a.rule.random_second = false;
        a.parts = 1;
        a.forced = nullptr;
    }
    const int64_t row = row_of_group<Layout>();
    const int experts = row < a.rows ? a.experts : 0;
    const bool sigmoids = is_sigmoid(a.rule.scores);
    float value[Layout::VALUES];
    uint32_t key[Layout::VALUES];
    load_row<Layout>(a.logits + row * a.experts, experts, -INFINITY, value);
#pragma unroll
    for (int i = 0; i < Layout::VALUES; i++) {
        value[i] = noisy(a.rule, row, Layout::expert(i), value[i]);
        key[i] = Layout::expert(i) < experts ? rising_key(value[i]) : 0;
    }

    const candidate best = largest<Layout>(key);
    const float most = value_of_key(best.key);
    float sum = 0; /* absent values add e^-87 to a sum of at least 1: nothing */
#pragma unroll
    for (int i = 0; i < Layout::VALUES; i++) {
        value[i] = sigmoids ? sigmoid(value[i]) : exponential(value[i], most);
        sum += value[i];
    }
    sum = group_sum<Layout::LANES>(sum);
    const float inverse = a.rule.scores == MP_SCORES_APART ? 1.0f : 1.0f / sum;
#pragma unroll
    for (int i = 0; i < Layout::VALUES; i++)
        value[i] *= inverse;
    store_row<Layout>(a.probability + row * a.experts, experts, value);
    if (a.kept)
        keep<Layout>(a, row, most, sum, value);

    int32_t chosen[Layout::SLOTS] = {};
    if (!a.forced)
        choose<Layout>(a.top_k, best, key, chosen);
#pragma unroll
    for (int slot = 0; slot < Layout::SLOTS; slot++) {
        const int j = slot * Layout::LANES + Layout::lane();
        if (a.forced) {
            if (row < a.rows && j < a.top_k)
                chosen[slot] = moved(a.forced[row * a.top_k + j], -first_expert(a, row));
        } else if (isnan(sum)) {
            chosen[slot] = j; /* a row with NaN chooses experts 0, 1, ... */
        }
    }
    write_choices<Layout>(a, row, most, inverse, chosen);
}

/* ---- Choices in groups, with bias ----
 *
 * A warp per token, with its keys in shared memory. */

constexpr int GROUP_WARPS = GATE_THREADS / WARP;

struct grouped_rows {
    int tokens, experts, top_k;
    struct mp_gate_rule rule;
    const float *logits, *bias;
    int32_t *choice;
};

/* The sum of a group's `best` largest keys; one lane. */
__device__ __forceinline__ float score_of_group(const float *key, int size, int best) {
    float held[MOST_CHOICES], sum = 0;
    int count = 0;
    for (int e = 0; e < size; e++) {
        if (best >= size) {
            sum += key[e];
            continue;
        }
        if (count == best && !(key[e] > held[count - 1]))
            continue;
        count = count < best ? count + 1 : count;
        int place = count - 1;
        for (; place > 0 && key[e] > held[place - 1]; place--)
            held[place] = held[place - 1];
        held[place] = key[e];
    }
    for (int j = 0; j < count; j++)
        sum += held[j];
    return sum;
}

/* Lowers the keys of groups that are not among the best. */
__device__ __forceinline__ void close_groups(const struct mp_gate_rule &rule, int experts,
                                             float *key, float *score) {
    const int lane = (int)threadIdx.x % WARP, size = experts / rule.groups;
    for (int g = lane; g < rule.groups; g += WARP)
        score[g] = score_of_group(key + g * size, size, rule.group_best);
    __syncwarp();
    for (int kept = 0; kept < rule.groups_kept; kept++) {
        const int best = largest_of(score, rule.groups);
        __syncwarp();
        if (lane == 0 && best >= 0)
            score[best] = NAN; /* is kept */
        __syncwarp();
    }
    for (int e = lane; e < experts; e += WARP)
        if (!isnan(score[e / size]))
            key[e] = -INFINITY;
    __syncwarp();
}

__global__ void __launch_bounds__(GATE_THREADS) choose_in_groups_kernel(const grouped_rows a) {
    __shared__ float keys[GROUP_WARPS][MOST_EXPERTS], scores[GROUP_WARPS][MOST_EXPERTS];
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    const int64_t token = (int64_t)blockIdx.x * GROUP_WARPS + warp;
    float *key = keys[warp], *score_of = scores[warp];
    if (token >= a.tokens)
        return;
    const float *logits = a.logits + token * a.experts;
    const int best = largest_of(logits, a.experts);
    const float most = best < 0 ? 0.0f : logits[best];
    for (int e = lane; e < a.experts; e += WARP)
        key[e] = score(a.rule.scores, logits[e], most) + (a.bias ? a.bias[e] : 0.0f);
    __syncwarp();
    if (a.rule.groups > 0)
        close_groups(a.rule, a.experts, key, score_of);
    for (int j = 0; j < a.top_k; j++) {
        const int chosen = largest_of(key, a.experts);
        __syncwarp();
        if (lane == 0) {
            a.choice[token * a.top_k + j] = chosen < 0 ? j : chosen;
            if (chosen >= 0)
                key[chosen] = -INFINITY;
        }
        __syncwarp();
    }
}

/* ---- Choices that no logits make ---- */

__global__ void __launch_bounds__(GATE_THREADS) forced_kernel(const gate_rows a) {
    const int64_t token = (int64_t)blockIdx.x * GATE_THREADS + threadIdx.x;
    if (token >= a.rows)
        return;
    const int32_t expert = a.forced[token];
    a.probability[token * a.experts + expert_of(expert)] = 1.0f;
    a.choice[token] = expert;
    a.weight[token] = expert < 0 ? 0.0f : 1.0f;
}

static void forced_forward(struct mp_cuda *cuda, mp_stream stream, const gate_rows &a) {
    mp_cuda_note(cuda, "gate",
                 cudaMemsetAsync(a.probability, 0,
                                 (size_t)a.rows * (size_t)a.experts * sizeof(float),
                                 mp_cuda_stream(cuda, stream)));
    launch(cuda, "gate", stream, pieces_of(a.rows, GATE_THREADS), GATE_THREADS, forced_kernel, a);
}

static void gate_forward(struct mp_device *device, mp_stream stream, int tokens, int experts,
                         int top_k, const struct mp_gate_rule *rule, const float *logits,
                         const float *bias, const int32_t *forced, float *probability, float *kept,
                         int32_t *choice, float *weight) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    const int parts = parts_of(rule);
    if (!can_choose(cuda, experts, top_k))
        return;
    if (!forced && (bias || rule->groups > 0)) {
        const grouped_rows grouped = {tokens, experts, top_k, *rule, logits, bias, choice};
        launch(cuda, "gate, groups", stream, pieces_of(tokens, GROUP_WARPS), GATE_THREADS,
               choose_in_groups_kernel, grouped);
        forced = choice;
    }
    if (!forced && rule->matching == MP_MATCH_AUCTION) {
        auction(cuda, stream, tokens, experts, *rule, logits, choice, weight);
        forced = choice;
    }
    const gate_rows a = {(int64_t)tokens * parts,
                         experts / parts,
                         parts > 1 ? 1 : top_k,
                         parts,
                         *rule,
                         scale_of(rule),
                         logits,
                         forced,
                         probability,
                         kept,
                         choice,
                         weight};
    if (rule->scores == MP_SCORES_FORCED) {
        forced_forward(cuda, stream, a);
        return;
    }
    by_row(a.experts, are_aligned(ACCESS_BYTES, logits, probability), [&](auto layout) {
        using Layout = decltype(layout);
        launch(cuda, "gate", stream, row_blocks<Layout>(a.rows), GATE_THREADS,
               is_plain(a) ? gate_forward_kernel<Layout, true> : gate_forward_kernel<Layout, false>,
               a);
    });
    if (!forced && rule->matching == MP_MATCH_EXPERTS)
        experts_choose(cuda, stream, tokens, experts, top_k, *rule, probability, choice, weight);
}

/* ---- Backward ---- */

struct gate_gradient {
    int64_t rows;
    int experts, top_k, parts;
    struct mp_gate_rule rule;
    float scale;
    const float *probability, *kept;
    const int32_t *choice, *position;
    const float *weight, *dweight, *auxiliary;
    enum mp_element element; /* of dlogits */
    void *dlogits;
};

/* Gradients of the probabilities of the chosen experts through the weights, dealt to the lanes in
 * turn, expert -1 where none passes.  A renormalised weight is w_j = s p_j / sum, s being the
 * scale, hence dp_j = (s dw_j - sum_i dw_i w_i) / sum; where the survivors' sum is held at its
 * least, weights are probabilities times a constant. */
template <class Layout>
__device__ __forceinline__ void route_gradients(const gate_gradient &a, int64_t row,
                                                int32_t (&expert)[Layout::SLOTS],
                                                float (&gradient)[Layout::SLOTS]) {
    float sum = 0, common = 0;
#pragma unroll
    for (int slot = 0; slot < Layout::SLOTS; slot++) {
        const int j = slot * Layout::LANES + Layout::lane();
        const int64_t route = row * a.top_k + j;
        expert[slot] = -1;
        gradient[slot] = 0;
        if (row < a.rows && j < a.top_k && (!a.position || a.position[route] >= 0)) {
            expert[slot] = expert_of(a.choice[route]) - first_expert(a, row);
            gradient[slot] = a.choice[route] < 0 ? 0.0f : a.scale * a.dweight[route];
            sum += a.probability[row * a.experts + expert[slot]];
            common += a.dweight[route] * a.weight[route];
        }
    }
    if (!a.position && !a.rule.renormalise)
        return;
    sum = group_sum<Layout::LANES>(sum);
    common = group_sum<Layout::LANES>(common);
    if (a.position && sum < FLT_MIN) {
        sum = FLT_MIN;
        common = 0;
    }
#pragma unroll
    for (int slot = 0; slot < Layout::SLOTS; slot++)
        gradient[slot] = (gradient[slot] - common) / sum;
}

/* Adds that of the alignment loss to the row. */
template <class Layout>
__device__ __forceinline__ void add_alignment(const gate_gradient &a, int64_t row,
                                              const float (&probability)[Layout::VALUES],
                                              float (&gradient)[Layout::VALUES]) {
    const int64_t at = row < a.rows ? row : 0;
    const group_choices c = choices_of(a.choice + at * a.top_k, a.top_k, a.experts, a.rule.groups);
    const float last = a.probability[at * a.experts + c.last];
    float outside = 0;
#pragma unroll
    for (int i = 0; i < Layout::VALUES; i++)
        if (Layout::expert(i) < a.experts &&
            excess(c, Layout::expert(i), probability[i], last) > 0) {
            gradient[i] += a.rule.alignment_slope;
            outside += 1;
        }
    outside = group_sum<Layout::LANES>(outside);
#pragma unroll
    for (int i = 0; i < Layout::VALUES; i++)
        if (Layout::expert(i) == c.last)
            gradient[i] -= a.rule.alignment_slope * outside;
}

/* Adds them to the row. */
template <class Layout>
__device__ __forceinline__ void add_route_gradients(int top_k,
                                                    const int32_t (&expert)[Layout::SLOTS],
                                                    const float (&gradient)[Layout::SLOTS],
                                                    float (&row)[Layout::VALUES]) {
#pragma unroll
    for (int slot = 0; slot < Layout::SLOTS; slot++) {
#pragma unroll 1
        for (int lane = 0; lane < Layout::LANES && slot * Layout::LANES + lane < top_k; lane++) {
            const int from = Layout::in_group(lane);
            const int here = __shfl_sync(ALL_LANES, expert[slot], from);
            const float added = __shfl_sync(ALL_LANES, gradient[slot], from);
#pragma unroll
            for (int i = 0; i < Layout::VALUES; i++)
                if (Layout::expert(i) == here)
                    row[i] += added;
        }
    }
}

/* Elements of another type differ in their store alone: no reason for kernels of their own. */
template <class Layout>
__global__ void __launch_bounds__(GATE_THREADS) gate_backward_kernel(const gate_gradient a) {
    const int64_t row = row_of_group<Layout>();
    const int experts = row < a.rows ? a.experts : 0;
    float probability[Layout::VALUES], gradient[Layout::VALUES];
    int32_t expert[Layout::SLOTS];
    float added[Layout::SLOTS];
    load_row<Layout>(a.probability + row * a.experts, experts, 0, probability);
    load_row<Layout>(a.auxiliary + first_expert(a, row), experts, 0, gradient);
    if (a.rule.alignment_slope > 0)
        add_alignment<Layout>(a, row, probability, gradient);
    route_gradients<Layout>(a, row, expert, added);
    if (!weighs_sigmoids(a.rule))
        add_route_gradients<Layout>(a.top_k, expert, added, gradient);

    float product = 0;
#pragma unroll
    for (int i = 0; i < Layout::VALUES; i++)
        product += probability[i] * gradient[i];
    product = group_sum<Layout::LANES>(product);
    const float kept = a.kept && row < a.rows ? a.kept[row] : 0.0f;
    product -= 2.0f * a.rule.z_slope * kept; /* of the logarithm of the sum of exponentials */
    const bool apart = a.rule.scores == MP_SCORES_APART;
    product = apart ? 0.0f : product;
    const float sum = apart ? 1.0f : a.rule.scores == MP_SCORES_SIGMOID ? kept : 0.0f;
    const float temperature = a.rule.temperature > 0 ? a.rule.temperature : 1.0f;
    if (weighs_sigmoids(a.rule)) { /* they don't depend on the sum of all */
#pragma unroll
        for (int slot = 0; slot < Layout::SLOTS; slot++)
            added[slot] *= kept;
        add_route_gradients<Layout>(a.top_k, expert, added, gradient);
    }
#pragma unroll
    for (int i = 0; i < Layout::VALUES; i++)
        gradient[i] =
            probability[i] * (gradient[i] - product) * (1.0f - probability[i] * sum) / temperature;
    if (a.element == MP_FLOAT32)
        store_row<Layout>(static_cast<float *>(a.dlogits) + row * a.experts, experts, gradient);
    else
        store_row<Layout>(static_cast<__nv_bfloat16 *>(a.dlogits) + row * a.experts, experts,
                          gradient);
}

static void gate_backward(struct mp_device *device, mp_stream stream, int tokens, int experts,
                          int top_k, const struct mp_gate_rule *rule, const float *probability,
                          const float *kept, const int32_t *choice, const int32_t *position,
                          const float *weight, const float *dweight, const float *auxiliary,
                          void *dlogits) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    const int parts = parts_of(rule);
    if (!can_choose(cuda, experts, top_k))
        return;
    const size_t element_bytes = mp_cuda_element_bytes(cuda);
    if (rule->scores == MP_SCORES_FORCED) {
        mp_cuda_note(cuda, "gate, backward",
                     cudaMemsetAsync(dlogits, 0, (size_t)tokens * (size_t)experts * element_bytes,
                                     mp_cuda_stream(cuda, stream)));
        return;
    }
    const gate_gradient a = {(int64_t)tokens * parts,
                             experts / parts,
                             parts > 1 ? 1 : top_k,
                             parts,
                             *rule,
                             scale_of(rule),
                             probability,
                             kept,
                             choice,
                             position,
                             weight,
                             dweight,
                             auxiliary,
                             cuda->device.element,
                             dlogits};
    const bool aligned = are_aligned(ACCESS_BYTES, probability, auxiliary) &&
                         are_aligned(4 * element_bytes, dlogits);
    by_row(a.experts, aligned, [&](auto layout) {
        using Layout = decltype(layout);
        launch(cuda, "gate, backward", stream, row_blocks<Layout>(a.rows), GATE_THREADS,
               gate_backward_kernel<Layout>, a);
    });
}

/* ---- Weights of survivors ---- */

struct survivors {
    int tokens, experts, top_k;
    float scale;
    const float *probability;
    const int32_t *choice, *position;
    float *weight;
};

__global__ void __launch_bounds__(GATE_THREADS) survivor_weights_kernel(const survivors a) {
    const int64_t token = (int64_t)blockIdx.x * GATE_THREADS + threadIdx.x;
    if (token >= a.tokens)
        return;
    const float *probability = a.probability + token * a.experts;
    const int64_t first = token * a.top_k;
    float share[MOST_CHOICES], sum = 0;
#pragma unroll
    for (int j = 0; j < MOST_CHOICES; j++) {
        share[j] = 0;
        if (j < a.top_k && a.position[first + j] >= 0)
            share[j] = probability[a.choice[first + j]];
        sum += share[j];
    }
    sum = sum < FLT_MIN ? FLT_MIN : sum;
#pragma unroll
    for (int j = 0; j < MOST_CHOICES; j++)
        if (j < a.top_k)
            a.weight[first + j] = a.scale * share[j] / sum;
}

static void survivor_weights(struct mp_device *device, mp_stream stream, int tokens, int experts,
                             int top_k, const struct mp_gate_rule *rule, const float *probability,
                             const int32_t *choice, const int32_t *position, float *weight) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    if (!can_choose(cuda, experts, top_k))
        return;
    const survivors a = {tokens,      experts, top_k,    scale_of(rule),
                         probability, choice,  position, weight};
    launch(cuda, "survivors' weights", stream, pieces_of(tokens, GATE_THREADS), GATE_THREADS,
           survivor_weights_kernel, a);
}

} // namespace mp

void mp_cuda_install_gate(struct mp_device_operations *operations) {
    operations->gate_forward = mp::gate_forward;
    operations->gate_backward = mp::gate_backward;
    operations->survivor_weights = mp::survivor_weights;
}
