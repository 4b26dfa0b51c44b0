/* System: a planner.  It looks at loads and fills plans; it never moves a byte.
 *
 * A system's decisions are pure functions of (setting, options, loads seen so far): every rank
 * calls the same functions with the same arguments and the plans must come out equal, in the
 * trainer, in the predictor, today and tomorrow.  No communication, no clock, no random numbers
 * that are not seeded from the setting.  before_gate and after_gate also plan validation batches
 * and may be called more than once for an iteration: what is learnt from loads is learnt in
 * after_step. Time spent in these functions is recorded as phase "plan". */
#pragma once

#include "reference/base/arena.h"
#include "reference/base/option.h"
#include "reference/plan/named.h"
#include "reference/plan/plan.h"
#include "reference/plan/rehome.h"

enum { MP_SYSTEM_ABI = 5 };

/* What a system may do to a run.  Checked against its functions once, at registration. */
enum mp_system_capability {
    MP_SYSTEM_REPLICATES = 1 << 0,        /* experts have holders beside their owner */
    MP_SYSTEM_DROPS = 1 << 1,             /* routes may be dropped */
    MP_SYSTEM_CHANGES_GATE = 1 << 2,      /* tokens may end at other experts than the gate chose */
    MP_SYSTEM_MOVES_OWNERS = 1 << 3,      /* homes change between iterations: needs after_step */
    MP_SYSTEM_PLANS_BEFORE_GATE = 1 << 4, /* needs before_gate */
    MP_SYSTEM_UNEVEN_EXPERTS = 1 << 5,    /* works when experts % ranks != 0 */
    MP_SYSTEM_MORE_RANKS = 1 << 6,        /* works with more ranks than experts */
    MP_SYSTEM_UNATTAINABLE = 1 << 7,      /* a yardstick, no system: marked so in every table */
    MP_SYSTEM_USES_TRANSITIONS = 1 << 8,  /* after_step is given the loads' `next` */
    MP_SYSTEM_CAPABILITIES = (1 << 9) - 1
};
/* Name of one capability bit: "replicates", ...; NULL for an unknown bit. */
const char *mp_system_capability_name(unsigned bit);

/* What a system may know about the run.  The same on every rank: measured figures are taken on
 * rank 0 before the first iteration and broadcast. */
struct mp_setting {
    /* Of each of the gate's experts, which are E / shards, as its choices are top_k / shards: shard
     * s of expert e is expert s * E / shards + e.  Routes to all shards of an expert are the same,
     * and are dropped together.  0, 1: experts are whole. */
    int shards;
    int expert_width;            /* hidden elements of one of the gate's experts; 0: not known */
    int layers;                  /* MoE layers, L */
    int experts;                 /* per layer, E */
    int top_k;                   /* routes per token */
    bool fixed_choices;          /* the gate has a rule of its own: no plan may limit its choices */
    bool choices_apart;          /* the gate has experts for each choice, and no expert for two */
    struct mp_topology topology; /* R and G */
    int exchange;                /* mp_exchange_kind of rows where a system's plan leaves it flat */
    int exchange_degree;         /* chunks of rows that the job asks for; 0, 1: plans say it */
    enum mp_weights_behind weights_behind;
    int micro_batches;       /* of an iteration, each with plans of its own; 0, 1: one */
    int64_t tokens_per_rank; /* of a micro-batch */
    bool forward_only;       /* serving: no backward, no update; experts move all the same */
    int64_t expert_bytes;    /* parameters of one expert, B */
    int64_t gradient_bytes;  /* their gradient, B; 0 in serving */
    int64_t route_bytes;     /* one token row, one direction, B */
    int64_t attention_bytes; /* gradient of a block's attention, which all ranks sum, B */
    uint64_t seed;
    double bandwidth;          /* of a broadcast between nodes (or ranks, if one node), B/s */
    double bandwidth_in_node;  /* of one to the ranks of a node; of one rank each: as above, B/s */
    double seconds_per_route;  /* forward of one route through one expert on one rank, s */
    double seconds_per_expert; /* forward of an expert beside its routes: reading parameters, s */
    double non_moe_seconds;    /* forward of a block without its MoE part, s */
    double copies_memory;      /* that a rank has left for copies, B; 0: not known, no limit */
    bool knows_messages;       /* what follows is known: of predictions, as their cluster says */
    double message_seconds;    /* of a message between nodes (or ranks) beside its bytes, s */
    double latency;            /* of its first byte, s; 0: bandwidths have it in them */
    double latency_in_node;    /* likewise inside a node; of one rank each: as above */
    int ranks_per_gate;        /* neighbours that share one way to other nodes (or ranks) */
};
static inline int mp_setting_shards(const struct mp_setting *setting) {
    return setting->shards > 1 ? setting->shards : 1;
}
/* How often an iteration computes what forward computes of an expert's routes (backward: gradients
 * of inputs and of weights), and how often a route's row crosses: there and back, forward and
 * backward. What systems' cost models count. */
static inline int mp_passes_of_compute(bool forward_only) {
    return forward_only ? 1 : 3;
}
static inline int mp_passes_of_travel(bool forward_only) {
    return forward_only ? 2 : 4;
}
/* Experts that the gate chooses among, and how many for a token: what capacities are of. */
static inline int mp_setting_whole_experts(const struct mp_setting *setting) {
    return setting->experts / mp_setting_shards(setting);
}
static inline int mp_setting_choices(const struct mp_setting *setting) {
    return setting->top_k / mp_setting_shards(setting);
}
/* Of these the measured figures, by the names under which a run keeps them. */
extern const struct mp_named_number mp_setting_figures[];
static inline double *mp_setting_figure(struct mp_setting *setting,
                                        const struct mp_named_number *figure) {
    return (double *)((char *)setting + figure->offset);
}

struct mp_system {
    int abi;            /* MP_SYSTEM_ABI */
    const char *name;   /* lower case, one word */
    const char *title;  /* one line */
    const char *source; /* paper and section, or code */
    const char *models; /* what of the source is modelled, what is not: some sentences */
    unsigned capabilities;
    /* By which its rows travel where it leaves a plan's exchange flat: a job's has to be flat, or
     * the same.  Flat (0): by the job's. */
    enum mp_exchange_kind exchange;
    const struct mp_option *options; /* table, or NULL for none */
    size_t options_size;             /* bytes of the options struct */

    /* Optional.  Into how many shards every expert is to be cut, of a job that leaves them whole
     * (1, or what has no meaning: they stay whole).  Asked once, before everything else, with that
     * job's setting, whose figures need not be measured; the setting that follows has them cut. */
    int (*shards)(const struct mp_setting *setting, const void *options);

    /* Required.  Fills `self`, `size` zeroed bytes; tables come from mp_system_arena(self).
     * Layers, experts and ranks are at least 1, as are choices, tokens and bytes of a job, and
     * ranks divide experts unless the system claims to do without.  `options` (options_size bytes,
     * parsed) is borrowed during the call only. Errors: MP_EINVAL with the constraint and the
     * numbers when the system can't do what it is asked; MP_ENOMEM, without a sentence where it is
     * its memory that lacks. */
    size_t size;
    int (*create)(void *self, const struct mp_setting *setting, const void *options,
                  struct mp_error *error);
    /* Optional.  Frees what is not of its memory, also behind a create that failed. */
    void (*destroy)(void *self);

    /* Optional; mp_even_owners without it.  Owners before the first iteration, owner is
     * [layers][experts]. */
    void (*initial_owners)(const void *self, int32_t owner[]);
    /* Optional.  Adds the holders beside the owners that experts have before the first iteration;
     * home is [layers], with the initial owners as only holders. */
    void (*initial_holders)(const void *self, struct mp_placement home[]);

    /* What is the same in all plans of the run: mp_policy_plain, but with this optimizer, and with
     * what the function changes of both, if there is one.  Asked once, after create. */
    enum mp_optimizer_split optimizer;
    void (*policy)(const void *self, struct mp_policy *policy);

    /* Required if MP_SYSTEM_REPLICATES, unless the optimizer is replicated and no plan adds copies.
     * The most extra copies that one rank will hold of one layer, 0 .. experts: memory for them is
     * allocated before the first iteration.  With a sliced optimizer: the most experts of one layer
     * that one rank will hold at all. */
    int (*copies_limit)(const void *self);
    /* Optional.  The most experts over all layers whose parameters and optimizer state one rank
     * will keep between iterations, replicas included; without it the larger of ceil(layers *
     * experts / ranks) and what the initial homes need.  Not asked with a sliced optimizer. */
    int (*homes_limit)(const void *self);
    /* Optional.  The largest plan.padding of the run; asked before create, with no figure measured
     * yet, as buffers are made for it. */
    int64_t (*padding_limit)(const struct mp_setting *setting, const void *options);

    /* Required if MP_SYSTEM_PLANS_BEFORE_GATE.  Called per layer before its attention, after
     * mp_plan_begin, whose plan has what stayed from the micro-batch before: adds copies with stage
     * MP_STAGE_BEFORE_GATE, and sets an exchange of several rounds and its highest degree (for
     * which the trainer makes room; after_gate may still make it flat, and the degree lower unless
     * it deduplicates), where they differ from the plan's start.
     */
    int (*before_gate)(void *self, struct mp_plan *plan, struct mp_error *error);

    /* Required.  Called per layer when its loads are known and nothing has been dispatched: may add
     * copies with stage MP_STAGE_AFTER_GATE and must fill the dispatch. */
    int (*after_gate)(void *self, const struct mp_load *load, struct mp_plan *plan,
                      struct mp_error *error);

    /* Required if MP_SYSTEM_MOVES_OWNERS, allowed otherwise.  Called once per iteration after the
     * optimizer with the loads of all layers ([layers]) and the present homes ([layers]).  What is
     * to change is written into change->next; see rehome.h. */
    int (*after_step)(void *self, int64_t iteration, const struct mp_load load[],
                      const struct mp_placement home[], struct mp_rehome *change,
                      struct mp_error *error);

    /* Optional, both or neither.  Numbers that are recorded with an iteration beside those of its
     * plans: `facts` names the members of the struct that `found` gives, which is what the last
     * after_step found out; NULL: nothing. */
    const struct mp_named_number *facts;
    const void *(*found)(const void *self);

    /* State that must survive a restart (window sums and the like), so that a restored run plans as
     * the unbroken one would.  Both or neither.  save writes at most `size` bytes and returns the
     * bytes needed; load returns MP_EFORMAT if the bytes are not its own.  State is a function of
     * loads only, so it is valid under any number of ranks. */
    size_t (*save)(const void *self, void *buffer, size_t size);
    int (*load)(void *self, const void *buffer, size_t size, struct mp_error *error);
};

/* By which rows travel where the system leaves a plan's exchange flat. */
static inline enum mp_exchange_kind mp_system_exchange(const struct mp_system *system, int of_job) {
    return system->exchange ? system->exchange : (enum mp_exchange_kind)of_job;
}

/* The policy of a run with such a system and setting: asks it. */
void mp_system_policy(const struct mp_system *system, const void *self,
                      const struct mp_setting *setting, struct mp_policy *policy);

/* The system for such a job; *self is NULL on errors.  These are: MP_EREFUSED with the sentence of
 * its create where that says MP_EINVAL, if it pads rows and the setting's exchange takes none, or
 * has another exchange than the setting, or one that does not take the setting's degree; else
 * create's own. */
int mp_system_create(const struct mp_system *system, const struct mp_setting *setting,
                     const void *options, void **self, struct mp_error *error);
void mp_system_destroy(const struct mp_system *system, void *self); /* accepts NULL */
/* Of a system that mp_system_create makes or made. */
struct mp_arena *mp_system_arena(void *self);
/* What the trainer, the predictor, tests and benchmarks do before a layer's gate: mp_plan_begin
 * of a plan with the system's policy, then before_gate if there is one.  Errors: the hook's;
 * MP_EPLAN if an expert has a holder beside its owner and the system does not declare
 * MP_SYSTEM_REPLICATES. */
int mp_system_begin_plan(const struct mp_system *system, void *self, int64_t iteration, int layer,
                         const struct mp_placement *home, struct mp_plan *plan,
                         struct mp_error *error);
/* And after it: after_gate.  The same errors, and MP_EPLAN for copies of another stage. */
int mp_system_end_plan(const struct mp_system *system, void *self, const struct mp_load *load,
                       struct mp_plan *plan, struct mp_error *error);
/* Homes before the first iteration: initial_owners, or mp_even_owners, then initial_holders if
 * there is one.  home is [layers], created. */
int mp_system_initial_homes(const struct mp_system *system, const void *self, int layers,
                            struct mp_placement home[], struct mp_error *error);

/* Shards of an expert for a job with this setting: its own number if that is above 1, else what the
 * system wants. */
int mp_system_shards(const struct mp_system *system, const struct mp_setting *setting,
                     const void *options);

/* The largest plan.padding of a run: padding_limit of a setting without its measured figures, which
 * are not known yet where buffers are made; 0 without the function. */
int64_t mp_system_padding_limit(const struct mp_system *system, const struct mp_setting *setting,
                                const void *options);

/* The registry: fixed capacity, filled at start-up, no duplicates. */
enum { MP_SYSTEMS_LIMIT = 64 };
struct mp_systems {
    const struct mp_system *item[MP_SYSTEMS_LIMIT];
    int count;
};

/* Checks ABI, name (non-empty, lower case, unique), title, source, required functions, functions
 * against capabilities, option table against options_size.  The message names system and rule. */
int mp_systems_register(struct mp_systems *systems, const struct mp_system *system,
                        struct mp_error *error);

/* The system of this name, or NULL with MP_ENOTFOUND and the nearest name in `error`. */
const struct mp_system *mp_systems_find(const struct mp_systems *systems, const char *name,
                                        struct mp_error *error);
