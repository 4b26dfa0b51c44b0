/* Device: where tensors live and mathematics happens.
 *
 * Back ends behind the same table of operations: cpu (oneDNN) and cuda (cuBLAS and kernels).  All
 * operations are queued on a stream and return before the work is done (the cpu back end has done
 * it already); nothing synchronises but stream_synchronize and copies between host and device.
 * Operations return nothing: the first failure is kept in the device and reported by
 * mp_device_check, as on a GPU.  No operation allocates.
 *
 * Shapes are written [rows][columns], row-major.  Letters: N tokens of a rank (batch * sequence), D
 * model width, F expert width, E experts, K experts per token, V vocabulary.
 *
 * Types: what is declared float is fp32 on every device.  Matrices declared void have the device's
 * element type: activations, their gradients, and the working copies of parameters that products
 * read.  On a device of MP_FLOAT32 both are the same.  Sums are formed in fp32 whatever the type.
 *
 * Arrays named "host" are read during the call; all others are device memory, borrowed until the
 * stream has passed the operation.  Outputs never overlap inputs unless said. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reference/base/error.h"

struct mp_device;
typedef struct mp_device_stream *mp_stream; /* in-order queue; NULL is the default stream */
typedef struct mp_device_event *mp_event;

enum mp_element { MP_FLOAT32, MP_BFLOAT16 };

enum { MP_CHOICES_LIMIT = 16 }; /* of a token */

enum mp_grouped_gemm {
    MP_GROUPED_FORWARD,        /* out[g]    = in[g] * weight[g]              (rows x columns_out) */
    MP_GROUPED_INPUT_GRADIENT, /* in[g]     = out[g] * transpose(weight[g])  (rows x columns_in)  */
    MP_GROUPED_WEIGHT_GRADIENT /* weight[g] = transpose(in[g]) * out[g]      (in x out)           */
};

struct mp_attention_shape {
    int batch;    /* sequences, B */
    int sequence; /* tokens of each, S; N = B * S */
    int heads;    /* H; D = H * head_width */
    int head_width;
};

struct mp_adamw {
    float learning_rate, beta1, beta2, epsilon, weight_decay; /* decay is decoupled */
    int64_t step; /* 1 for the first update: bias correction */
};

/* What AdamW changes of one matrix of weights, of as many elements each: see adamw below. */
struct mp_weight_state {
    float *parameter, *first, *second;
    void *working;
};

/* Token rows and routes.  Route i = t * K + j is token t's j-th choice: an expert, or -1 - e for an
 * expert e that the token had for this choice and does not take.  Such a route has weight 0, no row
 * (position -1) and no place in counts; weights that are divided by their sum count its
 * probability, as GShard's do. */
static inline int32_t mp_choice_expert(int32_t choice) {
    return choice < 0 ? -1 - choice : choice;
}

/* Who comes first where routes are not taken token by token. */
enum mp_route_sort {
    MP_SORT_BY_CHOICE,      /* all first choices, then all second ones, ... */
    MP_SORT_BY_PROBABILITY, /* the highest probability of the chosen expert */
    MP_SORT_AT_RANDOM       /* the smallest of 32-bit numbers drawn for the routes */
};

/* What a gate makes of a row of logits: its scores, called probabilities. */
enum mp_gate_scores {
    MP_SCORES_SOFTMAX, /* softmax, of all experts or of each prototype's */
    MP_SCORES_SIGMOID, /* sigmoids, divided by their sum over all experts */
    MP_SCORES_APART,   /* sigmoids, each expert's for itself; weights are not divided, no losses */
    MP_SCORES_FORCED   /* 1 for the forced choice, 0 for all others: no gradient, top 1 */
};
/* Who chooses where `together` tokens decide as one, from all their scores. */
enum mp_gate_matching {
    MP_MATCH_NONE, /* every token for itself */
    /* Tokens bid for experts, each of which has as many as the others (Bertsekas and Castanon,
     * Computational Optimization and Applications 1, 1992: the auction with similar objects).  An
     * expert's price is the lowest bid among its tokens, 0 while there is room.  The first token
     * without an expert bids for that of the largest logit less price: by so much more than the
     * price as that exceeds the second best, and a step; where there is no room, the lowest bid
     * goes and its token is the next.  So the sum of logits is less than the largest possible by at
     * most a step per token.  After MP_AUCTION_BIDS bids per token experts without room are out. */
    MP_MATCH_AUCTION,
    /* An expert takes the `capacity` tokens of largest probability, ties to the earlier; of the
     * experts that take it a token has the top_k of largest probability.  The other choices of the
     * token are not taken, and of any experts. */
    MP_MATCH_EXPERTS
};
enum { MP_AUCTION_BIDS = 100 };
/* What a gate's balancing loss counts over: the batch of all ranks, or each rank's part or each
 * sequence for itself, and then the mean. */
enum mp_gate_level { MP_BALANCE_BATCH, MP_BALANCE_SEQUENCE, MP_BALANCE_RANK };
/* What it counts of the choices. */
enum mp_gate_counts { MP_COUNT_FIRSTS, MP_COUNT_ALL, MP_COUNT_NONE };
/* A gate in numbers.  For kernels zeroes are a softmax whose weights are probabilities. */
struct mp_gate_rule {
    enum mp_gate_scores scores;
    bool renormalise;   /* a token's weights are divided by their sum; else sigmoids are whole */
    bool keeps_weights; /* nobody divides them, of those that are not dropped neither */
    float scale;        /* of sigmoids, or what was divided: times this; 0: 1 */
    /* Consecutive experts in so many prototypes, equal in size: the scores are those of each, and a
     * token chooses one in each, so that there are K of them; 0: no prototypes. */
    int prototypes;
    /* Consecutive experts in so many groups, equal in size, 0 for none: a token chooses among the
     * `groups_kept` best, a group being as good as its `group_best` largest keys, summed.  Keys are
     * what largest ones are chosen of: scores, sigmoids plus bias. */
    int groups, groups_kept, group_best;
    /* Losses of a token beside those linear in probabilities, each times a factor that is its
     * weight over the number of tokens of all ranks: the squared logarithm of the sum of
     * exponentials (ST-MoE's router z-loss; softmax without prototypes); and by how much
     * probabilities outside of the first choice's group exceed that of the last choice, summed
     * (HetuMoE's alignment loss).  One of them at most. */
    float z_slope, alignment_slope;
    /* Choices after the first that a token does not take.  `random_second`, of two choices: the
     * second is taken with the probability min(1, 2 w), w being its weight (GShard, algorithm 1).
     * `least_weight`: those of a smaller probability are not taken; 0: all are. */
    bool random_second;
    float least_weight;
    /* Neighbouring tokens that decide together (0 where each does for itself), and their experts'
     * capacity.  An auction's step is `accuracy` times the difference between the largest and the
     * smallest of their logits, at least 1e-4 (HetuMoE and fairseq: 1/50). */
    enum mp_gate_matching matching;
    int together, capacity;
    float accuracy;
    /* Above 0: scores are of (logit + Gumbel noise) / temperature (softmax without prototypes;
     * Jang et al., ICLR 2017).  Over the first `anneal` iterations, whoever gives kernels the rule
     * leads it from `hot` to `cold`. */
    float temperature, hot, cold;
    int64_t anneal;
    /* What is drawn for a token depends on these and its number among the tokens of all ranks: the
     * seed is another in every layer and iteration, the number of the first token here is each
     * rank's own. */
    uint64_t seed;
    int64_t first_token;

    /* What is made of statistics.  The balancing loss is E / loss_divisor times the sum over
     * experts of choices per token times mean probability; after an iteration a bias changes by
     * bias_rate towards those that had fewer routes than the mean (0: there is none). */
    enum mp_gate_counts loss_counts;
    int loss_divisor;
    enum mp_gate_level loss_level;
    float bias_rate;
};
/* Whether a token may have fewer experts than choices. */
static inline bool mp_gate_takes_fewer(const struct mp_gate_rule *rule) {
    return rule->random_second || rule->least_weight > 0 || rule->matching == MP_MATCH_EXPERTS;
}
/* Whether a gate chooses otherwise than by its largest scores. */
static inline bool mp_gate_has_own_choices(const struct mp_gate_rule *rule) {
    return rule->scores == MP_SCORES_FORCED || rule->prototypes > 0 || rule->groups > 0 ||
           rule->bias_rate > 0 || rule->temperature > 0 || rule->matching ||
           mp_gate_takes_fewer(rule);
}
/* Whether a gate keeps a number per token from forward to backward: the logarithm of the sum of
 * exponentials, the alignment loss, or the sum of sigmoids. */
static inline bool mp_gate_keeps(const struct mp_gate_rule *rule) {
    return rule->scores == MP_SCORES_SIGMOID || rule->z_slope > 0 || rule->alignment_slope > 0;
}

struct mp_device_operations {
    const char *name; /* "cpu", "cuda" */
    void (*destroy)(struct mp_device *device);
    void (*describe)(const struct mp_device *device, char *text, size_t size);

    /* Memory: 64-byte aligned, not cleared.  NULL when there is none left; cuda then keeps a
     * sentence with the numbers for mp_device_check. */
    void *(*allocate)(struct mp_device *device, size_t bytes);
    void (*release)(struct mp_device *device, void *memory); /* accepts NULL */
    /* Host memory that copies to and from this device are fastest with (page-locked). */
    void *(*host_allocate)(struct mp_device *device, size_t bytes);
    void (*host_release)(struct mp_device *device, void *memory); /* accepts NULL */
    /* Bytes that `allocate` has given out, now and at most so far; -1 where nobody counts. */
    void (*memory_used)(const struct mp_device *device, int64_t *now, int64_t *most);
    /* Between host and device in either direction; synchronises the stream. */
    void (*copy_to_host)(struct mp_device *, mp_stream, void *host, const void *from, size_t bytes);
    void (*copy_from_host)(struct mp_device *, mp_stream, void *to, const void *host, size_t bytes);
    /* Queued: `to` and `from` may also be memory of host_allocate. */
    void (*copy)(struct mp_device *, mp_stream, void *to, const void *from, size_t bytes);
    void (*zero)(struct mp_device *, mp_stream, void *memory, size_t bytes);

    /* Streams and events. */
    /* urgency: 0 is that of the default stream; work of a more urgent one goes first where the
     * device has a choice. */
    int (*stream_create)(struct mp_device *, int urgency, mp_stream *stream,
                         struct mp_error *error);
    void (*stream_destroy)(struct mp_device *, mp_stream stream);
    void (*stream_synchronize)(struct mp_device *, mp_stream stream);
    int (*event_create)(struct mp_device *, mp_event *event, struct mp_error *error);
    void (*event_destroy)(struct mp_device *, mp_event event);
    void (*event_record)(struct mp_device *, mp_event event, mp_stream stream);
    void (*stream_wait)(struct mp_device *, mp_stream stream, mp_event event);
    void (*event_synchronize)(struct mp_device *, mp_event event); /* the host waits */
    bool (*event_done)(struct mp_device *, mp_event event);        /* never blocks */
    /* When the stream passed the event, on the clock of mp_clock_ns (profiler/record): -1 if that
     * has not happened.  Good to a microsecond or so; times of one device order as they happened.
     */
    int64_t (*event_time)(struct mp_device *, mp_event event);
    /* What the back end's own library calls the stream (a cudaStream_t); NULL on cpu. */
    void *(*native_stream)(struct mp_device *, mp_stream stream);

    /* c[m][n] = alpha * op(a) * op(b) + beta * c; op transposes when its flag is set; leading
     * dimensions are those of the stored matrices.  2 * m * n * k flop.
     * Sums are fp32.  Where beta is not 0 and c is bf16, the product may be rounded to bf16 before
     * c is added, as some kernels of cuBLAS do, besides the result: off by up to half a unit of
     * the product more.  What is to be added up exactly takes gemm_float. */
    void (*gemm)(struct mp_device *, mp_stream, bool transpose_a, bool transpose_b, int m, int n,
                 int k, float alpha, const void *a, int lda, const void *b, int ldb, float beta,
                 void *c, int ldc);
    /* The same with c in fp32: gradients of parameters, and logits. */
    void (*gemm_float)(struct mp_device *, mp_stream, bool transpose_a, bool transpose_b, int m,
                       int n, int k, float alpha, const void *a, int lda, const void *b, int ldb,
                       float beta, float *c, int ldc);

    /* Grouped GEMM over experts (MegaBlocks, MLSys 2023, section 4: the operation).
     *   host rows [groups]       rows of each group, 0 allowed
     *   in        [sum][columns_in]    groups packed one after another, no padding
     *   out       [sum][columns_out]
     *   host weight [groups]     pointers to [columns_in][columns_out] each; elements, but float
     *                            for WEIGHT_GRADIENT
     * The kind says which of the three is written; it is overwritten, or added to, as gemm does,
     * when `accumulate`.  WEIGHT_GRADIENT with 0 rows gives zeros (or leaves the sum as it was).
     * 2 * sum * columns_in * columns_out flop.  At most as many weights as the limits have experts.
     *
     * Groups that follow each other may have the same weight, whose gradient is then their sum.
     * The cpu back end multiplies each of them apart and adds complete products, so that a group
     * gives the same bits whatever it is computed with, and two groups the same sum wherever their
     * products are added; cuda takes them together. */
    void (*grouped_gemm)(struct mp_device *, mp_stream, enum mp_grouped_gemm kind, int groups,
                         const int rows[], int columns_in, int columns_out, void *in,
                         void *const weight[], void *out, bool accumulate);
    /* AdamW with the gradients that WEIGHT_GRADIENT would write there, for weights that get no
     * others in this step: they get to no memory (LOMO, Lv and others, ACL 2024, section 3.1: the
     * idea, for SGD).
     *   host state [groups]   of groups that follow each other, too, as `weight` is
     * Only for what can_update_grouped says, and matrices that begin at multiples of 16 bytes
     * (MP_EINVAL); both are NULL where a back end can't do any. */
    void (*grouped_update)(struct mp_device *, mp_stream, int groups, const int rows[],
                           int columns_in, int columns_out, void *in, void *out,
                           const struct mp_weight_state state[], const struct mp_adamw *settings);
    /* Whether so many weights of this size can be updated so, and fast. */
    bool (*can_update_grouped)(const struct mp_device *, int weights, int columns_in,
                               int columns_out);

    /* y = (x - mean) * rstd * gain + bias per row; epsilon 1e-5; population variance.
     * x, y [rows][width]; mean, rstd [rows] are kept for backward. */
    void (*layer_norm_forward)(struct mp_device *, mp_stream, int rows, int width, const void *x,
                               const float *gain, const float *bias, void *y, float *mean,
                               float *rstd);
    /* dx += gradient of x (the residual's gradient is already there); dgain, dbias: theirs. */
    void (*layer_norm_backward)(struct mp_device *, mp_stream, int rows, int width, const void *x,
                                const float *gain, const float *mean, const float *rstd,
                                const void *dy, void *dx, float *dgain, float *dbias);

    /* Causal multi-head attention, scale 1/sqrt(head_width).
     *   qkv [N][3 * D]: per token all heads' q, then k, then v.  out [N][D].
     *   logsumexp [B][H][S]: kept for backward, which recomputes the probabilities. */
    void (*attention_forward)(struct mp_device *, mp_stream, const struct mp_attention_shape *shape,
                              const void *qkv, void *out, float *logsumexp);
    /* The same behind `context` tokens of every sequence whose keys and values are cached, and
     * nothing is kept for backward.  Those of these tokens get into the cache behind them:
     *   cache [B][H][2][places][head_width]: a head's keys, then its values.
     * NULL where a back end has none; its limits need a sequence of context + S tokens. */
    void (*attention_cached)(struct mp_device *, mp_stream, const struct mp_attention_shape *shape,
                             int context, int places, const void *qkv, void *cache, void *out);
    /* dqkv is overwritten. */
    void (*attention_backward)(struct mp_device *, mp_stream,
                               const struct mp_attention_shape *shape, const void *qkv,
                               const void *out, const float *logsumexp, const void *dout,
                               void *dqkv);

    /* GELU, tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).  y may be x. */
    void (*gelu_forward)(struct mp_device *, mp_stream, size_t count, const void *x, void *y);
    /* dx = dy * gelu'(x); dx may be dy.  If `y` is not NULL it also gets gelu(x), so that forward
     * need not keep it. */
    void (*gelu_backward)(struct mp_device *, mp_stream, size_t count, const void *x,
                          const void *dy, void *dx, void *y);

    /* Softmax cross-entropy over rows: loss[r] = logsumexp - logit[target], and gradient[r] =
     * scale * (softmax - onehot), elements; it may be logits where elements are fp32.  target and
     * loss are device [rows]. */
    void (*cross_entropy)(struct mp_device *, mp_stream, int rows, int vocabulary,
                          const float *logits, const int32_t *target, float scale, float *loss,
                          void *gradient);

    /* Gate, as its rule says: probability = softmax(logits) over all experts; choice = the top_k
     * largest, ties to the lower id, in descending order, unless `forced` ([N][K], device) gives
     * them, as taken or not; weight = their probabilities, divided by their sum when the rule
     * renormalises, 0 where a choice is not taken.
     *   logits, probability [N][E]; choice [N][K] int32; weight [N][K];
     *   bias [E] is added to sigmoids where they choose, NULL: none;
     *   kept [N] as mp_gate_keeps has it, otherwise NULL.
     * With a matching the tokens are whole groups of rule->together.  E up to 1024, K up to
     * MP_CHOICES_LIMIT. */
    void (*gate_forward)(struct mp_device *, mp_stream, int tokens, int experts, int top_k,
                         const struct mp_gate_rule *rule, const float *logits, const float *bias,
                         const int32_t *forced, float *probability, float *kept, int32_t *choice,
                         float *weight);
    /* dlogits [N][E] = gradient through the weights plus that of an auxiliary loss linear in the
     * probabilities: d aux / d probability[t][e] = auxiliary[e] for every token (device [E]).
     * With `position` [N * K] the weights are those of survivor_weights, whether the rule
     * renormalises or not: only routes whose position is not -1 pass a gradient on.  Gates without
     * prototypes only. */
    void (*gate_backward)(struct mp_device *, mp_stream, int tokens, int experts, int top_k,
                          const struct mp_gate_rule *rule, const float *probability,
                          const float *kept, const int32_t *choice, const int32_t *position,
                          const float *weight, const float *dweight, const float *auxiliary,
                          void *dlogits);
    /* weight[i] = probability of route i over the sum of those of its token's routes whose position
     * is not -1, that sum being at least the smallest normal float, times the rule's scale; 0 where
     * the position is -1. */
    void (*survivor_weights)(struct mp_device *, mp_stream, int tokens, int experts, int top_k,
                             const struct mp_gate_rule *rule, const float *probability,
                             const int32_t *choice, const int32_t *position, float *weight);
    /* Choices of a gate that limits how many tokens go outside (FasterMoE's topology-aware gate, as
     * its code has it).  choice [N][2] = the two largest logits, ties to the
     * lower id, if the first of them is outside for at most `limit` tokens.  Otherwise the two
     * largest among inside experts for every token, and then, for the `limit` tokens of largest
     * logit among those with their first choice outside (ties to the lower token), that first
     * choice in the second place. host inside [E]   at least two experts are inside The choices are
     * for gate_forward's `forced`. */
    void (*limit_choices)(struct mp_device *, mp_stream, int tokens, int experts,
                          const float *logits, const bool inside[], int limit, int32_t *choice);
    /* routes[e] = routes of expert e over all K choices that are taken; firsts[e] = over first
     * ones; mass[e] = sum of probability[t][e] over tokens.  Device [E] each; overwritten. */
    void (*gate_statistics)(struct mp_device *, mp_stream, int tokens, int experts, int top_k,
                            const float *probability, const int32_t *choice, uint32_t *routes,
                            uint32_t *firsts, float *mass);

    /* order [N * K] = all routes, sorted as `sort` says; the earlier route comes first among equal
     * ones.  Route i draws the upper half of number i (from 0) of SplitMix64 (Steele, Lea, Flood,
     * OOPSLA 2014) started with `seed`. */
    void (*sort_routes)(struct mp_device *, mp_stream, int tokens, int top_k, int experts,
                        enum mp_route_sort sort, const float *probability, const int32_t *choice,
                        uint64_t seed, int32_t *order);

    /* Where each route's row goes in the send buffer: of those in `order` [routes], or of the first
     * ones, token by token, if that is NULL.  The routes of expert e are handed to its parts one
     * after another: host part_begin [E + 1] indexes parts; part p takes part_count[p] routes and
     * its first row is part_row[p].  Routes no part covers, or that are not taken, get -1.
     *   position   [N * K]  row of each of these routes; others stay as they are
     *   row_token  [rows]   token of each row (the inverse), -1 for a row without a route; rows 0:
     *                       those of routes are set, and others stay as they are */
    void (*route_positions)(struct mp_device *, mp_stream, int routes, int top_k, int experts,
                            const int32_t *choice, const int32_t *order, const int *part_begin,
                            const int *part_count, const int *part_row, int rows, int32_t *position,
                            int32_t *row_token);

    /* out[i] = in[index[i]], rows of `width`; zeros where index[i] is -1. */
    void (*gather_rows)(struct mp_device *, mp_stream, int rows, int width, const void *in,
                        const int32_t *index, void *out);
    /* out[index[i]] = in[i]; index is a permutation. */
    void (*scatter_rows)(struct mp_device *, mp_stream, int rows, int width, const void *in,
                         const int32_t *index, void *out);

    /* out[t] = residual[t] + sum over j of weight[t][j] * in[position[t][j]]; position -1 adds
     * nothing; weight NULL means 1; residual NULL means 0; out may be residual. */
    void (*combine_forward)(struct mp_device *, mp_stream, int tokens, int top_k, int width,
                            const void *in, const int32_t *position, const float *weight,
                            const void *residual, void *out);
    /* din[position[t][j]] = weight[t][j] * dout[t];
     * dweight[t][j] = dot(in[position[t][j]], dout[t]), 0 for position -1.  din may be in, unless
     * rows are `shared`: then routes with different j may have the same row, and din, which has
     * been zeroed, gets the sum of theirs. */
    void (*combine_backward)(struct mp_device *, mp_stream, int tokens, int top_k, int width,
                             const void *in, const int32_t *position, const float *weight,
                             const void *dout, bool shared, void *din, float *dweight);

    /* The same moves as products (gemm) with a matrix [rows][N], elements, in which a row has a
     * one, or a weight, where it is a token's: matrix[position[i]][i / K] = weight[i] of route i,
     * or 1 if weight is NULL; position -1 sets nothing.  The matrix has been zeroed. */
    void (*one_hot)(struct mp_device *, mp_stream, int tokens, int top_k, const int32_t *position,
                    const float *weight, void *matrix);
    /* dweight[i] = dmatrix[position[i]][i / K], fp32; 0 for position -1. */
    void (*one_hot_gradient)(struct mp_device *, mp_stream, int tokens, int top_k,
                             const int32_t *position, const float *dmatrix, float *dweight);

    /* out[n] = token_table[token[n]] + position_table[n % sequence], rows of `width`. */
    void (*embedding_forward)(struct mp_device *, mp_stream, int tokens, int sequence, int width,
                              const int32_t *token, const float *token_table,
                              const float *position_table, void *out);
    /* dtoken_table, dposition_table += the gradient. */
    void (*embedding_backward)(struct mp_device *, mp_stream, int tokens, int sequence, int width,
                               const int32_t *token, const void *dout, float *dtoken_table,
                               float *dposition_table);

    /* out[i] = a[i] + b[i]; out may be a or b. */
    void (*add)(struct mp_device *, mp_stream, size_t count, const float *a, const float *b,
                float *out);

    /* AdamW (Loshchilov and Hutter, ICLR 2019), as PyTorch computes it:
     *   p -= lr * decay * p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
     *   p -= lr * (m / (1 - b1^step)) / (sqrt(v / (1 - b2^step)) + epsilon)
     * `working` becomes p rounded to elements; it is `parameter` itself where elements are fp32, or
     * NULL where nothing reads it. */
    void (*adamw)(struct mp_device *, mp_stream, size_t count, const struct mp_adamw *settings,
                  float *parameter, const float *gradient, float *first, float *second,
                  void *working);
    /* to[i] = from[i] rounded to elements; `to` may be `from` where elements are fp32. */
    void (*to_elements)(struct mp_device *, mp_stream, size_t count, const float *from, void *to);
};

struct mp_device {
    const struct mp_device_operations *operations;
    struct mp_error error; /* first failure of a queued operation */
    enum mp_element element;
    bool deferred; /* operations return before their work is done: only events know its time */
    /* Called on the caller's thread in pauses of the work, every 100 us or so where it can be cut
     * up (heads, groups, rows; not within a product that is fastest whole), by back ends that have
     * done the work when they return, since nobody else can let transfers move on meanwhile.  It
     * may use `add`, `copy`, copies from and to the host, `gather_rows` and
     * `combine_forward`.  NULL: not wanted.  The caller's to set. */
    void (*between)(void *context);
    void *between_context;
};

static inline size_t mp_element_bytes(const struct mp_device *device) {
    return device->element == MP_FLOAT32 ? 4 : 2;
}
/* Address of an element of a matrix of the device's element type. */
static inline void *mp_element_at(const struct mp_device *device, const void *matrix,
                                  size_t element) {
    return (char *)matrix + element * mp_element_bytes(device);
}

/* CPU back end on oneDNN.  `threads` per rank for its matrix work (>= 1).  Working memory for the
 * largest shapes, which `limits` names, is allocated here, once; attention, layer norm,
 * route_positions, sort_routes and limit_choices fail with MP_ELIMIT beyond them.  Errors:
 * MP_EINVAL, MP_ENOMEM. */
struct mp_device_limits {
    struct mp_attention_shape attention; /* the largest that will be used */
    int experts;                         /* largest number of groups, E */
    int width;                           /* largest row of a layer norm or grouped GEMM, D and F */
    int tokens;                          /* largest number of routes of a rank */
};
int mp_device_cpu_create(int threads, const struct mp_device_limits *limits,
                         struct mp_device **device, struct mp_error *error);

/* How grouped GEMM goes on cuda. */
enum mp_grouped_products {
    MP_GROUPED_AUTO,    /* by one kernel where bf16 and GPU (capability 9.0) allow; or streams */
    MP_GROUPED_STREAMS, /* one product after another on several streams */
    MP_GROUPED_LIBRARY  /* cuBLAS's own grouped routine; or streams */
};

/* GPU back end on cuBLAS and kernels of its own.  It is a library apart, libmoeperf-cuda.so beside
 * the program (or what MOEPERF_CUDA_LIBRARY names), loaded when it is first asked for, so that the
 * same programs run where there is no CUDA.  Limits hold as for cpu; its working memory is
 * allocated here, too, once.  Errors, each one sentence that names the rank, the GPU and what would
 * help: MP_ENOTFOUND (this build has none, a CUDA library is missing, there is no GPU or no such
 * one), MP_EVERSION (the driver is older than the toolkit), MP_ENOMEM, MP_EDEVICE. */
struct mp_cuda_settings {
    int rank;    /* for sentences; -1: none */
    int ordinal; /* GPU of this host, as the CUDA runtime numbers them */
    enum mp_element element;
    enum mp_grouped_products grouped_products;
};
int mp_device_cuda_create(const struct mp_cuda_settings *settings,
                          const struct mp_device_limits *limits, struct mp_device **device,
                          struct mp_error *error);

/* What there is to be had without creating anything, for choosing GPUs and for doctors. */
struct mp_cuda_gpu {
    char name[256]; /* "NVIDIA H200" */
    int capability; /* 90: compute capability 9.0 */
    int processors; /* multiprocessors */
    int64_t memory;
    int64_t free_memory; /* -1 where the driver's management library does not say */
    unsigned char uuid[16];
};
/* The first `limit` GPUs; *count is how many there are.  Errors as for mp_device_cuda_create. */
int mp_device_cuda_list(struct mp_cuda_gpu gpus[], int limit, int *count, struct mp_error *error);

void mp_device_destroy(struct mp_device *device); /* accepts NULL */

/* MP_OK, or the first failure of an operation queued so far that has come to light. */
int mp_device_check(struct mp_device *device, struct mp_error *error);

/* Library and hardware in words, for the environment fingerprint: "oneDNN 2.6.3, avx512",
 * "cuBLAS 13.0.2, NVIDIA H200, driver 13.0". */
void mp_device_describe(const struct mp_device *device, char *text, size_t size);
