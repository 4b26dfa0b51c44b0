#include "reference/trainer/job.h"

#include <stdlib.h>
#include <string.h>

#include "reference/device/device.h"

#define FIELD(member) offsetof(struct mp_job, member)

const struct mp_option mp_job_options[] = {
    {"name", MP_OPTION_TEXT, FIELD(name), "", "job", 0, 0, NULL, "name of the job, for people"},
    {"system", MP_OPTION_TEXT, FIELD(system), "", NULL, 0, 0, NULL,
     "system that plans the run; moeperf list systems names them"},
    {"ranks", MP_OPTION_INT, FIELD(ranks), "ranks", "1", 1, 4096, NULL,
     "processes that train together"},
    {"ranks-per-node", MP_OPTION_COUNT, FIELD(ranks_per_node), "ranks", "all", 1, 4096, NULL,
     "ranks of one node, declared; all puts every rank on one node"},
    {"nodes", MP_OPTION_INT, FIELD(nodes), "nodes", "0", 0, 4096, NULL,
     "the same in other words: so many nodes, declared, that share the ranks evenly; 0 leaves it "
     "to "
     "ranks-per-node"},

    {"layers", MP_OPTION_INT, FIELD(layers), "layers", "4", 1, 1024, NULL,
     "decoder blocks, each with a mixture of experts"},
    {"width", MP_OPTION_INT, FIELD(width), "", "128", 1, 65536, NULL,
     "elements of a token's vector; a multiple of heads"},
    {"heads", MP_OPTION_INT, FIELD(heads), "heads", "4", 1, 1024, NULL,
     "attention heads of a block"},
    {"experts", MP_OPTION_INT, FIELD(experts), "experts", "16", 1, 4096, NULL,
     "experts of a block over all ranks"},
    {"expert-width", MP_OPTION_INT, FIELD(expert_width), "", "512", 1, 1048576, NULL,
     "hidden elements of one expert"},
    {"expert-shards", MP_OPTION_INT, FIELD(expert_shards), "shards", "1", 1, 64, NULL,
     "into how many every expert is cut along expert-width, each on a rank as an expert is, to "
     "which a token goes wherever it goes to the expert"},
    {"shared-experts", MP_OPTION_INT, FIELD(shared_experts), "experts", "0", 0, 64, NULL,
     "experts of that width that every token goes through beside those it chooses, on its own "
     "rank, "
     "while chosen ones' rows travel (DeepSeekMoE)"},
    {"sequence", MP_OPTION_INT, FIELD(sequence), "tokens", "128", 1, 65536, NULL,
     "tokens of a sequence; with mode decode only one of them is worked on in a step"},
    {"gate", MP_OPTION_CHOICE, FIELD(gate), "", "gshard", 0, 0, mp_gate_names,
     "what chooses the experts of a token; moeperf list gates says how"},
    {"top-k", MP_OPTION_COUNT, FIELD(top_k), "experts", "auto", -1, MP_CHOICES_LIMIT, NULL,
     "experts of a token, with a gate that takes several numbers; auto is the gate's usual one"},
    {"renormalise", MP_OPTION_CHOICE, FIELD(renormalise), "", "auto", 0, 0, "auto no yes",
     "weights of a token's experts are divided by their sum, with a gate that leaves it open; "
     "auto: if there are several"},
    {"auxiliary-weight", MP_DECIDES(MP_OPTION_DOUBLE), FIELD(auxiliary_weight), "", "0.01", 0, 1e3,
     NULL, "weight of the gate's balancing loss"},
    {"exchange", MP_OPTION_CHOICE, FIELD(exchange), "", "flat", 0, 0, mp_exchange_choices,
     "way of rows to their experts and back: flat in one go, leader through the first rank of "
     "every node, two-level inside nodes and then between them, deduplicated a token once per "
     "node and rank; moeperf list exchanges has more"},
    {"exchange-degree", MP_OPTION_INT, FIELD(exchange_degree), "", "1", 1, MP_MOST_DEGREE, NULL,
     "chunks that every pair's rows are cut into, or a rank's tokens if they are deduplicated, "
     "which travel while experts work on the one before; 1: whole, or as the system says"},
    {"weights-behind", MP_OPTION_CHOICE, FIELD(weights_behind), "", "auto", 0, 0, "auto no yes",
     "in backward, gradients of weights are computed when rows have set out, and hide their way; "
     "auto: as the system says"},

    {"mode", MP_OPTION_CHOICE, FIELD(mode), "", "train", 0, 0, "train prefill decode",
     "what an iteration is: a step of training; or of serving, forward only with a cache of keys "
     "and values: prefill works on sequence tokens of every sequence, decode on the next one"},
    {"context", MP_OPTION_INT, FIELD(context), "tokens", "0", 0, 1 << 24, NULL,
     "with mode prefill and decode: tokens of every sequence that are in its cache before each "
     "step, the same in all steps"},
    {"batch", MP_OPTION_INT, FIELD(batch), "sequences", "16", 1, 1 << 24, NULL,
     "sequences of an iteration over all ranks; a multiple of ranks"},
    {"text", MP_DECIDES(MP_OPTION_TEXT), FIELD(text), "", NULL, 0, 0, ":",
     "files or folders of text to train on, separated by ':'"},
    {"validation-share", MP_DECIDES(MP_OPTION_DOUBLE), FIELD(validation_share), "", "0.05", 0, 0.9,
     NULL, "share of the text, its tail, that is kept for validation"},
    {"validate-every", MP_OPTION_INT, FIELD(validate_every), "iterations", "0", 0, 1 << 30, NULL,
     "iterations between validations; 0 for never"},
    {"validation-batches", MP_OPTION_INT, FIELD(validation_batches), "batches", "4", 1, 1 << 20,
     NULL, "batches of one validation"},

    {"routing", MP_OPTION_CHOICE, FIELD(routing), "", "gate", 0, 0,
     "gate balanced skewed load trace",
     "who chooses experts: the gate, or a replay of balanced, skewed, given or recorded loads"},
    {"skew-share", MP_OPTION_DOUBLE, FIELD(skew_share), "", "0.7", 0, 1, NULL,
     "share of routes that go to the first skew-experts experts, with routing skewed"},
    {"skew-experts", MP_OPTION_INT, FIELD(skew_experts), "experts", "4", 1, 1024, NULL,
     "experts that skew-share goes to, with routing skewed"},
    {"load", MP_OPTION_TEXT, FIELD(load), "routes", "", 0, 0, ",",
     "routes per expert, a row per source rank as in \"9,1;2,8\", with routing load"},
    {"trace", MP_OPTION_TEXT, FIELD(trace), "", "", 0, 0, NULL,
     "with routing trace: a trace file of the job's shape whose loads are replayed exactly, "
     "iteration by iteration and again from its beginning at its end; or a generator with its "
     "options, as in \"zipf exponent=1 seed=3\""},
    {"trace-digest", MP_OPTION_TEXT, FIELD(trace_digest), "", "", 0, 0, NULL,
     "digest of the trace, worked out when a suite is read; loads of another trace are refused"},
    {"trace-loads", MP_OPTION_TEXT, FIELD(trace_loads), "", "", 0, 0, NULL,
     "the trace as the ranks read it, a file that moeperf run makes"},

    {"iterations", MP_OPTION_INT64, FIELD(iterations), "iterations", "100", 1, 1e12, NULL,
     "iterations to train, or steps to serve"},
    {"target-loss", MP_OPTION_DOUBLE, FIELD(target_loss), "nats", "0", 0, 1e3, NULL,
     "training ends once the mean loss of the last target-window iterations is at or below it; 0 "
     "for all iterations"},
    {"target-window", MP_OPTION_INT, FIELD(target_window), "iterations", "10", 1, 100000, NULL,
     "iterations whose mean loss is held against target-loss"},
    {"learning-rate", MP_DECIDES(MP_OPTION_DOUBLE), FIELD(learning_rate), "", "1e-3", 0, 1e3, NULL,
     "learning rate of AdamW"},
    {"beta1", MP_DECIDES(MP_OPTION_DOUBLE), FIELD(beta1), "", "0.9", 0, 0.999999, NULL,
     "decay of AdamW's first moment"},
    {"beta2", MP_DECIDES(MP_OPTION_DOUBLE), FIELD(beta2), "", "0.95", 0, 0.999999, NULL,
     "decay of AdamW's second moment"},
    {"epsilon", MP_DECIDES(MP_OPTION_DOUBLE), FIELD(epsilon), "", "1e-8", 1e-30, 1, NULL,
     "added to AdamW's divisor"},
    {"weight-decay", MP_DECIDES(MP_OPTION_DOUBLE), FIELD(weight_decay), "", "0.1", 0, 1e3, NULL,
     "weight decay of AdamW"},
    {"seed", MP_DECIDES(MP_OPTION_INT64), FIELD(seed), "", "1", 0, 9e18, NULL,
     "seed of parameters, batches and replayed routes"},

    {"checkpoint", MP_OPTION_TEXT, FIELD(checkpoint), "", "", 0, 0, NULL,
     "folder to write checkpoints to; empty for none"},
    {"checkpoint-every", MP_OPTION_INT, FIELD(checkpoint_every), "iterations", "0", 0, 1 << 30,
     NULL, "iterations between checkpoints; 0 for one at the end"},
    {"restore", MP_DECIDES(MP_OPTION_TEXT), FIELD(restore), "", "", 0, 0, NULL,
     "folder of a checkpoint to start from; empty for none"},

    {"threads", MP_OPTION_INT, FIELD(threads), "threads", "1", 1, 1024, NULL,
     "threads of a rank for matrix work"},
    {"device", MP_OPTION_CHOICE, FIELD(device), "", "cpu", 0, 0, "cpu cuda",
     "what ranks compute on: the processor, or one NVIDIA GPU each"},
    {"precision", MP_OPTION_CHOICE, FIELD(precision), "", "fp32", 0, 0, "fp32 bf16",
     "of activations and of the parameters that products read; sums, updates and the parameters "
     "themselves are fp32; bf16 needs device cuda"},
    {"transport", MP_OPTION_CHOICE, FIELD(transport), "", "auto", 0, 0, "auto mpi nccl",
     "between ranks: auto is mpi on processors and nccl on GPUs; mpi between GPUs goes through the "
     "host and lets ranks share a GPU"},
    {"gather", MP_OPTION_CHOICE, FIELD(gather), "", "trees", 0, 0, "trees broadcasts",
     "with transport nccl: experts travel along trees of messages, which know nodes, or by its own "
     "broadcasts and reductions where all ranks hold a copy"},
    {"grouped-products", MP_OPTION_CHOICE, FIELD(grouped_products), "", "auto", 0, 0,
     "auto streams library",
     "with device cuda: the experts' products beside each other on several streams, or as one "
     "grouped product of cuBLAS; auto takes one kernel of ours where the GPU allows (an H100's "
     "kind, bf16, widths that 8 divides), which updates a rank alone's experts, too, or streams"},
    {"check-plans", MP_DECIDES(MP_OPTION_BOOL), FIELD(check_plans), "", "no", 0, 0, NULL,
     "check every plan against the law before it is carried out, and that ranks agree"},
    {"record", MP_OPTION_BOOL, FIELD(record), "", "yes", 0, 0, NULL,
     "record every iteration of every rank"},
    {"record-routes", MP_OPTION_BOOL, FIELD(record_routes), "", "no", 0, 0, NULL,
     "with record: the experts of every token, too"},
    {"bandwidth", MP_OPTION_DOUBLE, FIELD(bandwidth), "B/s", "0", 0, 1e15, NULL,
     "bandwidth between ranks that planners assume; 0 to measure it at the start"},
    {"copies-memory", MP_OPTION_DOUBLE, FIELD(copies_memory), "B", "0", 0, 1e15, NULL,
     "of a rank, which planners may fill with copies of experts; 0: in predictions what a device "
     "has "
     "left, and as much as there is when ranks train"},
    {"bandwidth-in-node", MP_OPTION_DOUBLE, FIELD(bandwidth_in_node), "B/s", "0", 0, 1e15, NULL,
     "the same between ranks of a node; 0: bandwidth, if that is given, and otherwise measured"},
    {"expert-rate", MP_OPTION_DOUBLE, FIELD(expert_rate), "flop/s", "0", 0, 1e18, NULL,
     "rate of expert matrix work that planners assume; 0 to measure it at the start"},
    {"non-moe-seconds", MP_OPTION_DOUBLE, FIELD(non_moe_seconds), "s", "0", 0, 1e6, NULL,
     "forward time of a block without its experts that planners assume; 0 to measure it"},
    {"inject", MP_DECIDES(MP_OPTION_TEXT), FIELD(inject), "", "", 0, 0, NULL,
     "for testing profilers: a rank that takes longer, as in \"rank=1 phase=expert seconds=0.01 "
     "every=1 layer=all\""},
    {0},
};

static const char OWNER[] = "a job";

static int set_gate_defaults(struct mp_job *job, struct mp_error *error) {
    memset(&job->gate_options, 0, sizeof job->gate_options);
    return mp_options_set_defaults(mp_job_gate_kind(job)->options, job->gate_options.bytes, error);
}

int mp_job_file_create(struct mp_job_file *file, struct mp_error *error) {
    memset(file, 0, sizeof *file);
    MP_TRY(mp_options_set_defaults(mp_job_options, &file->job, error));
    return set_gate_defaults(&file->job, error);
}

void mp_job_file_destroy(struct mp_job_file *file) {
    if (!file)
        return;
    free(file->system_options);
    memset(file, 0, sizeof *file);
}

/* Looks the system up and gives it default options, unless it is the job's system already. */
static int set_system(struct mp_job_file *file, const char *name, const char *where,
                      const struct mp_systems *systems, struct mp_error *error) {
    const struct mp_system *system = mp_systems_find(systems, name, error);
    if (!system) {
        mp_error_prefix(error, "%s", where);
        return MP_ENOTFOUND;
    }
    if (system == file->system)
        return MP_OK;

    MP_AUTO(memory) void *options = NULL;
    if (system->options_size > 0) {
        MP_TRY(mp_make(&options, 1, system->options_size, error));
        MP_TRY(mp_options_set_defaults(system->options, options, error));
    }
    free(file->system_options);
    file->system_options = options;
    file->system = system;
    options = NULL;
    return MP_OK;
}

int mp_job_set_gate(struct mp_job *job, const char *name, const char *where,
                    struct mp_error *error) {
    int before = job->gate;
    int code = mp_options_set(mp_job_options, job, OWNER, "gate", name, where, error);
    return code || job->gate == before ? code : set_gate_defaults(job, error);
}

/* All tables of a job, and those that others keep beside them. */
struct groups {
    struct mp_option_group group[8];
    char system[96], gate[96];
};

static void collect(const struct mp_job_file *const_file, const struct mp_option_group more[],
                    struct groups *all) {
    struct mp_job_file *file = (struct mp_job_file *)const_file; /* who only writes changes none */
    const struct mp_gate_kind *gate = mp_job_gate_kind(&file->job);
    const struct mp_system *system = file->system;
    int count = 0;
    snprintf(all->system, sizeof all->system, "%s%s", system ? "system " : "",
             system ? system->name : "a job that names no system");
    snprintf(all->gate, sizeof all->gate, "gate %s", gate->name);
    for (; more && more->key; more++)
        all->group[count++] = *more;
    const struct mp_option_group own[] = {
        {"", mp_job_options, &file->job, OWNER},
        {"options", system ? system->options : NULL, file->system_options, all->system},
        {"gate-options", gate->options, file->job.gate_options.bytes, all->gate},
        {0}};
    memcpy(&all->group[count], own, sizeof own);
}

/* The system and the gate say which options there are, so they come first. */
static int choose(struct mp_job_file *file, const char *key, const char *name, const char *where,
                  const struct mp_systems *systems, struct mp_error *error) {
    return !strcmp(key, "system") ? set_system(file, name, where, systems, error)
           : !strcmp(key, "gate") ? mp_job_set_gate(&file->job, name, where, error)
                                  : MP_OK;
}

int mp_job_apply(struct mp_job_file *file, const struct mp_option_group more[],
                 const struct mp_yaml *mapping, const char *path, const struct mp_systems *systems,
                 struct mp_error *error) {
    const struct mp_reading reading = {path, error};
    struct groups all;
    char where[320];
    for (int i = 0; mapping->kind == MP_YAML_MAPPING && i < mapping->count; i++) {
        snprintf(where, sizeof where, "%.300s:%d", path, mapping->key_line[i]);
        if (mapping->item[i]->kind == MP_YAML_SCALAR)
            MP_TRY(choose(file, mapping->key[i], mapping->item[i]->text, where, systems, error));
    }
    collect(file, more, &all);
    return mp_groups_apply(&reading, all.group, mapping);
}

int mp_job_set(struct mp_job_file *file, const struct mp_option_group more[],
               const char *assignment, const struct mp_systems *systems, struct mp_error *error) {
    struct groups all;
    if (!strncmp(assignment, "system=", 7))
        MP_TRY(choose(file, "system", assignment + 7, "--set", systems, error));
    if (!strncmp(assignment, "gate=", 5))
        MP_TRY(choose(file, "gate", assignment + 5, "--set", systems, error));
    collect(file, more, &all);
    return mp_groups_set(all.group, assignment, error);
}

int mp_job_write(const struct mp_job_file *file, const struct mp_option_group more[], FILE *stream,
                 struct mp_error *error) {
    struct groups all;
    collect(file, more, &all);
    return mp_groups_write(all.group, stream, error);
}
