#include "baselines/tutel/tutel.h"

#include <string.h>

#include "reference/plan/capacity.h"
#include "reference/plan/groups.h"

#define FIELD(member) offsetof(struct mp_tutel_options, member)

static const struct mp_option option_table[] = {
    {"r", MP_OPTION_COUNT, FIELD(r), "", "1", -1, 4096, NULL,
     "1: experts are on ranks, tokens travel; more: each is cut into so many shards, to all of "
     "which its tokens travel, a divisor of ranks over experts; 0: experts are gathered on every "
     "rank, no token travels; auto: what takes least time by the model; a job's expert-shards "
     "above 1 goes before it"},
    {"capacity-factor", MP_OPTION_DOUBLE, FIELD(capacity_factor), "", "1.0", -1024, 1024, NULL,
     "an expert's capacity for the routes of a rank, over its even share of them; 0: the least "
     "that drops nothing; below 0: the same, at most what its opposite would give"},
    {"exchange", MP_OPTION_CHOICE, FIELD(exchange), "", "auto", 0, 0, "auto flat two-level",
     "auto: by trials of both; flat: as the job says"},
    {"degree", MP_OPTION_COUNT, FIELD(degree), "", "auto", -1, MP_MOST_DEGREE, NULL,
     "chunks that rows are cut into; auto: by trials of 1, 2, 4 and 8; a job's exchange-degree "
     "above 1 goes before it"},
    {"trials", MP_OPTION_INT, FIELD(trials), "iterations", "1", 1, 64, NULL,
     "how long each way is tried for a capacity that is new, in steps of 128"},
    {"message-cost", MP_OPTION_DOUBLE, FIELD(message_cost), "s", "4e-6", 0, 1, NULL,
     "of a message beside its bytes, by which ways are judged; predictions know their cluster's"},
    {0},
};

static const uint64_t MAGIC = UINT64_C(0x324c45545554504d); /* "MPTUTEL2" */

struct tutel {
    struct mp_expert_groups groups; /* first, as its hooks want it */
    struct mp_tutel_options options;
    struct mp_setting setting;
    /* What is open: flat, then two-level, each with all degrees. */
    int kinds, degrees; /* 1: it is given */
    bool two_level;     /* given */
    int degree;         /* given; 0: as the job says */
    size_t keys;
    uint16_t *tried; /* [keys] iterations of trials so far, at most trials of each way */
    bool *seen;      /* [keys] in the step at hand */
};

/* ---- capacity ---- */

/* Rounded up to as many pieces as there are ranks of an expert, each of which takes one. */
static int64_t aligned(const struct mp_setting *setting, int64_t capacity) {
    int64_t alignment = setting->topology.ranks / mp_setting_whole_experts(setting);
    if (alignment <= 1)
        return capacity;
    if (alignment > 256)
        alignment = (alignment + 127) / 128 * 128;
    return (capacity + alignment - 1) / alignment * alignment;
}

static int64_t capacity_of(const struct mp_setting *setting, double factor) {
    const struct mp_capacity_sizes sizes = mp_capacity_sizes_of(setting, factor);
    return aligned(setting, mp_capacity(MP_CAPACITY_TUTEL, &sizes));
}

/* The most that any load asks for: a token goes to different experts. */
static int64_t most_capacity(const struct mp_setting *setting,
                             const struct mp_tutel_options *options) {
    double factor = options->capacity_factor;
    if (factor > 0)
        return capacity_of(setting, factor);
    int64_t tokens = aligned(setting, setting->tokens_per_rank);
    int64_t cap = factor < 0 ? capacity_of(setting, -factor) : tokens;
    return cap < tokens ? cap : tokens;
}

static int64_t capacity_for(const struct tutel *self, const struct mp_load *load) {
    int64_t most = most_capacity(&self->setting, &self->options);
    int64_t largest = aligned(&self->setting, mp_load_largest(load));
    return self->options.capacity_factor > 0 || largest > most ? most : largest;
}

/* ---- what it is asked ---- */

double mp_tutel_seconds(const struct mp_setting *setting, double message_cost, int ranks,
                        enum mp_exchange_kind kind, double bytes) {
    int per_node = setting->topology.ranks_per_node;
    double inside = ranks < per_node ? ranks : per_node, nodes = ranks / inside;
    double far = bytes / setting->bandwidth, near = bytes / setting->bandwidth_in_node;
    if (kind == MP_EXCHANGE_TWO_LEVEL)
        return (inside - 1) * (message_cost + nodes * near) +
               (nodes - 1) * (message_cost + inside * far);
    double between = (ranks - inside) * (message_cost + far);
    double within = (inside - 1) * (message_cost + near);
    return between > within ? between : within;
}

double mp_tutel_way_seconds(const struct mp_setting *setting, double message_cost, int ranks,
                            enum mp_exchange_kind kind, int degree, double bytes, double rows,
                            int experts) {
    double travel = mp_tutel_seconds(setting, message_cost, ranks, kind, bytes / degree), sum = 0;
    double forward =
        rows / degree * setting->seconds_per_route + experts * setting->seconds_per_expert;
    for (int direction = 1; direction <= (setting->forward_only ? 1 : 2); direction++) {
        double computed = 0, lane = degree * travel;
        for (int chunk = 0; chunk < degree; chunk++) {
            double here = (chunk + 1) * travel;
            computed = (computed > here ? computed : here) + direction * forward;
            lane = (lane > computed ? lane : computed) + travel;
        }
        sum += lane;
    }
    return sum;
}

/* Ranks that have all of every expert, cut into r shards, once. */
static int ranks_of_group(const struct mp_setting *setting, int r) {
    int shards = mp_setting_whole_experts(setting) * r;
    return setting->topology.ranks < shards ? setting->topology.ranks : shards;
}

/* Sums of the gradients that each rank of a group has, over all groups: to owners and back. */
static double sum_seconds(const struct mp_setting *setting, double message_cost, int group) {
    double bytes = (double)setting->experts * (double)setting->gradient_bytes / group;
    return setting->topology.ranks > group && !setting->forward_only
               ? 2 * (message_cost + bytes / setting->bandwidth)
               : 0;
}

double mp_tutel_travel_seconds(const struct mp_setting *setting,
                               const struct mp_tutel_options *options, int r) {
    int ranks = setting->topology.ranks, shards = mp_setting_whole_experts(setting) * r;
    int group = ranks_of_group(setting, r);
    if (r == 0)
        return setting->experts *
               (double)((setting->forward_only ? 1 : 2) * setting->expert_bytes +
                        setting->gradient_bytes) *
               (ranks - 1) / ranks / setting->bandwidth;
    double factor = options->capacity_factor > 0 ? options->capacity_factor : 1;
    double bytes =
        (double)capacity_of(setting, factor) * shards / group * (double)setting->route_bytes;
    double flat = mp_tutel_seconds(setting, options->message_cost, group, MP_EXCHANGE_FLAT, bytes);
    double levels =
        mp_tutel_seconds(setting, options->message_cost, group, MP_EXCHANGE_TWO_LEVEL, bytes);
    return mp_passes_of_travel(setting->forward_only) *
               (options->exchange != MP_TUTEL_FLAT && levels < flat ? levels : flat) +
           sum_seconds(setting, options->message_cost, group);
}

/* Whether a group of ranks can have all experts cut so. */
static bool divides(const struct mp_setting *setting, int r) {
    return setting->topology.ranks % (mp_setting_whole_experts(setting) * r) == 0 &&
           setting->expert_width % r == 0;
}

/* What takes least time: 1, then 0, then up to `most` where several do. */
static int choose_r(const struct mp_setting *setting, const struct mp_tutel_options *options,
                    int most) {
    if (options->r != MP_AUTO)
        return options->r;
    int best = 1;
    double least = mp_tutel_travel_seconds(setting, options, 1);
    for (int r = 0; r <= most; r += r == 0 ? 2 : 1) {
        double seconds =
            r == 0 || divides(setting, r) ? mp_tutel_travel_seconds(setting, options, r) : least;
        if (seconds < least) {
            best = r;
            least = seconds;
        }
    }
    return best;
}

/* The setting's messages go before the option's. */
static struct mp_tutel_options own_options(const struct mp_setting *setting, const void *parsed) {
    struct mp_tutel_options own = *(const struct mp_tutel_options *)parsed;
    if (setting->knows_messages)
        own.message_cost = setting->message_seconds;
    return own;
}

static int tutel_shards(const struct mp_setting *setting, const void *parsed) {
    const struct mp_tutel_options options = own_options(setting, parsed);
    return choose_r(setting, &options, setting->topology.ranks / setting->experts);
}

static int check(const struct mp_setting *setting, const struct mp_tutel_options *options,
                 struct mp_error *error) {
    int shards = mp_setting_shards(setting), whole = mp_setting_whole_experts(setting);
    if (options->r > 1 && shards == options->r && !divides(setting, shards))
        return mp_fail(error, MP_EINVAL,
                       "tutel's r %d is no divisor of the ranks that an expert can have: %d ranks "
                       "over %d experts make %d",
                       options->r, setting->topology.ranks, whole,
                       (setting->topology.ranks + whole - 1) / whole);
    if (options->r > 1 && shards == 1)
        return mp_fail(error, MP_EINVAL, "tutel with r %d needs experts that are cut into shards",
                       options->r);
    if (options->degree != MP_AUTO && (options->degree < 1 || options->degree > MP_MOST_DEGREE))
        return mp_fail(error, MP_EINVAL, "tutel's degree is 1 to %d, or auto", MP_MOST_DEGREE);
    return mp_capacity_check("tutel", setting, options->capacity_factor,
                             most_capacity(setting, options), error);
}

static int tutel_create(void *opaque, const struct mp_setting *setting, const void *parsed,
                        struct mp_error *error) {
    const struct mp_tutel_options own = own_options(setting, parsed);
    const struct mp_tutel_options *options = &own;
    const struct mp_topology *topology = &setting->topology;
    struct tutel *self = opaque;
    struct mp_arena *memory = mp_system_arena(self);
    int r = mp_setting_shards(setting);
    MP_TRY(check(setting, options, error));
    if (r == 1)
        r = choose_r(setting, options, 1);
    MP_TRY(mp_expert_groups_create("tutel", setting, r == 0 ? 1 : MP_AUTO, &self->groups, error));
    const int group = self->groups.group;
    /* Groups inside nodes, and nodes of one rank, have one level only. */
    bool levels = topology->ranks_per_node > 1 && group > topology->ranks_per_node;
    self->options = *options;
    self->options.r = r;
    self->setting = *setting;
    bool open = options->degree == MP_AUTO && setting->exchange_degree <= 1 && group > 1;
    self->kinds = levels && options->exchange == MP_TUTEL_AUTO ? 2 : 1;
    self->two_level = levels && options->exchange == MP_TUTEL_TWO_LEVEL;
    self->degrees = open ? MP_TUTEL_DEGREES : 1;
    if (setting->exchange_degree <= 1)
        self->degree = options->degree == MP_AUTO ? 1 : options->degree;
    if (self->kinds * self->degrees > 1)
        self->keys = (size_t)(most_capacity(setting, options) / MP_TUTEL_KEY) + 1;
    MP_TAKE_EACH(memory, self->keys + 1, self->tried, self->seen);
    return MP_OK;
}

/* ---- where experts are ---- */

static void tutel_policy(const void *opaque, struct mp_policy *policy) {
    const struct tutel *self = opaque;
    mp_expert_groups_policy(&self->groups, policy);
    policy->route_order = MP_ROUTES_BY_CHOICE;
    if (self->options.r == 0) {
        policy->optimizer = MP_OPTIMIZER_SLICES;
        policy->gather_before_gate = policy->rematerialise = true;
    }
}

static int tutel_copies_limit(const void *opaque) {
    const struct tutel *self = opaque;
    /* Replicas persist and no plan adds any; with slices all that is held is put together. */
    return self->options.r == 0 ? self->groups.each : 0;
}

static int64_t tutel_padding_limit(const struct mp_setting *setting, const void *options) {
    return most_capacity(setting, options);
}

/* ---- plans ---- */

static size_t key_of(const struct tutel *self, int64_t capacity) {
    size_t key = (size_t)(capacity / MP_TUTEL_KEY);
    return key < self->keys ? key : self->keys - 1;
}

static int ways_of(const struct tutel *self) {
    return self->kinds * self->degrees;
}

static bool in_two_levels(const struct tutel *self, int way) {
    return self->two_level || way >= self->degrees;
}

static int degree_of(const struct tutel *self, int way) {
    return self->degrees > 1 ? 1 << way % self->degrees : self->degree;
}

/* How rows of such a capacity travel: all ways are tried, one after the other, then the fastest is
 * taken, of several the first. */
static int choose_way(const struct tutel *self, int64_t capacity) {
    const struct mp_expert_groups *groups = &self->groups;
    const struct mp_setting *setting = &self->setting;
    size_t key = key_of(self, capacity);
    int best = 0;
    if (self->tried[key] < ways_of(self) * self->options.trials)
        return self->tried[key] / self->options.trials;
    double rows = ((double)key + 0.5) * MP_TUTEL_KEY * groups->each, least = 0;
    for (int way = 0; way < ways_of(self); way++) {
        int degree = degree_of(self, way);
        double seconds = mp_tutel_way_seconds(
            setting, self->options.message_cost, groups->group,
            in_two_levels(self, way) ? MP_EXCHANGE_TWO_LEVEL : MP_EXCHANGE_FLAT,
            degree > 0 ? degree : setting->exchange_degree, rows * (double)setting->route_bytes,
            rows * groups->group, groups->each);
        if (way == 0 || seconds < least) {
            best = way;
            least = seconds;
        }
    }
    return best;
}

static int tutel_before_gate(void *opaque, struct mp_plan *plan, struct mp_error *error) {
    const struct tutel *self = opaque;
    (void)error;
    if (in_two_levels(self, ways_of(self) - 1))
        plan->exchange = MP_EXCHANGE_TWO_LEVEL;
    if (self->degree > 0)
        plan->degree = degree_of(self, ways_of(self) - 1);
    return MP_OK;
}

static int tutel_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                            struct mp_error *error) {
    const struct tutel *self = opaque;
    int64_t capacity = capacity_for(self, load);
    plan->source_capacity = plan->padding = capacity;
    int way = ways_of(self) > 1 ? choose_way(self, capacity) : 0;
    if (self->kinds > 1 && !in_two_levels(self, way))
        plan->exchange = MP_EXCHANGE_FLAT;
    if (self->degree > 0)
        plan->degree = degree_of(self, way);
    return mp_expert_groups_dispatch(&self->groups, load, plan, error);
}

/* A key is tried once per iteration, however many layers have it. */
static int tutel_after_step(void *opaque, int64_t iteration, const struct mp_load load[],
                            const struct mp_placement home[], struct mp_rehome *change,
                            struct mp_error *error) {
    struct tutel *self = opaque;
    (void)iteration, (void)home, (void)change, (void)error;
    if (ways_of(self) == 1)
        return MP_OK;
    memset(self->seen, 0, self->keys * sizeof *self->seen);
    for (int layer = 0; layer < self->setting.layers; layer++) {
        size_t key = key_of(self, capacity_for(self, &load[layer]));
        if (!self->seen[key] && self->tried[key] < ways_of(self) * self->options.trials)
            self->tried[key]++;
        self->seen[key] = true;
    }
    return MP_OK;
}

/* ---- restarts ---- */

static size_t tutel_save(const void *opaque, void *buffer, size_t size) {
    const struct tutel *self = opaque;
    const uint64_t head[2] = {MAGIC, self->keys};
    size_t bytes = self->keys * sizeof *self->tried;
    if (size >= sizeof head + bytes) {
        memcpy(buffer, head, sizeof head);
        if (bytes > 0)
            memcpy((unsigned char *)buffer + sizeof head, self->tried, bytes);
    }
    return sizeof head + bytes;
}

/* Other ranks have other tokens and so other keys: those of both are kept. */
static int tutel_load(void *opaque, const void *buffer, size_t size, struct mp_error *error) {
    struct tutel *self = opaque;
    uint64_t head[2] = {0};
    memcpy(head, buffer, size < sizeof head ? size : sizeof head);
    if (size < sizeof head || head[0] != MAGIC ||
        head[1] != (size - sizeof head) / sizeof *self->tried || size % sizeof *self->tried)
        return mp_fail(error, MP_EFORMAT, "this is no state of the system tutel");
    size_t keys = head[1] < self->keys ? head[1] : self->keys;
    memset(self->tried, 0, self->keys * sizeof *self->tried);
    memcpy(self->tried, (const unsigned char *)buffer + sizeof head, keys * sizeof *self->tried);
    return MP_OK;
}

const struct mp_system mp_system_tutel = {
    .abi = MP_SYSTEM_ABI,
    .name = "tutel",
    .title = "Tutel: dynamic capacity, exchange and degree chosen by trials",
    .source = "Tutel, arXiv 2206.03382; microsoft/tutel",
    .models = "Modelled: contiguous placement that never changes, capacity in the released code's "
              "arithmetic, fixed, or as small as drops nothing, or that up to a limit; slots for "
              "second choices after all first ones, weights as the gate gives them, rows copied "
              "into a padded layout; flat or two-level exchange in 1, 2, 4 or 8 chunks, under the "
              "experts' work, from a dictionary by capacity, filled by trials in the first "
              "iterations of a key, whose times are a model's, since planners see no clock; r = 1, "
              "experts on ranks and replicas over groups of them; r above 1, every expert cut into "
              "as many shards, on ranks of their own, to all of which its tokens go, and replicas "
              "over fewer groups; r = 0, parameters gathered and gradients scattered with no token "
              "travelling; or of these what a model of bytes and messages finds fastest. Not "
              "modelled: changing r in a run; that a rank could pass a token's row on to the other "
              "shards of its expert, as rows go to each by themselves; priority of batches by "
              "probability and the cosine gate; that its flexible layout keeps products large: "
              "experts' products here always have all rows of an expert.",
    .capabilities =
        MP_SYSTEM_REPLICATES | MP_SYSTEM_DROPS | MP_SYSTEM_MORE_RANKS | MP_SYSTEM_PLANS_BEFORE_GATE,
    .options = option_table,
    .options_size = sizeof(struct mp_tutel_options),
    .shards = tutel_shards,
    .size = sizeof(struct tutel),
    .create = tutel_create,
    .initial_owners = mp_expert_groups_owners,
    .initial_holders = mp_expert_groups_holders,
    .policy = tutel_policy,
    .copies_limit = tutel_copies_limit,
    .padding_limit = tutel_padding_limit,
    .before_gate = tutel_before_gate,
    .after_gate = tutel_after_gate,
    .after_step = tutel_after_step,
    .save = tutel_save,
    .load = tutel_load,
};
