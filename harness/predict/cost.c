/* Costs in seconds: products by the cluster's roofline and efficiency, everything else by the bytes
 * that it moves, and a launch for each.  Memory is in memory.c. */
#include "harness/predict/cost.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS_LIMIT = 1 << 20 };       /* larger numbers of rows are not tabulated */
static const double INDEX_BYTES = 4; /* of an index, a count, and of the gate's 32-bit floats */

/* ---- what the device does ---- */

static double product_of(const struct mp_costs *costs, int direction, double rows, double inner,
                         double columns) {
    double seconds = 0; /* the peak is there: mp_costs_create has asked */
    mp_cluster_product_seconds(costs->cluster, (enum mp_precision)costs->options.precision,
                               direction, rows, inner, columns, &seconds, NULL);
    return seconds;
}

static double product(const struct mp_costs *costs, double rows, double inner, double columns) {
    return product_of(costs, MP_FORWARD, rows, inner, columns);
}

/* Both products of a linear layer's backward: of (rows x inner) * (inner x columns) the gradient of
 * its input, and that of its weights, in which the rows are what is summed over. */
static double product_backward(const struct mp_costs *costs, double rows, double inner,
                               double columns) {
    return product_of(costs, MP_BACKWARD, rows, columns, inner) +
           product_of(costs, MP_BACKWARD, inner, rows, columns);
}

/* Operations without products: bytes read and written. */
static double elementwise(const struct mp_costs *costs, double bytes) {
    return bytes > 0 ? costs->cluster->launch.value + bytes / mp_cluster_elementwise(costs->cluster)
                     : 0;
}

/* Layer norm of N rows, whose mean and deviation are left out: forward reads and writes them;
 * backward reads input and gradient, and adds to the residual's gradient. */
static double layer_norm(const struct mp_costs *costs, int direction) {
    return elementwise(costs, (direction == MP_FORWARD ? 2 : 4) * costs->tokens * costs->width *
                                  costs->element);
}

/* ---- attention ---- */

/* Score products: `operations`, and the bytes that they move, in one launch or several. */
static double score_products(const struct mp_costs *costs, int direction, double launches,
                             double operations, double bytes) {
    const struct mp_cluster *cluster = costs->cluster;
    double share = cluster->attention.origin ? cluster->attention.value
                                             : mp_cluster_share(cluster, direction, costs->tokens,
                                                                costs->width / costs->heads);
    double compute = operations / (cluster->peak[costs->options.precision].value * share);
    double memory = bytes / cluster->memory_bandwidth.value;
    return launches * cluster->launch.value + (compute > memory ? compute : memory);
}

/* Tokens whose keys a query meets at most. */
static double reach(const struct mp_costs *costs) {
    return costs->context + costs->sequence;
}

/* Serving: keys and values of every sequence, or what they are made from, come out of its cache,
 * those of its new tokens go there. */
static double cache_bytes(const struct mp_costs *costs) {
    double sequences = costs->tokens / costs->sequence;
    return costs->serves
               ? costs->cached * costs->element * (sequences * reach(costs) + costs->tokens)
               : 0;
}

/* Flash attention (Dao et al., NeurIPS 2022): one kernel that skips what the causal mask hides and
 * keeps the scores to itself; backward has five products where forward has two, since it works out
 * the scores once more. */
static double flash(const struct mp_costs *costs, int direction) {
    /* One product's operations: with half of the square, and all that is cached. */
    double half = costs->tokens * (costs->sequence + 2 * costs->context) * costs->width;
    double rows = costs->tokens * (2 * costs->width + 2 * costs->keys) * costs->element;
    if (direction == MP_FORWARD)
        return score_products(costs, direction, 1, 2 * half, rows + cache_bytes(costs));
    return score_products(costs, direction, 1, 5 * half, 2 * rows);
}

/* Scores in memory, as in Megatron-LM before flash attention: batched products know no mask and
 * work on the whole square; the softmax reads and writes it. */
static double full(const struct mp_costs *costs, int direction) {
    double whole = 2 * costs->tokens * reach(costs) * costs->width; /* of one product */
    double square = costs->tokens * reach(costs) * costs->heads * costs->element;
    double rows = costs->tokens * (2 * costs->width + 2 * costs->keys) * costs->element;
    if (direction == MP_FORWARD)
        return score_products(costs, direction, 2, 2 * whole,
                              2 * square + rows + cache_bytes(costs)) +
               elementwise(costs, 2 * square);
    return score_products(costs, direction, 4, 4 * whole, 4 * square + 2 * rows) +
           elementwise(costs, 3 * square);
}

static double attention(const struct mp_costs *costs, int direction) {
    double n = costs->tokens, d = costs->width, qkv = d + 2 * costs->keys;
    double scores = costs->options.attention == MP_ATTENTION_FLASH ? flash(costs, direction)
                                                                   : full(costs, direction);
    if (direction == MP_FORWARD)
        return layer_norm(costs, direction) + product(costs, n, d, qkv) + scores +
               product(costs, n, d, d) + elementwise(costs, 3 * n * d * costs->element);
    /* The residual's gradient is passed on as it is. */
    return product_backward(costs, n, d, d) + scores + product_backward(costs, n, d, qkv) +
           layer_norm(costs, direction);
}

/* Of backward the gradient of the projections that it begins with. */
static double attention_behind(const struct mp_costs *costs) {
    double d = costs->width, qkv = d + 2 * costs->keys;
    return product_of(costs, MP_BACKWARD, d, costs->tokens, qkv);
}

/* ---- gate, embedding, head ---- */

/* Forward: layer norm, product, softmax with the choice of K experts, and the order of routes: per
 * route a choice is read, for every shard its position and the row's token are written.  Backward:
 * the gradients of a token's K C rows are added up; softmax; products; layer norm. */
static double gate(const struct mp_costs *costs, int direction) {
    double n = costs->tokens, d = costs->width, e = costs->experts, k = costs->top_k;
    double norm = layer_norm(costs, direction);
    double softmax = elementwise(costs, n * (2 * e + 2 * k) * INDEX_BYTES);
    if (direction == MP_FORWARD)
        return norm + product(costs, n, d, e) + softmax +
               elementwise(costs, (1 + 2 * costs->shards) * n * k * INDEX_BYTES);
    return elementwise(costs, (k * costs->shards + 1) * n * d * costs->element) + softmax +
           product_backward(costs, n, d, e) + norm;
}

/* Forward reads a row of either table and writes their sum; backward reads the gradient and adds it
 * to a row of the token table. */
static double embed(const struct mp_costs *costs) {
    return costs->vocabulary > 0
               ? elementwise(costs, 3 * costs->tokens * costs->width * costs->element)
               : 0;
}

/* Layer norm, logits, softmax and loss in place (read, and the gradient written), and back.
 * Serving: of each sequence's last token, and not back. */
static double head(const struct mp_costs *costs) {
    double n = costs->answers, d = costs->width, v = costs->vocabulary;
    if (!(v > 0))
        return 0;
    if (costs->serves)
        return elementwise(costs, 2 * n * d * costs->element) + product(costs, n, d, v) +
               elementwise(costs, 2 * n * v * INDEX_BYTES);
    return layer_norm(costs, MP_FORWARD) + product(costs, n, d, v) +
           elementwise(costs, 2 * n * v * INDEX_BYTES) + product_backward(costs, n, d, v) +
           layer_norm(costs, MP_BACKWARD);
}

/* ---- experts ---- */

/* `rows` routes through an expert of F hidden elements.  Every product has a launch of its own: a
 * grouped product launches once, but then waits for its slowest group's tiles, and libraries loop
 * over experts. 2 matrices: hidden = in * w1; gelu reads and writes it; out = activated * w2.
 * Backward of gelu reads the hidden value and the gradient and writes the gradient. 3 matrices: two
 * products into hidden, and the gate's activation reads two, writes one; backward reads three,
 * writes two. */
static double expert(const struct mp_costs *costs, double rows, double f, int direction) {
    double d = costs->width, into = costs->options.expert_matrices - 1;
    double hidden = rows * f * costs->element;
    double forward = into * product(costs, rows, d, f) + elementwise(costs, (1 + into) * hidden) +
                     product(costs, rows, f, d);
    if (direction == MP_FORWARD)
        return forward;
    double backward = product_backward(costs, rows, f, d) +
                      elementwise(costs, (1 + 2 * into) * hidden) +
                      into * product_backward(costs, rows, d, f);
    return costs->options.recompute == MP_RECOMPUTE_FULL ? backward + forward : backward;
}

/* Room for `rows`, by doubling; without memory for it nothing is tabulated. */
static bool __attribute__((noinline, cold)) grow(struct mp_costs *costs, int64_t rows) {
    int64_t known = costs->known ? costs->known : 4096;
    while (known <= rows)
        known *= 2;
    double *larger[2];
    for (int i = 0; i < 2; i++)
        larger[i] = calloc((size_t)known, sizeof(double));
    if (!larger[0] || !larger[1]) {
        free(larger[0]);
        free(larger[1]);
        return false;
    }
    for (int i = 0; i < 2; i++) {
        if (costs->known)
            memcpy(larger[i], costs->expert[i], (size_t)costs->known * sizeof(double));
        free(costs->expert[i]);
        costs->expert[i] = larger[i];
    }
    costs->known = known;
    return true;
}

double mp_costs_expert(struct mp_costs *costs, int64_t rows, int direction) {
    if (rows <= 0)
        return 0;
    if (costs->fitted)
        return mp_fitted_expert(&costs->fitted->experts[direction], (double)rows);
    if (rows >= costs->known && (rows >= ROWS_LIMIT || !grow(costs, rows)))
        return expert(costs, (double)rows, costs->expert_width, direction);
    double *seconds = &costs->expert[direction][rows];
    if (*seconds == 0) /* no product takes no time */
        *seconds = expert(costs, (double)rows, costs->expert_width, direction);
    return *seconds;
}

/* ---- creation ---- */

static int check(const struct mp_cluster *cluster, const struct mp_job *job,
                 const struct mp_predict_options *options, struct mp_error *error) {
    int64_t ranks = mp_cluster_ranks(cluster);
    double seconds;
    MP_TRY(mp_cluster_product_seconds(cluster, (enum mp_precision)options->precision, MP_FORWARD, 1,
                                      1, 1, &seconds, error));
    if (job->batch % (ranks * options->micro_batches) != 0)
        return mp_fail(error, MP_EINVAL,
                       "batch: %d sequences can't be split over %lld ranks and %d micro-batches",
                       job->batch, (long long)ranks, options->micro_batches);
    if (job->width % job->heads != 0)
        return mp_fail(error, MP_EINVAL, "width: %d is not a multiple of %d heads", job->width,
                       job->heads);
    if (options->cache_width == 0)
        return mp_fail(error, MP_EINVAL, "cache-width: a cache keeps 1 number of a token at least");
    if (options->key_value_heads != MP_AUTO &&
        (options->key_value_heads < 1 || job->heads % options->key_value_heads != 0))
        return mp_fail(error, MP_EINVAL, "key-value-heads: %d heads can't share %d of them",
                       job->heads, options->key_value_heads);
    return MP_OK;
}

struct mp_element_sizes mp_predict_elements(const struct mp_predict_options *options) {
    return (struct mp_element_sizes){options->expert_matrices,
                                     mp_precision_bytes((enum mp_precision)options->precision),
                                     options->gradient_bytes, options->optimizer_bytes};
}

/* Serving has neither gradients nor an optimizer. */
static void take_options(const struct mp_job *job, const struct mp_predict_options *options,
                         struct mp_costs *costs) {
    costs->options = *options;
    if (mp_job_serves(job))
        costs->options.gradient_bytes = costs->options.optimizer_bytes = 0;
}

static void fill_sizes(const struct mp_job *job, struct mp_costs *costs) {
    const struct mp_predict_options *options = &costs->options;
    int64_t parts = (int64_t)mp_cluster_ranks(costs->cluster) * options->micro_batches;
    int key_heads = options->key_value_heads == MP_AUTO ? job->heads : options->key_value_heads;
    const struct mp_element_sizes elements = mp_predict_elements(options);
    mp_job_sizes(job, &elements, &costs->sizes);
    costs->element = elements.element;
    costs->layers = job->layers;
    costs->width = job->width;
    costs->heads = job->heads;
    costs->experts = job->experts;
    costs->shards = mp_job_shards(job);
    costs->expert_width = job->expert_width / costs->shards;
    costs->shared_width = (double)job->shared_experts * job->expert_width;
    costs->top_k = mp_job_top_k(job);
    struct mp_gate_rule rule; /* a job whose gate refuses it has been refused */
    costs->gate_kept =
        !mp_job_gate_rule(job, &rule, NULL) && mp_gate_keeps(&rule) ? INDEX_BYTES : 0;
    costs->sequence = mp_job_step_tokens(job);
    costs->serves = mp_job_serves(job);
    costs->context = job->context;
    costs->vocabulary = (double)options->vocabulary;
    costs->tokens = (double)(job->batch / parts * mp_job_step_tokens(job));
    costs->answers = costs->serves ? (double)(job->batch / parts) : costs->tokens;
    costs->keys = (double)key_heads * job->width / job->heads;
    costs->cached = options->cache_width == MP_AUTO ? 2 * costs->keys : options->cache_width;
}

static void fill_seconds(struct mp_costs *costs) {
    double(*own)[2] = costs->own, residual = 3 * costs->tokens * costs->width * costs->element;
    for (int way = MP_FORWARD; way <= MP_BACKWARD; way++) {
        own[MP_PHASE_EMBED][way] = embed(costs);
        own[MP_PHASE_ATTENTION][way] = attention(costs, way);
        own[MP_PHASE_GATE][way] = gate(costs, way);
        own[MP_PHASE_PLAN][way] = costs->options.planning;
        if (costs->shared_width > 0)
            own[MP_PHASE_SHARED][way] = expert(costs, costs->tokens, costs->shared_width, way) +
                                        elementwise(costs, residual);
        own[MP_PHASE_HEAD][way] = head(costs);
    }
    if (costs->options.recompute == MP_RECOMPUTE_FULL) {
        own[MP_PHASE_ATTENTION][MP_BACKWARD] += own[MP_PHASE_ATTENTION][MP_FORWARD];
        own[MP_PHASE_GATE][MP_BACKWARD] += own[MP_PHASE_GATE][MP_FORWARD];
    }
    costs->behind = attention_behind(costs) / own[MP_PHASE_ATTENTION][MP_BACKWARD];
}

/* As the trainer measures an expert (reference/trainer/measure.c): the line through the times of
 * the mean number of routes and of one route. */
static void fill_expert_figures(const struct mp_costs *costs, struct mp_setting *setting) {
    double routes = costs->tokens * setting->topology.ranks * costs->top_k / costs->experts;
    double rows = routes < 2 ? 2 : (double)(int64_t)routes;
    double f = costs->expert_width;
    double many = expert(costs, rows, f, MP_FORWARD), one = expert(costs, 1, f, MP_FORWARD);
    setting->seconds_per_route = many > one ? (many - one) / (rows - 1) : many / rows;
    setting->seconds_per_expert =
        one > setting->seconds_per_route ? one - setting->seconds_per_route : 0;
}

/* Experts that travel together enter a group by all of its gates, one by each (carriage.h), as a
 * library's broadcast uses all cards of a node at once. */
static double broadcast_bandwidth(const struct mp_cluster *cluster, int level) {
    return cluster->level[level].bandwidth.value * cluster->level[level].ports.value;
}

/* What a device has left for copies: its memory without what the job needs anyway, with an even
 * share of experts and of routes on every rank. */
static double copies_memory(const struct mp_costs *costs, int ranks) {
    double own = costs->layers * costs->experts * costs->shards / ranks;
    double routes = costs->tokens * costs->top_k * costs->shards;
    const struct mp_memory_use use = {.experts_kept = own,
                                      .states_kept = own,
                                      .gradients = own,
                                      .rows = costs->layers * routes,
                                      .rows_one_layer = routes,
                                      .sent = costs->layers * routes,
                                      .sent_one_layer = routes};
    struct mp_memory memory;
    mp_costs_memory(costs, &use, &memory);
    double left = memory.limit - memory.total;
    return left > 1 ? left : 1; /* 0 is unknown */
}

static void fill_setting(const struct mp_job *job, struct mp_costs *costs) {
    const struct mp_cluster *cluster = costs->cluster;
    struct mp_setting *setting = &costs->setting;
    const struct mp_topology topology = mp_cluster_topology(cluster);
    mp_job_setting(job, &costs->sizes, &topology, costs->options.micro_batches, setting);
    setting->non_moe_seconds = costs->own[MP_PHASE_ATTENTION][MP_FORWARD] +
                               costs->own[MP_PHASE_GATE][MP_FORWARD] +
                               costs->own[MP_PHASE_SHARED][MP_FORWARD];
    int far = mp_cluster_level_of(cluster, 0, topology.ranks - 1);
    if (topology.ranks > 1)
        setting->bandwidth = broadcast_bandwidth(cluster, far);
    int last = mp_topology_node_end(&topology, 0) - 1;
    int near = last > 0 ? mp_cluster_level_of(cluster, 0, last) : far;
    setting->bandwidth_in_node = last > 0 ? broadcast_bandwidth(cluster, near) : setting->bandwidth;
    setting->copies_memory = copies_memory(costs, topology.ranks);
    setting->knows_messages = true;
    setting->message_seconds = cluster->level[far].message_cost.value;
    setting->latency = cluster->level[far].latency.value;
    setting->latency_in_node = cluster->level[near].latency.value;
    setting->ranks_per_gate = topology.ranks / mp_cluster_gates(cluster, far);
    fill_expert_figures(costs, setting);
    mp_job_given_figures(job, &costs->sizes, setting);
}

static int create(const struct mp_cluster *cluster, const struct mp_job *job,
                  const struct mp_predict_options *options, const struct mp_fitted *fitted,
                  struct mp_costs **costs, struct mp_error *error) {
    MP_TRY(MP_NEW(*costs, 1, error));
    struct mp_costs *new = *costs;
    new->cluster = cluster;
    new->fitted = fitted;
    take_options(job, options, new);
    fill_sizes(job, new);
    return MP_OK;
}

int mp_costs_create(const struct mp_cluster *cluster, const struct mp_job *job,
                    const struct mp_predict_options *options, struct mp_costs **costs,
                    struct mp_error *error) {
    MP_TRY(check(cluster, job, options, error));
    MP_TRY(create(cluster, job, options, NULL, costs, error));
    fill_seconds(*costs);
    fill_setting(job, *costs);
    return MP_OK;
}

int mp_costs_create_fitted(const struct mp_fitted *fitted, const struct mp_cluster *cluster,
                           const struct mp_job *job, const struct mp_predict_options *options,
                           const struct mp_setting *setting, struct mp_costs **costs,
                           struct mp_error *error) {
    MP_TRY(create(cluster, job, options, fitted, costs, error));
    (*costs)->sizes.row *= fitted->copies;
    (*costs)->setting = *setting;
    return MP_OK;
}

void mp_costs_destroy(struct mp_costs *costs) {
    if (!costs)
        return;
    free(costs->expert[0]);
    free(costs->expert[1]);
    free(costs);
}

/* ---- fitted ones ---- */

const double *mp_costs_recorded(const struct mp_costs *costs, enum mp_phase phase, int direction,
                                int layer) {
    return costs->fitted ? mp_fitted_own(costs->fitted, costs->iteration, phase, direction, layer)
                         : NULL;
}

const double *mp_costs_speed(const struct mp_costs *costs, int direction) {
    return costs->fitted ? costs->fitted->speed + direction * costs->fitted->ranks : NULL;
}

double mp_costs_sums(const struct mp_costs *costs) {
    return costs->fitted ? costs->fitted->sums : 1;
}

/* ---- sizes ---- */

/* Two layer norms, the projections into and out of attention, the gate, a shared expert; no biases
 * elsewhere. */
double mp_costs_block_parameters(const struct mp_costs *costs) {
    double d = costs->width;
    return 4 * d + d * (d + 2 * costs->keys) + d * d + d * costs->experts +
           costs->options.expert_matrices * d * costs->shared_width;
}

/* Tables of tokens, which is the head's too, and of positions; the last layer norm. */
double mp_costs_table_parameters(const struct mp_costs *costs) {
    return costs->vocabulary > 0 ? (costs->vocabulary + reach(costs) + 2) * costs->width : 0;
}

double mp_costs_block_gradient_bytes(const struct mp_costs *costs) {
    return mp_costs_block_parameters(costs) * costs->options.gradient_bytes;
}

double mp_costs_table_gradient_bytes(const struct mp_costs *costs) {
    return mp_costs_table_parameters(costs) * costs->options.gradient_bytes;
}

/* ---- seconds ---- */

double mp_costs_own(const struct mp_costs *costs, enum mp_phase phase, int direction) {
    return costs->own[phase][direction];
}

double mp_costs_part(const struct mp_costs *costs, enum mp_phase phase, enum mp_products products) {
    bool recomputes = costs->options.recompute == MP_RECOMPUTE_FULL;
    double matrices = costs->options.expert_matrices, behind = costs->behind;
    if (phase == MP_PHASE_EXPERT) /* all matrices but the last, whose inputs have gradients, too */
        behind = (matrices - 1) / (matrices * (recomputes ? 3 : 2));
    return products == MP_ALL_PRODUCTS ? 1 : products == MP_WEIGHT_PRODUCTS ? behind : 1 - behind;
}

double mp_costs_permute(const struct mp_costs *costs, int64_t rows) {
    if (rows <= 0)
        return 0;
    double bytes = 2 * (double)rows * costs->width * costs->element;
    return costs->cluster->launch.value + bytes / costs->cluster->memory_bandwidth.value;
}

double mp_costs_one_hot(const struct mp_costs *costs, int64_t rows, enum mp_phase phase,
                        int direction) {
    double r = (double)rows, n = costs->tokens, d = costs->width;
    double cells = r * n, b = costs->element, mask = 1;
    if (direction == MP_FORWARD && phase == MP_PHASE_DISPATCH)
        return elementwise(costs, cells * (3 * INDEX_BYTES + 2 * mask + 2 * b)) +
               product(costs, r, n, d);
    if (phase == MP_PHASE_COMBINE && direction == MP_BACKWARD)
        return product_of(costs, MP_BACKWARD, r, n, d) + product_of(costs, MP_BACKWARD, r, d, n) +
               elementwise(costs, cells * (b + 2 * INDEX_BYTES));
    return product_of(costs, direction, n, r, d);
}

/* The parameter and the optimizer's state are read and written, the gradient is read. */
static double update_bytes(const struct mp_costs *costs, double parameters) {
    const struct mp_predict_options *options = &costs->options;
    return parameters / costs->element *
           (2 * costs->element + options->gradient_bytes + 2 * options->optimizer_bytes);
}

double mp_costs_optimizer(const struct mp_costs *costs, double parameters) {
    if (!(parameters > 0))
        return 0;
    if (costs->fitted)
        return costs->fitted->update * parameters;
    return costs->cluster->launch.value +
           update_bytes(costs, parameters) / mp_cluster_update(costs->cluster);
}

double mp_costs_offloaded(const struct mp_costs *costs, double parameters) {
    const struct mp_cluster *cluster = costs->cluster;
    double gradients = parameters / costs->element * costs->options.gradient_bytes;
    if (!(parameters > 0) || costs->fitted)
        return mp_costs_optimizer(costs, parameters);
    return 2 * cluster->launch.value + (gradients + parameters) / cluster->host_bandwidth.value +
           update_bytes(costs, parameters) / cluster->host_update.value;
}

double mp_costs_come_up(const struct mp_costs *costs, double parameters) {
    return costs->fitted ? 0 : parameters / costs->cluster->host_bandwidth.value;
}

int mp_costs_check_offload(const struct mp_costs *costs, struct mp_error *error) {
    const struct mp_cluster *cluster = costs->cluster;
    const char *missing = !cluster->host_bandwidth.origin ? "host-bandwidth" : "host-update";
    if (costs->fitted || (cluster->host_bandwidth.origin && cluster->host_update.origin))
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "%s gives no device.%s, which a system with its optimizer state in host memory "
                   "needs (offload-optimizer=no keeps it on the devices)",
                   cluster->file, missing);
}

double mp_costs_shared_flops(const struct mp_costs *costs) {
    return mp_sizes_route_flops(&costs->sizes) * costs->shared_width / costs->expert_width;
}
