/* Memory of a rank.
 *
 * Activations are counted as in Korthikanti et al., "Reducing Activation Recomputation in Large
 * Transformer Models", MLSys 2023, section 4: what backward needs, which comes to
 * s*b*h*(34 + 5*a*s/h) bytes of a layer with 16-bit elements and a dense feed-forward part.  Of
 * these the attention has 11 + 5*a*s/h, layer norms 4; the 19 of the feed-forward part are replaced
 * by what a mixture of experts keeps, most of it where the expert is. */
#include "harness/predict/cost.h"

static const double INDEX_BYTES = 4;

/* Attention and both layer norms, bytes per token: inputs of the layer norms, of the three
 * projections and of the one behind attention; queries, keys, values; the mask of dropout behind
 * attention, one byte an element.  With scores in memory also softmax, dropout's mask and output;
 * with flash attention the logarithm of a row's sum per head instead. */
static double attention_bytes(const struct mp_costs *costs) {
    double d = costs->width, b = costs->element;
    double rows = 2 * d * b + 2 * d * b + (d + 2 * costs->keys) * b + d;
    if (costs->options.attention == MP_ATTENTION_FLASH)
        return rows + 4 * costs->heads;
    return rows + costs->heads * (costs->context + costs->sequence) * (2 * b + 1);
}

/* Of `width` elements in an expert: hidden before and after the activation (with three matrices
 * both halves before it). */
static double hidden_bytes(const struct mp_costs *costs, double width) {
    return costs->options.expert_matrices * width * costs->element;
}

/* The rest of a block at the token's own rank, bytes per token: what the gate and the shared expert
 * read, its probabilities, the number that some gates keep, per route choice, weight and (for every
 * shard) position; the mask of dropout behind the experts; what is hidden in the shared one. Beside
 * it are the rows that experts return, whose weights' gradients need them. */
static double gate_bytes(const struct mp_costs *costs) {
    double d = costs->width, b = costs->element;
    return d * b + costs->experts * INDEX_BYTES + costs->gate_kept +
           costs->top_k * (2 + costs->shards) * INDEX_BYTES + d +
           hidden_bytes(costs, costs->shared_width);
}

/* At the expert's rank, bytes per route: its input, what is hidden, where the row came from. */
static double route_bytes(const struct mp_costs *costs) {
    return costs->width * costs->element + hidden_bytes(costs, costs->expert_width) + INDEX_BYTES;
}

/* Of one-hot matrices, bytes per row that is sent, with so many in a cell. */
static double one_hot_bytes(const struct mp_costs *costs, const struct mp_memory_use *use,
                            double cell) {
    return use->one_hot ? costs->tokens * cell : 0;
}

/* At the token's rank, bytes per row that returns: the row, and one-hot matrices as the products of
 * dispatch and of combining read them.  While they are made there are weights in 32 bits and a
 * mask of one byte, too, which count as buffers. */
static double sent_bytes(const struct mp_costs *costs, const struct mp_memory_use *use) {
    return costs->sizes.row + one_hot_bytes(costs, use, 2 * costs->element);
}

/* Behind the last block, bytes per token: inputs of layer norm and head, 32-bit logits. */
static double head_bytes(const struct mp_costs *costs) {
    return costs->vocabulary > 0
               ? 2 * costs->width * costs->element + costs->vocabulary * INDEX_BYTES
               : 0;
}

static double activation_bytes(const struct mp_costs *costs, const struct mp_memory_use *use) {
    double token = attention_bytes(costs) + gate_bytes(costs), kept = head_bytes(costs);
    double row = sent_bytes(costs, use), route = route_bytes(costs);
    if (costs->serves) /* one block's, and then the head's */
        return costs->tokens * token + costs->answers * kept + use->sent_one_layer * row +
               use->rows_one_layer * route;
    if (costs->options.recompute == MP_RECOMPUTE_FULL) /* inputs of blocks, and one block's all */
        return costs->tokens * (costs->layers * costs->width * costs->element + token + kept) +
               use->sent_one_layer * row + use->rows_one_layer * route;
    return costs->tokens * (costs->layers * token + kept) + use->sent * row + use->rows * route;
}

/* What the cache keeps of all tokens that this rank's sequences have after a step. */
static double cache_bytes(const struct mp_costs *costs) {
    double sequences = costs->options.micro_batches * costs->tokens / costs->sequence;
    double tokens = costs->context + costs->sequence;
    return costs->serves ? costs->layers * sequences * tokens * costs->cached * costs->element : 0;
}

void mp_costs_memory(const struct mp_costs *costs, const struct mp_memory_use *use,
                     struct mp_memory *memory) {
    double dense =
        costs->layers * mp_costs_block_parameters(costs) + mp_costs_table_parameters(costs);
    double gradient = costs->options.gradient_bytes, state = costs->options.optimizer_bytes;
    *memory = (struct mp_memory){
        .dense = dense * (costs->element + gradient + state),
        .parameters = use->experts_kept * costs->sizes.expert,
        .copies = use->copies * costs->sizes.expert,
        .gradients = use->gradients * costs->sizes.expert_gradient,
        .optimizer = use->states_kept * costs->sizes.expert_state,
        .activations = activation_bytes(costs, use),
        .cache = cache_bytes(costs),
        .buffers = (use->sent_one_layer + use->rows_one_layer) * costs->sizes.row +
                   use->sent_one_layer * one_hot_bytes(costs, use, INDEX_BYTES + 1) +
                   2 * use->transit,
        .limit = costs->cluster->memory.value * (1 - costs->options.reserve),
    };
    memory->total = memory->dense + memory->parameters + memory->copies + memory->gradients +
                    memory->optimizer + memory->activations + memory->cache + memory->buffers;
}
