#include "harness/predict/bound.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/predict/choice.h"
#include "harness/predict/engine.h"
#include "harness/predict/ports.h"

/* ALIKE: of so many rounds one has all places alike.  LOOKS: at the mean of the weights so far. */
enum { USUAL_ROUNDS = 150, ALIKE = 2, LOOKS = 10 };
static const double ENOUGH = 2; /* times what all at home takes */
static const double NETWORK_ROUNDING = 1e-5, LINE_ROUNDING = 1e-9;

struct mp_bound {
    struct mp_costs *costs, *own_costs; /* own: NULL if they are those of a run */
    struct mp_known_bounds *known;      /* borrowed; NULL: none */
    struct mp_network *network;
    double launch, order[2]; /* seconds of rows in order: of all, and of each */
    double rows_of_route;    /* that cross: 1, or the least that an exchange may send of it */
    int ranks, places, layers, experts, micro_batches, rounds;
    bool serves, shares;    /* ranks share gates between places */
    bool has_shared_expert; /* that all tokens have */
    /* Seconds: of a row at a place's gates; of what a holder's own gate carries of an expert, and
     * of what some gate does beside it; of the update of all experts, if it is spread evenly over
     * all ranks, and of a rank's update of all else. */
    double row, held, merged, update, dense_update;
    double fixed, fixed_chain, fixed_stream; /* of the iteration at hand; of that and of 3 always */

    double *share;       /* [ranks] of a rank's time in its place's: sums to one in each */
    double *least_share; /* [places] the least of them */
    double *line_once[2], *line_row[2]; /* [places] seconds of experts' products by direction */
    double *each;                       /* [ranks] working memory */
    double *routes;                     /* [layers][experts][places] by source */
    /* [layers][places] of a pass: ranks' own work beside experts; and of it what the least of a
     * place's ranks does while its gates carry nothing for it. */
    double *own, *least;
    /* [1 + places]: all passes, or a place's gates all the time; behind it, [layers] passes, [2 *
     * places] each: work of places, gates of places.  In training the last one has backward in it.
     * kinds, [1 + layers][2]: the first of these, or place's work; and gates. */
    struct mp_choice *top, *pass, *seconds_top, *seconds, *kinds;
    double *work, *gate, *once, *hold; /* [places] prices of a layer */
    int least_gate, most_held; /* places: of the gate that counts least; of the largest hold */
    double *at_home;           /* [1 + layers] seconds: all, passes */
    double *kept;              /* all weights while others are looked at */
    double *memory;
};

static bool deduplicates(int exchange) {
    return mp_exchange_of((enum mp_exchange_kind)exchange)->deduplicates;
}

bool mp_bound_covers(const struct mp_system *system, int exchange, bool as_chosen, int shards) {
    bool fewer_rows = deduplicates((int)mp_system_exchange(system, exchange));
    return as_chosen && shards <= 1 && (!fewer_rows || deduplicates(exchange)) &&
           !(system->capabilities & MP_SYSTEM_UNATTAINABLE);
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

/* How much of a place's time each of its ranks' is: as much as brings all of them to the same end
 * with experts' work in proportion to their speeds. */
static void find_shares(struct mp_bound *bound) {
    const double *speed[2] = {mp_costs_speed(bound->costs, MP_FORWARD),
                              mp_costs_speed(bound->costs, MP_BACKWARD)};
    int each = bound->ranks / bound->places;
    for (int n = 0; n < bound->places; n++) {
        double sum = 0;
        for (int r = n * each; r < (n + 1) * each; r++)
            sum += bound->share[r] = speed[0] ? 1 / (speed[0][r] + speed[1][r]) : 1;
        bound->least_share[n] = 1;
        for (int r = n * each; r < (n + 1) * each; r++) {
            bound->share[r] /= sum;
            bound->least_share[n] = fmin(bound->least_share[n], bound->share[r]);
        }
    }
}

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

/* A line of all ranks, as each place has it: any rank of it does the work. */
static void take_line(struct mp_bound *bound, int direction, double once, double slope) {
    const double *speed = mp_costs_speed(bound->costs, direction);
    int each = bound->ranks / bound->places;
    for (int n = 0; n < bound->places; n++) {
        double least = INFINITY;
        for (int r = n * each; r < (n + 1) * each; r++)
            least = fmin(least, bound->share[r] * (speed ? speed[r] : 1));
        bound->line_once[direction][n] = (1 - LINE_ROUNDING) * least * once;
        bound->line_row[direction][n] = (1 - LINE_ROUNDING) * least * slope;
    }
}

/* Of a run: times grow less and less steeply (fitted.h), so that the line from one row to the most
 * that an expert has is below all of them. */
static void draw_chords(struct mp_bound *bound, int most) {
    for (int way = MP_FORWARD; way <= MP_BACKWARD; way++) {
        double one = time_of(bound, way, 1);
        double slope = most > 1 ? (time_of(bound, way, most) - one) / (most - 1) : 0;
        take_line(bound, way, fmax(0, one - slope), slope);
    }
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
    take_line(bound, direction, once, slope);
}

static int draw_lines(struct mp_bound *bound, const struct mp_cluster *cluster,
                      const struct mp_job *job, struct mp_error *error) {
    int last = straight_from(cluster, job);
    MP_AUTO(memory) int *hull = NULL;
    MP_TRY(MP_NEW(hull, last, error));
    double mean =
        (double)(int64_t)bound->costs->tokens * bound->ranks * bound->costs->top_k / bound->experts;
    int anchor = mean < last ? (int)mean : last;
    for (int way = MP_FORWARD; way <= MP_BACKWARD; way++)
        draw_line(bound, way, last, anchor, hull);
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
    double one = mp_costs_permute(costs, 1);
    bound->order[1] = (mp_costs_permute(costs, 2) - one) / 2;
    bound->order[0] = (one + bound->launch) / 2 - bound->order[1];
    double gates = find_gates(bound), layers = bound->layers;
    double parameters = costs->sizes.expert;
    double gradient = costs->sizes.expert_gradient;
    double counts =
        mp_network_all_gather(bound->network, MP_BYTES_OF_COUNTS * (double)bound->experts);
    bound->fixed_stream = bound->micro_batches * layers * counts +
                          mp_network_all_reduce(bound->network, MP_AGREED_BYTES);
    bound->fixed_chain = bound->fixed_stream;
    if (bound->places == 1)
        return;
    bound->row = (1 - NETWORK_ROUNDING) * bound->rows_of_route * costs->sizes.row / gates;
    if (bound->serves)
        return;
    bound->held = (1 - NETWORK_ROUNDING) * gradient / gates;
    bound->merged = (1 - NETWORK_ROUNDING) * fmin(parameters, gradient) / gates;
    double block = mp_costs_block_gradient_bytes(costs);
    double tables = mp_costs_table_gradient_bytes(costs);
    double sums = bound->shares ? 2.0 * (bound->places - 1) / bound->places *
                                      (layers * block + tables) / gates
                                : layers * mp_network_all_reduce(bound->network, block) +
                                      mp_network_all_reduce(bound->network, tables);
    bound->fixed_stream += mp_costs_sums(costs) * sums;
}

static void find_update(struct mp_bound *bound, const struct mp_cluster *cluster) {
    const struct mp_costs *costs = bound->costs;
    double layers = bound->layers;
    double dense = layers * mp_costs_block_parameters(costs) + mp_costs_table_parameters(costs);
    double expert = costs->sizes.expert;
    double all = layers * bound->experts * expert / bound->ranks;
    bound->dense_update =
        mp_costs_optimizer(costs, dense * expert / costs->sizes.expert_parameters);
    bound->update = mp_costs_optimizer(costs, all) - bound->launch;
    if (cluster->host_bandwidth.origin && cluster->host_update.origin) {
        double host = mp_costs_offloaded(costs, all) - 2 * bound->launch;
        bound->update = host < bound->update ? host : bound->update;
    }
}

/* ---- life ---- */

static int create_memory(struct mp_bound *bound, struct mp_error *error) {
    size_t layers = (size_t)bound->layers, places = (size_t)bound->places;
    size_t pairs = layers * (size_t)bound->experts * places, ranks = (size_t)bound->ranks;
    size_t doubles = pairs + 2 * layers * places + 5 * (1 + places) + 5 * layers * 2 * places +
                     6 * (1 + layers) + 9 * places + 2 * ranks + 1 + layers;
    double *at = bound->memory = calloc(doubles, sizeof *at);
    bound->top = calloc(3 * (1 + layers), sizeof *bound->top);
    if (!at || !bound->top)
        return mp_fail(error, MP_ENOMEM, "no memory for a bound of %d layers and %d experts",
                       bound->layers, bound->experts);
    bound->pass = bound->top + 1;
    bound->seconds_top = bound->pass + layers;
    bound->seconds = bound->seconds_top + 1;
    bound->kinds = bound->seconds + layers;
    bound->routes = at;
    bound->own = at += pairs;
    bound->least = at += layers * places;
    at += layers * places;
    double **of_places[] = {&bound->least_share, &bound->line_once[0], &bound->line_once[1],
                            &bound->line_row[0], &bound->line_row[1],  &bound->work,
                            &bound->gate,        &bound->once,         &bound->hold};
    for (size_t i = 0; i < sizeof of_places / sizeof *of_places; i++, at += places)
        *of_places[i] = at;
    bound->share = at;
    bound->each = at += ranks;
    bound->at_home = at += ranks;
    at += 1 + layers;
    for (int i = 0; i <= bound->layers; i++) {
        int count = i ? 2 * bound->places : 1 + bound->places;
        mp_choice_create(&bound->top[i], count, 3, &at);
        mp_choice_create(&bound->seconds_top[i], count, 1, &at);
        mp_choice_create(&bound->kinds[i], 2, 3, &at);
    }
    bound->kept = at;
    return MP_OK;
}

static int create(struct mp_bound *bound, const struct mp_cluster *cluster,
                  const struct mp_job *job, const struct mp_predict_options *options,
                  struct mp_error *error) {
    struct mp_job whole = *job;
    whole.expert_shards = 1;
    const bool is_of_run = bound->costs;
    if (!is_of_run) {
        MP_TRY(mp_costs_create(cluster, &whole, options, &bound->own_costs, error));
        bound->costs = bound->own_costs;
    }
    bound->rows_of_route = deduplicates(job->exchange) ? 1.0 / bound->costs->top_k : 1;
    MP_TRY(mp_network_create(cluster, &bound->network, error));
    MP_TRY(create_memory(bound, error));
    find_shares(bound);
    if (!is_of_run)
        MP_TRY(draw_lines(bound, cluster, job, error));
    find_travel(bound);
    if (!bound->serves)
        find_update(bound, cluster);
    return MP_OK;
}

int mp_bound_create(struct mp_costs *costs, const struct mp_cluster *cluster,
                    const struct mp_job *job, const struct mp_predict_options *options, int rounds,
                    struct mp_bound **out, struct mp_error *error) {
    struct mp_bound *bound;
    MP_TRY(MP_NEW(bound, 1, error));
    *bound = (struct mp_bound){.costs = costs,
                               .launch = cluster->launch.value,
                               .ranks = mp_cluster_ranks(cluster),
                               .places = count_places(cluster),
                               .layers = job->layers,
                               .experts = job->experts,
                               .micro_batches = options->micro_batches,
                               .rounds = rounds > 0 ? rounds : USUAL_ROUNDS,
                               .serves = mp_job_serves(job),
                               .has_shared_expert = job->shared_experts > 0};
    int code = create(bound, cluster, job, options, error);
    if (code)
        mp_bound_destroy(bound);
    else
        *out = bound;
    return code;
}

void mp_bound_destroy(struct mp_bound *bound) {
    if (!bound)
        return;
    mp_costs_destroy(bound->own_costs);
    mp_network_destroy(bound->network);
    free(bound->top);
    free(bound->memory);
    free(bound);
}

/* ---- loads ---- */

/* Rows in order, once.  One product with one-hot matrices reads and writes at least half of what
 * copying does. */
static double order(const struct mp_bound *bound, int64_t rows) {
    return rows > 0 ? bound->order[0] + bound->order[1] * (double)rows : 0;
}

/* Own work of ranks in a pass. */
struct own_work {
    int pass;
    enum mp_phase phase;
    enum mp_direction direction;
    int layer; /* -1: none */
    double times;
    bool besides; /* the rank's gates carry nothing for it meanwhile */
};

/* As it was recorded, or what it takes each rank, or (NULL) what the costs say. */
static void add_own(struct mp_bound *bound, struct own_work work, const double each[]) {
    const double *recorded =
        mp_costs_recorded(bound->costs, work.phase, (int)work.direction, work.layer);
    int places = bound->places, count = bound->ranks / places;
    each = recorded ? recorded : each;
    for (int n = 0; n < places; n++) {
        double mean = 0, least = INFINITY;
        for (int r = n * count; r < (n + 1) * count; r++) {
            double seconds =
                each ? each[r] : mp_costs_own(bound->costs, work.phase, (int)work.direction);
            mean += bound->share[r] * seconds;
            least = fmin(least, seconds);
        }
        bound->own[work.pass * places + n] += work.times * mean;
        bound->least[work.pass * places + n] += work.besides ? work.times * least : 0;
    }
}

/* Attention and gate.  What of backward may be left for later needs not come besides rows. */
static void add_block(struct mp_bound *bound, struct own_work work) {
    int way = (int)work.direction;
    work.phase = MP_PHASE_GATE;
    add_own(bound, work, NULL);
    double behind = mp_costs_part(bound->costs, MP_PHASE_ATTENTION, MP_WEIGHT_PRODUCTS);
    struct own_work later = work;
    work.phase = later.phase = MP_PHASE_ATTENTION;
    later.times *= way == MP_BACKWARD ? behind : 0;
    later.besides = false;
    work.times -= later.times;
    add_own(bound, work, NULL);
    add_own(bound, later, NULL);
}

/* Around the experts, there and back. */
static void add_rows_in_order(struct mp_bound *bound, struct own_work work, bool last_besides) {
    bool forward = work.direction == MP_FORWARD;
    work.phase = forward ? MP_PHASE_DISPATCH : MP_PHASE_COMBINE;
    add_own(bound, work, bound->each);
    struct own_work shared = work;
    shared.phase = MP_PHASE_SHARED;
    shared.besides = false;
    if (bound->has_shared_expert)
        add_own(bound, shared, NULL);
    work.phase = forward ? MP_PHASE_COMBINE : MP_PHASE_DISPATCH;
    work.besides = last_besides;
    add_own(bound, work, bound->each);
}

/* Whether ranks wait for their gates before they go on in a pass, up to its end: those who share
 * one in backward wait for each other's rows in no order that is known. */
static bool waits_in(const struct mp_bound *bound, int pass) {
    return bound->serves || !bound->shares || pass + 1 < bound->layers;
}

/* A micro-batch's layer: from the counts of its gate to those of the next one, and backward. */
static void take_layer(struct mp_bound *bound, int layer, const struct mp_load *load) {
    int count = bound->ranks / bound->places, last = bound->layers - 1;
    double *routes = bound->routes + (size_t)layer * (size_t)bound->experts * (size_t)bound->places;
    for (int r = 0; r < bound->ranks; r++) {
        const uint32_t *own = load->count + (size_t)r * (size_t)bound->experts;
        int64_t rows = 0;
        for (int e = 0; e < bound->experts; e++) {
            routes[(size_t)e * (size_t)bound->places + (size_t)(r / count)] += own[e];
            rows += own[e];
        }
        bound->each[r] = order(bound, rows);
    }
    struct own_work work = {layer, MP_PHASE_PLAN, MP_FORWARD, layer, 1, true};
    add_own(bound, work, NULL);
    add_rows_in_order(bound, work, waits_in(bound, layer));
    work.layer++;
    if (layer < last)
        add_block(bound, work);
    if (bound->serves)
        return;
    work = (struct own_work){last, MP_PHASE_GATE, MP_BACKWARD, layer, 1, waits_in(bound, last)};
    add_rows_in_order(bound, work, work.besides);
    add_block(bound, work);
}

/* What comes before the first gate: the longest of all ranks in the first micro-batch; in others
 * behind what the rank has done in the one before. */
static void take_ends(struct mp_bound *bound) {
    const struct mp_costs *costs = bound->costs;
    int last = bound->layers - 1;
    double times = bound->micro_batches, longest = 0;
    const double *embed = mp_costs_recorded(costs, MP_PHASE_EMBED, MP_FORWARD, -1);
    const double *attention = mp_costs_recorded(costs, MP_PHASE_ATTENTION, MP_FORWARD, 0);
    const double *gate = mp_costs_recorded(costs, MP_PHASE_GATE, MP_FORWARD, 0);
    for (int r = 0; r < bound->ranks; r++)
        longest = fmax(longest, embed ? embed[r] + attention[r] + gate[r]
                                      : mp_costs_own(costs, MP_PHASE_EMBED, MP_FORWARD) +
                                            mp_costs_own(costs, MP_PHASE_ATTENTION, MP_FORWARD) +
                                            mp_costs_own(costs, MP_PHASE_GATE, MP_FORWARD));
    bound->fixed = bound->fixed_chain + longest;
    struct own_work work = {last, MP_PHASE_EMBED, MP_FORWARD, -1, times - 1, waits_in(bound, last)};
    add_own(bound, work, NULL);
    work.layer = 0;
    add_block(bound, work);
    work = (struct own_work){last, MP_PHASE_HEAD, bound->serves ? MP_FORWARD : MP_BACKWARD,
                             -1,   times,         work.besides};
    add_own(bound, work, NULL);
    if (bound->serves)
        return;
    work.phase = MP_PHASE_EMBED;
    add_own(bound, work, NULL);
    for (int n = 0; n < bound->places; n++) {
        bound->own[last * bound->places + n] += bound->dense_update;
        bound->least[last * bound->places + n] += work.besides ? bound->dense_update : 0;
    }
}

/* What passes, and all of it, take if every place computes its own routes. */
static void find_at_home(struct mp_bound *bound) {
    int places = bound->places, last = bound->layers - 1;
    const double *routes = bound->routes;
    double *work[2] = {bound->work, bound->once}; /* by direction; not prices yet */
    memset(work[1], 0, (size_t)places * sizeof(double));
    bound->at_home[0] = bound->fixed;
    for (int l = 0; l <= last; l++) {
        memcpy(work[0], bound->own + l * places, (size_t)places * sizeof(double));
        for (int e = 0; e < bound->experts; e++, routes += places)
            for (int n = 0; n < places; n++)
                for (int way = 0; way < (bound->serves ? 1 : 2) && routes[n] > 0; way++)
                    work[way][n] += bound->line_once[way][n] + routes[n] * bound->line_row[way][n];
        double most = 0;
        for (int n = 0; n < places; n++)
            most = fmax(most, work[0][n] + (l == last ? work[1][n] : 0));
        bound->at_home[1 + l] = most;
        bound->at_home[0] += most;
    }
}

/* The most routes that an expert has in any layer. */
static int most_routes(const struct mp_bound *bound) {
    double most = 0;
    const double *routes = bound->routes;
    for (int i = 0; i < bound->layers * bound->experts; i++, routes += bound->places) {
        double sum = 0;
        for (int n = 0; n < bound->places; n++)
            sum += routes[n];
        most = fmax(most, sum);
    }
    return (int)fmin(most, INT_MAX);
}

static int take_loads(struct mp_bound *bound, const struct mp_load load[], struct mp_error *error) {
    int layers = bound->layers, places = bound->places;
    size_t pairs = (size_t)layers * (size_t)bound->experts * (size_t)places;
    memset(bound->routes, 0, (pairs + 2 * (size_t)layers * (size_t)places) * sizeof(double));
    for (int i = 0; i < layers * bound->micro_batches; i++) {
        if (load[i].ranks != bound->ranks || load[i].experts != bound->experts)
            return mp_fail(error, MP_EINVAL,
                           "micro-batch %d, layer %d: loads of %d ranks and %d experts, the job "
                           "has %d and %d",
                           i / layers, i % layers, load[i].ranks, load[i].experts, bound->ranks,
                           bound->experts);
        take_layer(bound, i % layers, &load[i]);
    }
    take_ends(bound);
    if (!bound->own_costs)
        draw_chords(bound, most_routes(bound));
    return MP_OK;
}

/* ---- the least at given weights ---- */

static void set_prices(struct mp_bound *bound, int layer) {
    const double *forward = bound->pass[layer].of, *backward = bound->pass[bound->layers - 1].of;
    const double *top = bound->top->of, z = top[0];
    int places = bound->places, ways = bound->serves ? 1 : 2, least = 0, most = 0;
    for (int n = 0; n < places; n++) {
        double back = bound->serves ? 0 : backward[n];
        double back_gate = bound->serves ? 0 : backward[places + n];
        bound->work[n] = z * (forward[n] * bound->line_row[0][n] + back * bound->line_row[1][n]);
        bound->once[n] = z * (forward[n] * bound->line_once[0][n] + back * bound->line_once[1][n]);
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
    int ways = bound->serves ? 1 : 2;
    for (int way = 0; way < ways; way++) {
        double *seconds = bound->seconds[way ? bound->layers - 1 : layer].of;
        seconds[place] += rows * bound->line_row[way][place];
        seconds[bound->places + place] += crossing * bound->row;
    }
    bound->seconds_top->of[1 + place] += ways * crossing * bound->row;
}

static void add_holder(struct mp_bound *bound, int layer, int place) {
    bound->seconds[layer].of[place] += bound->line_once[0][place];
    if (!bound->serves)
        bound->seconds[bound->layers - 1].of[place] += bound->line_once[1][place];
}

/* What so many holders, one of them with the largest hold, make gates carry. */
static void add_hold(struct mp_bound *bound, int place, int sign) {
    bound->seconds_top->of[1 + place] += sign * bound->held;
    bound->seconds_top->of[1 + bound->least_gate] += sign * bound->merged;
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
    size_t places = (size_t)bound->places;
    for (size_t l = 0; l < (size_t)bound->layers; l++) {
        memcpy(bound->seconds[l].of, bound->own + l * places, places * sizeof(double));
        memcpy(bound->seconds[l].of + places, bound->least + l * places, places * sizeof(double));
    }
    bound->seconds_top->of[0] = bound->fixed;
    for (size_t n = 0; n < places; n++)
        bound->seconds_top->of[1 + n] = bound->fixed_stream;
}

/* The update goes where it counts least. */
static void add_update(struct mp_bound *bound) {
    const double *weight = bound->pass[bound->layers - 1].of, *share = bound->least_share;
    int least = 0;
    for (int n = 1; n < bound->places; n++)
        least = weight[n] * share[n] < weight[least] * share[least] ? n : least;
    bound->seconds[bound->layers - 1].of[least] += bound->ranks * share[least] * bound->update;
}

/* The bound at the present weights, and in `seconds` what its split takes everywhere. */
static double evaluate(struct mp_bound *bound) {
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
    for (int l = 0; l < bound->layers; l++)
        bound->seconds_top->of[0] += mp_choice_weighted(&bound->pass[l], &bound->seconds[l]);
    return mp_choice_weighted(bound->top, bound->seconds_top);
}

/* ---- better weights ---- */

/* The bound at the mean of the weights so far, which stay what they are. */
static double look_at_mean(struct mp_bound *bound) {
    double *kept = bound->kept;
    for (int i = 0; i <= bound->layers; kept += bound->top[i++].count) {
        memcpy(kept, bound->top[i].of, (size_t)bound->top[i].count * sizeof *kept);
        mp_choice_take_mean(&bound->top[i]);
    }
    double value = evaluate(bound);
    kept = bound->kept;
    for (int i = 0; i <= bound->layers; kept += bound->top[i++].count)
        memcpy(bound->top[i].of, kept, (size_t)bound->top[i].count * sizeof *kept);
    return value;
}

/* How many of a choice are of the first kind. */
static int first_of(const struct mp_bound *bound, int i) {
    return i ? bound->places : 1;
}

/* With all places alike there is little to choose, and they are much alike. */
static double best_alike(struct mp_bound *bound, int rounds) {
    double best = 0;
    for (int i = 0; i <= bound->layers; i++)
        mp_choice_begin(&bound->kinds[i], 1);
    for (int round = 1; round <= rounds; round++) {
        for (int i = 0; i <= bound->layers; i++) {
            if (round == rounds)
                mp_choice_take_mean(&bound->kinds[i]);
            mp_choice_spread(&bound->kinds[i], first_of(bound, i), &bound->top[i]);
        }
        best = fmax(best, evaluate(bound));
        for (int i = 0; i <= bound->layers; i++)
            mp_choice_improve_kinds(&bound->kinds[i], &bound->seconds_top[i], first_of(bound, i),
                                    round * (i ? bound->top->of[0] : 1));
    }
    return best;
}

static double best_of_each(struct mp_bound *bound, int rounds) {
    double best = 0;
    find_at_home(bound);
    for (int i = 0; i <= bound->layers; i++)
        mp_choice_begin(&bound->top[i], first_of(bound, i));
    for (int round = 1; round <= rounds; round++) {
        best = fmax(best, evaluate(bound));
        double passes = bound->top->of[0];
        for (int i = 0; i <= bound->layers; i++)
            mp_choice_improve(&bound->top[i], &bound->seconds_top[i], round * (i ? passes : 1),
                              ENOUGH * bound->at_home[i]);
        if (round % (rounds / LOOKS + 1) == 0 || round == rounds)
            best = fmax(best, look_at_mean(bound));
    }
    return best;
}

static double work_out(struct mp_bound *bound) {
    int alike = bound->rounds / ALIKE;
    double best = best_alike(bound, alike);
    return fmax(best, best_of_each(bound, bound->rounds - alike));
}

void mp_bound_remember(struct mp_bound *bound, struct mp_known_bounds *known) {
    bound->known = known;
}

int mp_bound_seconds(struct mp_bound *bound, const struct mp_load load[], double *seconds,
                     struct mp_error *error) {
    MP_TRY(take_loads(bound, load, error));
    const double numbers[] = {bound->ranks,  bound->places, bound->layers, bound->experts,
                              bound->rounds, bound->serves, bound->row,    bound->held,
                              bound->merged, bound->update, bound->fixed,  bound->fixed_stream};
    /* And all arrays that work_out reads and does not write: from `routes` to the last line. */
    const struct mp_known_part part[] = {
        {numbers, sizeof numbers / sizeof *numbers},
        {bound->memory, (size_t)(bound->line_row[1] + bound->places - bound->memory)}};
    double *known;
    *seconds = mp_known_bounds_find(bound->known, part, 2, &known) ? *known : work_out(bound);
    if (known)
        *known = *seconds;
    return MP_OK;
}
