/* Job: everything one training run depends on, one file.
 *
 * A job file is a YAML mapping from the names of mp_job_options to values, plus `options:`, a
 * mapping of the system's own options, and `gate-options:`, those of the gate.  The same table
 * gives --help, --set, suite files and the fingerprint kept with the run. */
#pragma once

#include <stdio.h>

#include "reference/base/yaml.h"
#include "reference/gate/gate.h"
#include "reference/plan/system.h"

enum mp_job_renormalise { MP_RENORMALISE_AUTO, MP_RENORMALISE_NO, MP_RENORMALISE_YES };
enum mp_job_device { MP_DEVICE_CPU, MP_DEVICE_CUDA };
enum mp_job_precision { MP_PRECISION_FP32, MP_PRECISION_BF16 };
enum mp_job_transport { MP_TRANSPORT_AUTO, MP_TRANSPORT_MPI, MP_TRANSPORT_NCCL };
enum mp_job_gather { MP_GATHER_TREES, MP_GATHER_BROADCASTS };
enum mp_job_mode { MP_MODE_TRAIN, MP_MODE_PREFILL, MP_MODE_DECODE };
enum mp_job_routing {
    MP_ROUTING_GATE,
    MP_ROUTING_BALANCED,
    MP_ROUTING_SKEWED,
    MP_ROUTING_LOAD,
    MP_ROUTING_TRACE
};

struct mp_job {
    char name[MP_TEXT_SIZE];   /* of the job, for people */
    char system[MP_TEXT_SIZE]; /* "ep", "fssdp", ... */
    int ranks;                 /* R; must equal the number of processes */
    int ranks_per_node;        /* G, declared; MP_ALL: as `nodes` says */
    int nodes;                 /* declared; 0: as ranks_per_node says, or one */

    /* Model. */
    int layers, width, heads, experts, expert_width, sequence;
    /* Into how many every expert is cut along its hidden elements (expert tensor parallelism, as
     * Megatron-LM has it): shard s of expert e is expert s * experts + e of plans, and each of a
     * token's routes becomes one to every shard, whose outputs add up.  Gates, loads, traces and
     * checkpoints have whole experts. */
    int expert_shards;
    int shared_experts; /* that every token goes through on its own rank, without a weight */
    int gate;           /* of mp_gate_kinds */
    int top_k;       /* experts of a token, 1 .. MP_CHOICES_LIMIT; MP_ALL: every one; MP_AUTO: the
                        gate's usual number */
    int renormalise; /* enum mp_job_renormalise: whether weights are divided by their sum, with a
                        gate that leaves it open.  AUTO: from two choices on, as Mixtral, Qwen3-MoE,
                        Megatron-LM (softmax after selection) and Tutel have it; DeepSeek-V2,
                        Qwen2-MoE and OLMoE don't */
    struct mp_gate_values gate_options; /* parsed, of that gate */
    double auxiliary_weight;            /* of the gate's balancing loss */
    int exchange;        /* enum mp_exchange_kind, of systems whose rows travel in one go */
    int exchange_degree; /* chunks of rows, or tokens; 1: whole, or as the system says */
    int weights_behind;  /* enum mp_weights_behind */

    /* Data. */
    int mode;    /* enum mp_job_mode: training, or serving, which is forward only */
    int context; /* serving: tokens of every sequence that its cache has before a step */
    int batch;   /* sequences per iteration over all ranks; a multiple of ranks */
    char text[MP_TEXT_SIZE]; /* files or folders, separated by ':' */
    double validation_share; /* of the text, its tail */
    int validate_every;      /* iterations; 0: never */
    int validation_batches;

    /* Routing: by the gate, or replayed so that every system meets the same loads.  The gate still
     * gives the weights, so gradients stay real. */
    int routing;       /* enum mp_job_routing */
    double skew_share; /* SKEWED: share of routes on the first skew_experts experts */
    int skew_experts;
    char load[MP_TEXT_SIZE]; /* LOAD: routes per expert, "a,b,c;d,e,f", one row per source rank */
    /* TRACE: each iteration, layer and rank has the counts of a recorded or generated one.  Who
     * starts the ranks turns `trace` (a file, or a generator with its options) into the other two;
     * ranks read trace_loads alone. */
    char trace[MP_TEXT_SIZE];
    char trace_digest[MP_TEXT_SIZE]; /* of the whole trace, "" until somebody has read it */
    char trace_loads[MP_TEXT_SIZE];  /* loads file (loads_file.h) */

    /* Training. */
    int64_t iterations;
    double target_loss; /* training ends when it is reached (target.h); 0: none */
    int target_window;  /* iterations over whose mean */
    double learning_rate, beta1, beta2, epsilon, weight_decay;
    int64_t seed;

    /* Checkpoints. */
    char checkpoint[MP_TEXT_SIZE]; /* folder to write; "" for none */
    int checkpoint_every;          /* iterations; 0: at the end only */
    char restore[MP_TEXT_SIZE];    /* folder to start from; "" for none */

    /* Running. */
    int threads;               /* per rank, for matrix work */
    int device;                /* enum mp_job_device */
    int precision;             /* enum mp_job_precision: of what products read and activations */
    int transport;             /* enum mp_job_transport */
    int gather;                /* enum mp_job_gather: sparse collectives of nccl */
    int grouped_products;      /* enum mp_grouped_products, of device cuda */
    bool check_plans;          /* plan_check on every plan */
    bool record;               /* write spools */
    bool record_routes;        /* the experts of every token, too */
    double bandwidth;          /* B/s that planners assume; 0: measured at start */
    double bandwidth_in_node;  /* likewise, between ranks of a node; 0: see the option */
    double copies_memory;      /* B that a rank has for copies; 0: see the option */
    double expert_rate;        /* flop/s of expert GEMMs that planners assume; 0: measured */
    double non_moe_seconds;    /* forward of a block without its experts; 0: measured */
    char inject[MP_TEXT_SIZE]; /* a delay put in on purpose (inject.h); "": none */
};

extern const struct mp_option mp_job_options[]; /* one row per field above, but gate_options */

/* A job and its system with parsed options. */
struct mp_job_file {
    struct mp_job job;
    const struct mp_system *system; /* borrowed from the registry */
    void *system_options;           /* system->options_size bytes, owned; NULL if it has none */
};

/* Defaults only; the system is looked up when it is set. */
int mp_job_file_create(struct mp_job_file *file, struct mp_error *error);
void mp_job_file_destroy(struct mp_job_file *file); /* accepts a zeroed one */
MP_END(job_file, struct mp_job_file, mp_job_file_destroy(it))

/* Applies a mapping of job options (keys of mp_job_options, `options:` and `gate-options:`) to a
 * job, and of options that others keep beside it: at the top of the mapping or under a key of their
 * own (`more`, ended by no key; NULL: none).  `path` goes into messages.  Lists for `text` and
 * `load` become text.  `system` and `gate` may appear anywhere in the mapping: they are applied
 * first; setting another one resets its options to defaults.  Can be called several times:
 * defaults, then a suite's common part, then the job's own. Errors: MP_EINVAL "path:line: ..." for
 * unknown keys (with the nearest known), wrong types and ranges; MP_ENOTFOUND for unknown systems.
 */
int mp_job_apply(struct mp_job_file *file, const struct mp_option_group more[],
                 const struct mp_yaml *mapping, const char *path, const struct mp_systems *systems,
                 struct mp_error *error);

/* One "key=value" from --set; system options are "options.key=value", a gate's
 * "gate-options.key=value", and others' those of their own key. */
int mp_job_set(struct mp_job_file *file, const struct mp_option_group more[],
               const char *assignment, const struct mp_systems *systems, struct mp_error *error);

enum { MP_GATE_EXPERTS = 1024 }; /* most of a job that trains (device.h) */

/* Constraints between options that one row can't state: batch a multiple of ranks, width of heads,
 * routing feasible, text given; and last, as MP_EREFUSED, what its system can't do: more ranks than
 * experts or experts that ranks don't divide, where it needs that, and what its create function
 * refuses.  Each message names the constraint and the numbers.  Touches no file. */
int mp_job_check(const struct mp_job_file *file, struct mp_error *error);

/* The same but for what only ranks that run it need (a text, validation, checkpoints, a device that
 * can): what a prediction of the job asks for. */
int mp_job_check_model(const struct mp_job_file *file, struct mp_error *error);

/* Into how many shards experts are cut in the end: as the job says, or where it leaves them whole
 * as its system wants it (tutel's r), by the figures that the job gives and, where it gives none,
 * such as any machine may have.  Of a job in which nothing else is wrong. */
int mp_job_wanted_shards(const struct mp_job_file *file);

/* Writes a job file that mp_job_apply reads back to the same job, every option listed. */
int mp_job_write(const struct mp_job_file *file, const struct mp_option_group more[], FILE *stream,
                 struct mp_error *error);

/* Whether iterations are steps of serving: forward only, with a cache of keys and values. */
static inline bool mp_job_serves(const struct mp_job *job) {
    return job->mode != MP_MODE_TRAIN;
}
/* Tokens of one sequence in an iteration: those of which keys and values are worked out. */
static inline int mp_job_step_tokens(const struct mp_job *job) {
    return job->mode == MP_MODE_DECODE ? 1 : job->sequence;
}
/* Tokens of all ranks in an iteration. */
static inline int64_t mp_job_tokens(const struct mp_job *job) {
    return (int64_t)job->batch * mp_job_step_tokens(job);
}
/* Places of a sequence: rows of the position table, and of a cache. */
static inline int64_t mp_job_positions(const struct mp_job *job) {
    return (int64_t)job->context + mp_job_step_tokens(job);
}

/* The nodes declared, of so many ranks. */
static inline struct mp_topology mp_job_topology(const struct mp_job *job, int ranks) {
    int declared = job->nodes > 0 ? ranks / job->nodes : job->ranks_per_node;
    return (struct mp_topology){ranks, declared < ranks ? declared : ranks};
}

/* Shards of an expert, and how many of a layer: the experts that plans have. */
static inline int mp_job_shards(const struct mp_job *job) {
    return job->expert_shards > 1 ? job->expert_shards : 1;
}
static inline int mp_job_plan_experts(const struct mp_job *job) {
    return job->experts * mp_job_shards(job);
}

static inline const struct mp_gate_kind *mp_job_gate_kind(const struct mp_job *job) {
    return mp_gate_kinds[job->gate];
}
/* Experts that one token goes to. */
static inline int mp_job_top_k(const struct mp_job *job) {
    if (job->top_k == MP_AUTO)
        return mp_job_gate_kind(job)->usual;
    return job->top_k == MP_ALL ? job->experts : job->top_k;
}
static inline struct mp_gate_sizes mp_job_gate_sizes(const struct mp_job *job) {
    return (struct mp_gate_sizes){job->experts, mp_job_top_k(job), mp_job_tokens(job),
                                  mp_job_step_tokens(job)};
}
/* Another gate gets default options.  MP_EINVAL, with `where` the name is from, for an unknown one.
 */
int mp_job_set_gate(struct mp_job *job, const char *name, const char *where,
                    struct mp_error *error);
/* The job's gate in numbers.  MP_EINVAL as mp_gate_rule. */
int mp_job_gate_rule(const struct mp_job *job, struct mp_gate_rule *rule, struct mp_error *error);
/* Whether its tokens may have fewer experts than top-k (mp_gate_takes_fewer). */
bool mp_job_takes_fewer(const struct mp_job *job);
/* And in words (mp_gate_words).  Runs with other words are not compared. */
const char *mp_job_gate(const struct mp_job *job, char buffer[MP_GATE_WORDS]);
/* Its mode in a word: "decode". */
const char *mp_job_mode(const struct mp_job *job);
/* The model's sizes in words: "layers 4, ..., experts 16 x 512 and 1 for all tokens, ..., batch
 * 16". */
enum { MP_MODEL_WORDS = 256 };
const char *mp_job_model(const struct mp_job *job, char buffer[MP_MODEL_WORDS]);

/* count [experts]: how many of a rank's `routes` go to each expert where they are replayed
 * balanced, skewed or as the job's load says, in every layer and iteration.  MP_EINVAL (a load that
 * is not the job's), MP_ENOMEM. */
int mp_job_replay(const struct mp_job *job, int rank, int64_t routes, uint32_t count[],
                  struct mp_error *error);

/* What chooses experts, in a few words that differ where it does: "text", "balanced", "skewed 0.70
 * on 4", "load b683e00e" (a digest of the matrix), "trace 5d1c0b7a" (trace_digest). */
const char *mp_job_workload(const struct mp_job *job, char *buffer, size_t size);
