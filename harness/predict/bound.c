#include "harness/predict/bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/predict/engine.h"
#include "harness/predict/ports.h"

enum { USUAL_ROUNDS = 150, LOOKS = 10 }; /* at the mean of the weights so far */
static const double NETWORK_ROUNDING = 1e-5, LINE_ROUNDING = 1e-9;

/* Weights of what may be longest, summing to one in each of them; or seconds of the same. */
struct choice {
    double *of;     /* [count] */
    double *regret; /* [count], of weights */
    double *mean;   /* [count], likewise: added up over rounds */
    int count;
};

struct mp_bound {
    struct mp_costs *costs;
    struct mp_network *network;
    double launch;
    int ranks, places, layers, experts, micro_batches, rounds;
    bool serves, shares; /* ranks share gates between places */
    /* Seconds: of a row at a place's gates; of what a holder's own gate carries of an expert, and
     * of what some gate does beside it; of a place's products by direction; of the update of all
     * experts, if it is spread evenly over all ranks. */
    double row, held, merged, line_once[2], line_row[2], update;
    double fixed, fixed_backward, fixed_stream; /* 1 and 2 together; of them 2; and 3 */

    double *routes; /* [layers][experts][places] by source */
    double *own;    /* [layers][places] seconds of rows in order, one direction */
    double *least;  /* [layers] the least of any rank */
    /* [1 + places]: forward and backward, or a place's gates all the time; [layers] and backward,
     * [2 * places] each: work of places, gates of places. */
    struct choice top, *pass, seconds_top, *seconds;
    double *work, *gate, *once, *hold; /* [places] prices of a layer */
    int least_gate, most_held; /* places: of the gate that counts least; of the largest hold */
    double *kept; /* [1 + places], [layers + 1][2 * places] weights while others are looked at */
    double *memory;
};

bool mp_bound_covers(const struct mp_system *system, bool dropped, int shards) {
    return !dropped && shards <= 1 &&
           !(system->capabilities & (MP_SYSTEM_CHANGES_GATE | MP_SYSTEM_UNATTAINABLE));
}

static int count_places(const struct mp_cluster *cluster) {
    struct mp_topology topology = mp_cluster_topology(cluster);
    int nodes = mp_topology_nodes(&topology);
    return nodes > 1 ? nodes : topology.ranks;
}

bool mp_bound_is_quick(const struct mp_cluster *cluster, const struct mp_job *job,
                       int64_t iterations) {
    static const double in_a_second = 2e6;
    double places = count_places(cluster);
    return places * places * job->experts * job->layers * (double)iterations <= in_a_second;
}

/* ---- what things take ---- */

/* Rows from which on an expert's time is the larger of straight lines (cluster.h: shares are
 * constant beyond their tables), so that its slope only rises. */
static int straight_from(const struct mp_cluster *cluster, const struct mp_job *job) {
    const struct mp_cluster_efficiency *table = &cluster->efficiency;
    double most = job->width > job->expert_width ? job->width : job->expert_width;
    if (table->rows > 0 && table->tokens[table->rows - 1] > most)
        most = table->tokens[table->rows - 1];
    if (table->columns > 0 && table->width[table->columns - 1] > most)
        most = table->width[table->columns - 1];
    return (int)ceil(most) + 1;
}

static inline double time_of(struct mp_bound *bound, int direction, int rows) {
    return mp_costs_expert(bound->costs, rows, direction);
}

/* The line below all times of up to `last` rows, and of more, that is highest at `anchor`. */
static void draw_line(struct mp_bound *bound, int direction, int last, int anchor, int hull[]) {
    int count = 0;
    for (int r = 1; r <= last; r++) {
        while (count > 1) {
            int a = hull[count - 2], b = hull[count - 1];
            if ((time_of(bound, direction, b) - time_of(bound, direction, a)) * (r - a) <
                (time_of(bound, direction, r) - time_of(bound, direction, a)) * (b - a))
                break;
            count--;
        }
        hull[count++] = r;
    }
    int at = 1;
    while (at + 1 < count && hull[at] < anchor)
        at++;
    double slope = time_of(bound, direction, last) - time_of(bound, direction, last - 1);
    if (count > 1) { /* always: there are two rows at least */
        int from = hull[at - 1], rows = hull[at] - from;
        double rise = time_of(bound, direction, hull[at]) - time_of(bound, direction, from);
        slope = fmin(slope, rise / rows);
    }
    double once = INFINITY, ratio = INFINITY;
    for (int r = 1; r <= last; r++) {
        ratio = fmin(ratio, time_of(bound, direction, r) / r);
        once = fmin(once, time_of(bound, direction, r) - slope * r);
    }
    if (!(once > 0)) {
        slope = fmin(ratio, slope);
        once = 0;
    }
    bound->line_row[direction] = (1 - LINE_ROUNDING) * slope;
    bound->line_once[direction] = (1 - LINE_ROUNDING) * once;
}

static int draw_lines(struct mp_bound *bound, const struct mp_cluster *cluster,
                      const struct mp_job *job, struct mp_error *error) {
    int last = straight_from(cluster, job);
    int *hull = malloc((size_t)last * sizeof *hull);
    if (!hull)
        return mp_fail(error, MP_ENOMEM, "no memory for a bound of %d rows", last);
    double mean = (double)mp_costs_tokens(bound->costs) * bound->ranks *
                  mp_costs_top_k(bound->costs) / bound->experts;
    int anchor = mean < last ? (int)mean : last;
    for (int way = MP_FORWARD; way <= MP_BACKWARD; way++) {
        draw_line(bound, way, last, anchor, hull);
        bound->line_once[way] *= (double)bound->places / bound->ranks;
        bound->line_row[way] *= (double)bound->places / bound->ranks;
    }
    free(hull);
    return MP_OK;
}

/* Bytes/s of a place's gates in one direction. */
static double find_gates(struct mp_bound *bound) {
    const struct mp_network *network = bound->network;
    int each = bound->ranks / bound->places;
    double sum = 0;
    for (int l = 0; l < network->levels; l++) {
        const struct mp_port_level *level = &network->level[l];
        double limit = level->width * level->rank_bandwidth;
        double gate = level->bandwidth < limit ? level->bandwidth : limit;
        if (level->span <= each)
            continue;
        if (each == 1) { /* a rank alone may have a gate that it shares to itself */
            gate =
                level->rank_bandwidth < level->bandwidth ? level->rank_bandwidth : level->bandwidth;
            sum += gate;
        } else {
            sum += gate * each / level->width;
            bound->shares |= level->width > 1;
        }
    }
    return sum;
}

static void find_travel(struct mp_bound *bound) {
    const struct mp_costs *costs = bound->costs;
    double gates = find_gates(bound), layers = bound->layers;
    double parameters = mp_costs_expert_bytes(costs);
    double gradient = mp_costs_expert_gradient_bytes(costs);
    double counts =
        mp_network_all_gather(bound->network, MP_BYTES_OF_COUNTS * (double)bound->experts);
    bound->fixed_stream = bound->micro_batches * layers * counts +
                          mp_network_all_reduce(bound->network, MP_AGREED_BYTES);
    bound->fixed = bound->fixed_stream;
    if (bound->places == 1)
        return;
    bound->row = (1 - NETWORK_ROUNDING) * mp_costs_row_bytes(costs) / mp_costs_top_k(costs) / gates;
    if (bound->serves)
        return;
    bound->held = (1 - NETWORK_ROUNDING) * gradient / gates;
    bound->merged = (1 - NETWORK_ROUNDING) * fmin(parameters, gradient) / gates;
    double block = mp_costs_block_gradient_bytes(costs);
    double tables = mp_costs_table_gradient_bytes(costs);
    bound->fixed_stream += bound->shares ? 2.0 * (bound->places - 1) / bound->places *
                                               (layers * block + tables) / gates
                                         : layers * mp_network_all_reduce(bound->network, block) +
                                               mp_network_all_reduce(bound->network, tables);
}

static void find_update(struct mp_bound *bound, const struct mp_cluster *cluster) {
    const struct mp_costs *costs = bound->costs;
    double layers = bound->layers;
    double dense = layers * mp_costs_block_parameters(costs) + mp_costs_table_parameters(costs);
    double expert = mp_costs_expert_bytes(costs);
    double all = layers * bound->experts * expert / bound->ranks;
    bound->fixed_backward +=
        mp_costs_optimizer(costs, dense * expert / mp_costs_expert_parameters(costs));
    bound->update = mp_costs_optimizer(costs, all) - bound->launch;
    if (cluster->host_bandwidth.origin && cluster->host_update.origin) {
        double host = mp_costs_offloaded(costs, all) - 2 * bound->launch;
        bound->update = host < bound->update ? host : bound->update;
    }
}

static void find_work(struct mp_bound *bound, const struct mp_cluster *cluster) {
    const struct mp_costs *costs = bound->costs;
    double layers = bound->layers, times = bound->micro_batches;
    bound->fixed +=
        times *
        (mp_costs_embed(costs, MP_FORWARD) +
         layers * (mp_costs_attention(costs, MP_FORWARD) + mp_costs_gate(costs, MP_FORWARD)));
    if (bound->serves) {
        bound->fixed += times * mp_costs_head(costs);
        return;
    }
    bound->fixed_backward =
        times *
        (mp_costs_head(costs) + mp_costs_embed(costs, MP_BACKWARD) +
         layers * (mp_costs_attention(costs, MP_BACKWARD) + mp_costs_gate(costs, MP_BACKWARD)));
    find_update(bound, cluster);
    bound->fixed += bound->fixed_backward;
}

/* ---- life ---- */

static void take_choice(struct choice *choice, int count, int arrays, double **memory) {
    choice->count = count;
    choice->of = *memory;
    choice->regret = *memory + count;
    choice->mean = *memory + 2 * count;
    *memory += arrays * count;
}

static int create_memory(struct mp_bound *bound, struct mp_error *error) {
    size_t layers = (size_t)bound->layers, places = (size_t)bound->places;
    size_t pairs = layers * (size_t)bound->experts * places;
    size_t doubles = pairs + layers * (places + 1) + 5 * (1 + places) +
                     5 * (layers + 1) * 2 * places + 4 * places;
    double *at = bound->memory = calloc(doubles, sizeof *at);
    bound->pass = calloc(2 * (layers + 1), sizeof *bound->pass);
    if (!at || !bound->pass)
        return mp_fail(error, MP_ENOMEM, "no memory for a bound of %d layers and %d experts",
                       bound->layers, bound->experts);
    bound->seconds = bound->pass + layers + 1;
    bound->routes = at;
    bound->own = at += pairs;
    bound->least = at += layers * places;
    at += layers;
    double **price[] = {&bound->work, &bound->gate, &bound->once, &bound->hold};
    for (int i = 0; i < 4; i++, at += places)
        *price[i] = at;
    take_choice(&bound->top, bound->places + 1, 3, &at);
    take_choice(&bound->seconds_top, bound->places + 1, 1, &at);
    for (int l = 0; l <= bound->layers; l++) {
        take_choice(&bound->pass[l], 2 * bound->places, 3, &at);
        take_choice(&bound->seconds[l], 2 * bound->places, 1, &at);
    }
    bound->kept = at;
    return MP_OK;
}

int mp_bound_create(const struct mp_cluster *cluster, const struct mp_job *job,
                    const struct mp_predict_options *options, int rounds, struct mp_bound **out,
                    struct mp_error *error) {
    struct mp_bound *bound = calloc(1, sizeof *bound);
    if (!bound)
        return mp_fail(error, MP_ENOMEM, "no memory for a bound");
    bound->ranks = mp_cluster_ranks(cluster);
    bound->places = count_places(cluster);
    bound->layers = job->layers;
    bound->experts = job->experts;
    bound->micro_batches = options->micro_batches;
    bound->rounds = rounds > 0 ? rounds : USUAL_ROUNDS;
    bound->serves = mp_job_serves(job);
    bound->launch = cluster->launch.value;
    struct mp_job whole = *job;
    whole.expert_shards = 1;
    int code = mp_costs_create(cluster, &whole, options, &bound->costs, error);
    if (!code)
        code = mp_network_create(cluster, &bound->network, error);
    if (!code)
        code = create_memory(bound, error);
    if (!code)
        code = draw_lines(bound, cluster, job, error);
    if (code) {
        mp_bound_destroy(bound);
        return code;
    }
    find_travel(bound);
    find_work(bound, cluster);
    bound->fixed += bound->micro_batches * bound->layers * options->planning;
    *out = bound;
    return MP_OK;
}

void mp_bound_destroy(struct mp_bound *bound) {
    if (!bound)
        return;
    mp_costs_destroy(bound->costs);
    mp_network_destroy(bound->network);
    free(bound->pass);
    free(bound->memory);
    free(bound);
}

/* ---- loads ---- */

/* Rows in order, twice.  One product with one-hot matrices reads and writes at least half of what
 * copying does. */
static double order(const struct mp_bound *bound, int64_t rows) {
    return rows > 0 ? mp_costs_permute(bound->costs, rows) + bound->launch : 0;
}

static void take_layer(struct mp_bound *bound, int layer, const struct mp_load *load) {
    int each = bound->ranks / bound->places;
    double *routes = bound->routes + (size_t)layer * (size_t)bound->experts * (size_t)bound->places;
    double least = INFINITY;
    for (int r = 0; r < bound->ranks; r++) {
        const uint32_t *count = load->count + (size_t)r * (size_t)bound->experts;
        int64_t rows = 0;
        for (int e = 0; e < bound->experts; e++) {
            routes[(size_t)e * (size_t)bound->places + (size_t)(r / each)] += count[e];
            rows += count[e];
        }
        bound->own[layer * bound->places + r / each] += order(bound, rows) / each;
        least = fmin(least, order(bound, rows));
    }
    bound->least[layer] += least;
}

static int take_loads(struct mp_bound *bound, const struct mp_load load[], struct mp_error *error) {
    int layers = bound->layers, places = bound->places;
    size_t pairs = (size_t)layers * (size_t)bound->experts * (size_t)places;
    memset(bound->routes, 0, (pairs + (size_t)layers * ((size_t)places + 1)) * sizeof(double));
    for (int i = 0; i < layers * bound->micro_batches; i++) {
        if (load[i].ranks != bound->ranks || load[i].experts != bound->experts)
            return mp_fail(error, MP_EINVAL,
                           "micro-batch %d, layer %d: loads of %d ranks and %d experts, the job "
                           "has %d and %d",
                           i / layers, i % layers, load[i].ranks, load[i].experts, bound->ranks,
                           bound->experts);
        take_layer(bound, i % layers, &load[i]);
    }
    return MP_OK;
}

/* ---- the least at given weights ---- */

static void set_prices(struct mp_bound *bound, int layer) {
    const double *forward = bound->pass[layer].of, *backward = bound->pass[bound->layers].of;
    const double *top = bound->top.of, z = top[0];
    int places = bound->places, ways = bound->serves ? 1 : 2, least = 0, most = 0;
    for (int n = 0; n < places; n++) {
        double back = bound->serves ? 0 : backward[n];
        double back_gate = bound->serves ? 0 : backward[places + n];
        bound->work[n] = z * (forward[n] * bound->line_row[0] + back * bound->line_row[1]);
        bound->once[n] = z * (forward[n] * bound->line_once[0] + back * bound->line_once[1]);
        bound->gate[n] = bound->row * (z * (forward[places + n] + back_gate) + ways * top[1 + n]);
        least = top[1 + n] < top[1 + least] ? n : least;
        most = top[1 + n] > top[1 + most] ? n : most;
    }
    for (int n = 0; n < places; n++)
        bound->hold[n] = bound->held * top[1 + n] + bound->merged * top[1 + least];
    bound->least_gate = least;
    bound->most_held = most;
}

/* What it costs less, at a hub, that a place computes its own routes. */
static inline double saving(const struct mp_bound *bound, double routes, int place, double hub) {
    return routes * (bound->gate[place] + hub - bound->work[place]) - bound->once[place] -
           bound->hold[place];
}

/* Price of an expert's routes from all places if what is not computed at home goes to this hub;
 * *other: a place that holds it, too, as do all that then save by it, or -1.  One of several
 * holders brings nothing over its gate: no more than the largest hold is taken off. */
static double price_at(const struct mp_bound *bound, const double routes[], double all,
                       double gated, int hub, int *other) {
    double price = bound->work[hub] + bound->gate[hub], best = -INFINITY;
    double saved = bound->hold[bound->most_held] - bound->hold[hub];
    *other = -1;
    for (int n = 0; n < bound->places; n++) {
        double own = n == hub ? -INFINITY : saving(bound, routes[n], n, price);
        saved += own > 0 ? own : 0;
        if (own > best) {
            best = own;
            *other = n;
        }
    }
    saved += best < 0 ? best : 0;
    if (!(saved > 0))
        *other = -1;
    return gated + all * price - routes[hub] * 2 * bound->gate[hub] + bound->once[hub] -
           (*other >= 0 ? saved : 0);
}

static void add_rows(struct mp_bound *bound, int layer, int place, double rows, double crossing) {
    double *forward = bound->seconds[layer].of, *backward = bound->seconds[bound->layers].of;
    int ways = bound->serves ? 1 : 2, gates = bound->places + place;
    forward[place] += rows * bound->line_row[0];
    backward[place] += rows * bound->line_row[1];
    forward[gates] += crossing * bound->row;
    backward[gates] += crossing * bound->row;
    bound->seconds_top.of[1 + place] += ways * crossing * bound->row;
}

static void add_holder(struct mp_bound *bound, int layer, int place) {
    bound->seconds[layer].of[place] += bound->line_once[0];
    bound->seconds[bound->layers].of[place] += bound->line_once[1];
}

/* What so many holders, one of them with the largest hold, make gates carry. */
static void add_hold(struct mp_bound *bound, int place, int sign) {
    bound->seconds_top.of[1 + place] += sign * bound->held;
    bound->seconds_top.of[1 + bound->least_gate] += sign * bound->merged;
}

/* Adds what the cheapest split of an expert's routes takes. */
static void split_expert(struct mp_bound *bound, int layer, const double routes[]) {
    double all = 0, gated = 0, least = INFINITY;
    int hub = 0, other = -1;
    for (int n = 0; n < bound->places; n++) {
        all += routes[n];
        gated += routes[n] * bound->gate[n];
    }
    if (!(all > 0))
        return;
    for (int n = 0; n < bound->places; n++) {
        int also;
        double price = price_at(bound, routes, all, gated, n, &also);
        if (price < least) {
            least = price;
            hub = n;
            other = also;
        }
    }
    double price = bound->work[hub] + bound->gate[hub], here = all;
    for (int n = 0; n < bound->places; n++) {
        if (n == hub)
            continue;
        if (other >= 0 && (n == other || saving(bound, routes[n], n, price) > 0)) {
            here -= routes[n];
            add_rows(bound, layer, n, routes[n], 0);
            add_holder(bound, layer, n);
            add_hold(bound, n, 1);
        } else {
            add_rows(bound, layer, n, 0, routes[n]);
        }
    }
    add_rows(bound, layer, hub, here, here - routes[hub]);
    add_holder(bound, layer, hub);
    if (other >= 0) {
        add_hold(bound, hub, 1);
        add_hold(bound, bound->most_held, -1);
    }
}

/* What does not depend on splits. */
static void begin_seconds(struct mp_bound *bound) {
    int places = bound->places, layers = bound->layers;
    double *backward = bound->seconds[layers].of, times = bound->micro_batches;
    double shared[2] = {times * mp_costs_shared(bound->costs, MP_FORWARD),
                        times * mp_costs_shared(bound->costs, MP_BACKWARD)};
    memset(backward, 0, 2 * (size_t)places * sizeof *backward);
    for (int n = 0; n < places; n++) {
        bound->seconds_top.of[1 + n] = bound->fixed_stream;
        for (int l = 0; l < layers; l++) {
            double *forward = bound->seconds[l].of;
            forward[n] = bound->own[l * places + n] + shared[0];
            forward[places + n] = bound->least[l];
            backward[n] += bound->own[l * places + n] + shared[1];
            backward[places + n] += bound->shares ? 0 : bound->least[l];
        }
        if (bound->shares)
            backward[places + n] = -bound->fixed_backward;
    }
}

static double weighted(const struct choice *weights, const struct choice *seconds) {
    double sum = 0;
    for (int i = 0; i < weights->count; i++)
        sum += weights->of[i] * seconds->of[i];
    return sum;
}

/* The update goes where it counts least. */
static void add_update(struct mp_bound *bound) {
    const double *weight = bound->pass[bound->layers].of;
    int least = 0;
    for (int n = 1; n < bound->places; n++)
        least = weight[n] < weight[least] ? n : least;
    bound->seconds[bound->layers].of[least] += bound->places * bound->update;
}

/* The bound at the present weights, and in `seconds` what its split takes everywhere. */
static double evaluate(struct mp_bound *bound) {
    int passes = bound->layers + (bound->serves ? 0 : 1);
    begin_seconds(bound);
    for (int l = 0; l < bound->layers; l++) {
        const double *routes =
            bound->routes + (size_t)l * (size_t)bound->experts * (size_t)bound->places;
        set_prices(bound, l);
        for (int e = 0; e < bound->experts; e++, routes += bound->places)
            split_expert(bound, l, routes);
    }
    if (!bound->serves)
        add_update(bound);
    bound->seconds_top.of[0] = bound->fixed;
    for (int p = 0; p < passes; p++)
        bound->seconds_top.of[0] += weighted(&bound->pass[p], &bound->seconds[p]);
    return weighted(&bound->top, &bound->seconds_top);
}

/* ---- better weights ---- */

static void begin_choice(struct choice *choice, int first) {
    for (int i = 0; i < choice->count; i++) {
        choice->of[i] = i < first ? 1.0 / first : 0;
        choice->regret[i] = choice->mean[i] = 0;
    }
}

/* Weights in proportion to regrets; the mean, before that, gets the present ones. */
static void improve(struct choice *choice, const struct choice *seconds, double share) {
    double mean = weighted(choice, seconds), sum = 0;
    for (int i = 0; i < choice->count; i++) {
        choice->mean[i] += share * choice->of[i];
        double regret = choice->regret[i] + seconds->of[i] - mean;
        choice->regret[i] = regret > 0 ? regret : 0;
        sum += choice->regret[i];
    }
    for (int i = 0; sum > 0 && i < choice->count; i++)
        choice->of[i] = choice->regret[i] / sum;
}

/* Puts the mean, scaled to one, in the place of the weights. */
static void take_mean(struct choice *choice) {
    double sum = 0;
    for (int i = 0; i < choice->count; i++)
        sum += choice->mean[i];
    for (int i = 0; i < choice->count && sum > 0; i++)
        choice->of[i] = choice->mean[i] / sum;
}

/* The bound at the mean of the weights so far, which stay what they are. */
static double look_at_mean(struct mp_bound *bound) {
    double *of = bound->top.of;
    size_t size = (size_t)bound->top.count;
    size_t all = size + (size_t)(bound->layers + 1) * 2 * (size_t)bound->places;
    double *kept = bound->kept, *at = kept;
    memcpy(at, of, size * sizeof *at);
    at += size;
    take_mean(&bound->top);
    for (int l = 0; l <= bound->layers; l++, at += 2 * bound->places) {
        memcpy(at, bound->pass[l].of, 2 * (size_t)bound->places * sizeof *at);
        take_mean(&bound->pass[l]);
    }
    double value = evaluate(bound);
    at = kept + all;
    for (int l = bound->layers; l >= 0; l--) {
        at -= 2 * bound->places;
        memcpy(bound->pass[l].of, at, 2 * (size_t)bound->places * sizeof *at);
    }
    memcpy(of, kept, size * sizeof *kept);
    return value;
}

int mp_bound_seconds(struct mp_bound *bound, const struct mp_load load[], double *seconds,
                     struct mp_error *error) {
    int code = take_loads(bound, load, error);
    if (code)
        return code;
    double best = 0;
    begin_choice(&bound->top, 1);
    for (int l = 0; l <= bound->layers; l++)
        begin_choice(&bound->pass[l], bound->places);
    for (int round = 1; round <= bound->rounds; round++) {
        best = fmax(best, evaluate(bound));
        double share = round * bound->top.of[0];
        for (int l = 0; l < bound->layers + (bound->serves ? 0 : 1); l++)
            improve(&bound->pass[l], &bound->seconds[l], share);
        improve(&bound->top, &bound->seconds_top, round);
        if (round % (bound->rounds / LOOKS + 1) == 0 || round == bound->rounds)
            best = fmax(best, look_at_mean(bound));
    }
    *seconds = best;
    return MP_OK;
}
