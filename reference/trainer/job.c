/* Job files: see job.h. */
#include "reference/trainer/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "reference/device/device.h"
#include "reference/model/replay.h"
#include "reference/trainer/inject.h"
#include "reference/trainer/sizes.h"

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
    {"auxiliary-weight", MP_OPTION_DOUBLE, FIELD(auxiliary_weight), "", "0.01", 0, 1e3, NULL,
     "weight of the gate's balancing loss"},
    {"exchange", MP_OPTION_CHOICE, FIELD(exchange), "", "flat", 0, 0, mp_exchange_choices,
     "way of rows to their experts and back: flat in one go, leader through the first rank of "
     "every node, two-level inside nodes and then between them, deduplicated a token once per "
     "node and rank; moeperf list exchanges has more"},
    {"exchange-degree", MP_OPTION_INT, FIELD(exchange_degree), "", "1", 1, MP_MOST_DEGREE, NULL,
     "chunks that every pair's rows are cut into, or a rank's tokens if they are deduplicated, "
     "which travel while experts work on the one before; 1: whole, or as the system says"},

    {"mode", MP_OPTION_CHOICE, FIELD(mode), "", "train", 0, 0, "train prefill decode",
     "what an iteration is: a step of training; or of serving, forward only with a cache of keys "
     "and values: prefill works on sequence tokens of every sequence, decode on the next one"},
    {"context", MP_OPTION_INT, FIELD(context), "tokens", "0", 0, 1 << 24, NULL,
     "with mode prefill and decode: tokens of every sequence that are in its cache before each "
     "step, the same in all steps"},
    {"batch", MP_OPTION_INT, FIELD(batch), "sequences", "16", 1, 1 << 24, NULL,
     "sequences of an iteration over all ranks; a multiple of ranks"},
    {"text", MP_OPTION_TEXT, FIELD(text), "", NULL, 0, 0, NULL,
     "files or folders of text to train on, separated by ':'"},
    {"validation-share", MP_OPTION_DOUBLE, FIELD(validation_share), "", "0.05", 0, 0.9, NULL,
     "share of the text, its tail, that is kept for validation"},
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
    {"load", MP_OPTION_TEXT, FIELD(load), "routes", "", 0, 0, NULL,
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
    {"learning-rate", MP_OPTION_DOUBLE, FIELD(learning_rate), "", "1e-3", 0, 1e3, NULL,
     "learning rate of AdamW"},
    {"beta1", MP_OPTION_DOUBLE, FIELD(beta1), "", "0.9", 0, 0.999999, NULL,
     "decay of AdamW's first moment"},
    {"beta2", MP_OPTION_DOUBLE, FIELD(beta2), "", "0.95", 0, 0.999999, NULL,
     "decay of AdamW's second moment"},
    {"epsilon", MP_OPTION_DOUBLE, FIELD(epsilon), "", "1e-8", 1e-30, 1, NULL,
     "added to AdamW's divisor"},
    {"weight-decay", MP_OPTION_DOUBLE, FIELD(weight_decay), "", "0.1", 0, 1e3, NULL,
     "weight decay of AdamW"},
    {"seed", MP_OPTION_INT64, FIELD(seed), "", "1", 0, 9e18, NULL,
     "seed of parameters, batches and replayed routes"},

    {"checkpoint", MP_OPTION_TEXT, FIELD(checkpoint), "", "", 0, 0, NULL,
     "folder to write checkpoints to; empty for none"},
    {"checkpoint-every", MP_OPTION_INT, FIELD(checkpoint_every), "iterations", "0", 0, 1 << 30,
     NULL, "iterations between checkpoints; 0 for one at the end"},
    {"restore", MP_OPTION_TEXT, FIELD(restore), "", "", 0, 0, NULL,
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
    {"grouped-products", MP_OPTION_CHOICE, FIELD(grouped_products), "", "streams", 0, 0,
     "streams library",
     "with device cuda: the experts' products beside each other on several streams, or as one "
     "grouped product of cuBLAS"},
    {"check-plans", MP_OPTION_BOOL, FIELD(check_plans), "", "no", 0, 0, NULL,
     "check every plan against the law before it is carried out"},
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
    {"inject", MP_OPTION_TEXT, FIELD(inject), "", "", 0, 0, NULL,
     "for testing profilers: a rank that takes longer, as in \"rank=1 phase=expert seconds=0.01 "
     "every=1 layer=all\""},
    {0},
};

static const char OWNER[] = "a job";
static const char SYSTEM_GROUP[] = "options"; /* of the system */
static const char GATE_GROUP[] = "gate-options";
enum { WHERE_SIZE = 512 };

static int set_gate_defaults(struct mp_job *job, struct mp_error *error) {
    memset(&job->gate_options, 0, sizeof job->gate_options);
    return mp_options_set_defaults(mp_job_gate_kind(job)->options, job->gate_options.bytes, error);
}

int mp_job_file_create(struct mp_job_file *file, struct mp_error *error) {
    memset(file, 0, sizeof *file);
    int code = mp_options_set_defaults(mp_job_options, &file->job, error);
    return code ? code : set_gate_defaults(&file->job, error);
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

    void *options = NULL;
    if (system->options_size > 0) {
        options = calloc(1, system->options_size);
        if (!options)
            return mp_fail(error, MP_ENOMEM, "no memory for the options of system %s", name);
        int code = mp_options_set_defaults(system->options, options, error);
        if (code) {
            free(options);
            return code;
        }
    }
    free(file->system_options);
    file->system_options = options;
    file->system = system;
    return mp_options_set(mp_job_options, &file->job, OWNER, "system", name, where, error);
}

static int set_system_option(struct mp_job_file *file, const char *name, const char *text,
                             const char *where, struct mp_error *error) {
    if (!file->system)
        return mp_fail(error, MP_EINVAL, "%s: option \"%.200s\" needs the job's system first",
                       where, name);
    if (!file->system->options)
        return mp_fail(error, MP_EINVAL, "%s: system %s has no options, so no \"%.200s\"", where,
                       file->system->name, name);
    char owner[96];
    snprintf(owner, sizeof owner, "system %s", file->system->name);
    return mp_options_set(file->system->options, file->system_options, owner, name, text, where,
                          error);
}

int mp_job_set_gate(struct mp_job *job, const char *name, const char *where,
                    struct mp_error *error) {
    int before = job->gate;
    int code = mp_options_set(mp_job_options, job, OWNER, "gate", name, where, error);
    return code || job->gate == before ? code : set_gate_defaults(job, error);
}

static int set_gate_option(struct mp_job *job, const char *name, const char *text,
                           const char *where, struct mp_error *error) {
    char owner[96];
    snprintf(owner, sizeof owner, "gate %s", mp_job_gate_kind(job)->name);
    return mp_options_set(mp_job_gate_kind(job)->options, job->gate_options.bytes, owner, name,
                          text, where, error);
}

/* What options are set in: a job, and groups that others keep beside its own. */
struct setter {
    struct mp_job_file *file;
    const struct mp_option_group *more; /* NULL: none */
    const struct mp_systems *systems;
};

/* The group of that key, at the top ("") the one that has the option; NULL: none of those that
 * others keep. */
static const struct mp_option_group *find_group(const struct setter *setter, const char *key,
                                                const char *name) {
    for (const struct mp_option_group *group = setter->more; group && group->table; group++)
        if (!strcmp(group->key, key) && (*key || mp_options_find(group->table, name)))
            return group;
    return NULL;
}

static bool is_group(const struct setter *setter, const char *key) {
    return *key && (!strcmp(key, SYSTEM_GROUP) || !strcmp(key, GATE_GROUP) ||
                    find_group(setter, key, NULL));
}

/* Keys that are no rows of the job's table may be meant, too. */
static int fail_unknown(const struct setter *setter, const char *name, const char *where,
                        struct mp_error *error) {
    enum { MOST = 32 };
    const char *owner = OWNER, *known[MOST + 1] = {SYSTEM_GROUP, GATE_GROUP};
    int count = 2;
    for (const struct mp_option_group *group = setter->more; group && group->table; group++) {
        if (*group->key && count < MOST)
            known[count++] = group->key;
        if (*group->key)
            continue;
        owner = group->owner;
        for (const struct mp_option *option = group->table; option->name && count < MOST; option++)
            known[count++] = option->name;
    }
    const char *nearest = mp_nearest_word(name, known);
    if (!nearest)
        return mp_options_set(mp_job_options, &setter->file->job, OWNER, name, "", where, error);
    return mp_fail(error, MP_EINVAL, "%s: unknown option \"%.80s\" for %s; did you mean \"%s\"?",
                   where, name, owner, nearest);
}

/* One option of a group, at the top of the job's; system and gate take their own ways. */
static int set_option(const struct setter *setter, const char *key, const char *name,
                      const char *text, const char *where, struct mp_error *error) {
    const struct mp_option_group *group = find_group(setter, key, name);
    if (group)
        return mp_options_set(group->table, group->values, group->owner, name, text, where, error);
    if (!strcmp(key, SYSTEM_GROUP))
        return set_system_option(setter->file, name, text, where, error);
    if (!strcmp(key, GATE_GROUP))
        return set_gate_option(&setter->file->job, name, text, where, error);
    if (!strcmp(name, "system"))
        return set_system(setter->file, text, where, setter->systems, error);
    if (!strcmp(name, "gate"))
        return mp_job_set_gate(&setter->file->job, text, where, error);
    if (!mp_options_find(mp_job_options, name))
        return fail_unknown(setter, name, where, error);
    return mp_options_set(mp_job_options, &setter->file->job, OWNER, name, text, where, error);
}

/* Writes a value as one text: a scalar as it is, a list joined by `separator`, rows by ';'.  False
 * for a mapping, and for lists nested or mixed beyond rows of values. */
static bool join(FILE *text, const struct mp_yaml *value, const char *separator, int depth) {
    if (value->kind == MP_YAML_SCALAR)
        return fputs(value->text, text) >= 0;
    if (value->kind == MP_YAML_MAPPING || depth == 2)
        return false;
    bool has_rows = value->count > 0 && value->item[0]->kind == MP_YAML_SEQUENCE, joins = true;
    for (int i = 0; joins && i < value->count; i++) {
        if (i > 0)
            fputs(has_rows ? ";" : separator, text);
        joins = (value->item[i]->kind == MP_YAML_SEQUENCE) == has_rows &&
                join(text, value->item[i], separator, depth + 1);
    }
    return joins;
}

static int join_value(const struct mp_yaml *value, const char *name, const char *where,
                      char text[MP_TEXT_SIZE], struct mp_error *error) {
    FILE *stream = fmemopen(text, MP_TEXT_SIZE, "w");
    if (!stream)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for a value", where);
    bool joins = join(stream, value, strcmp(name, "text") ? "," : ":", 0);
    bool fits = !fflush(stream) && ftell(stream) < MP_TEXT_SIZE;
    fclose(stream);
    if (joins && fits)
        return MP_OK;
    return joins ? mp_fail(error, MP_EINVAL, "%s: %.100s: longer than %d characters", where, name,
                           MP_TEXT_SIZE - 1)
                 : mp_fail(error, MP_EINVAL, "%s: %.100s: should be one value or a list of values",
                           where, name);
}

/* The options that the job itself has under a key; NULL: none, or none yet. */
static const struct mp_option *table_of(const struct setter *setter, const char *key) {
    const struct mp_system *system = setter->file->system;
    if (!*key)
        return mp_job_options;
    if (!strcmp(key, GATE_GROUP))
        return mp_job_gate_kind(&setter->file->job)->options;
    return system ? system->options : NULL;
}

/* One entry of a group's mapping.  What is unknown is so whatever its value is. */
static int apply_entry(const struct setter *setter, const char *key, const struct mp_yaml *mapping,
                       int i, const char *path, struct mp_error *error) {
    const struct mp_yaml *value = mapping->item[i];
    const struct mp_option *table = table_of(setter, key);
    const char *name = mapping->key[i];
    char where[WHERE_SIZE], text[MP_TEXT_SIZE] = "";
    snprintf(where, sizeof where, "%s:%d", path, mapping->key_line[i]);
    int code = MP_OK;
    if (find_group(setter, key, name)) { /* these take no lists */
        if (value->kind == MP_YAML_SCALAR)
            return set_option(setter, key, name, value->text, where, error);
        return mp_fail(error, MP_EINVAL, "%s: %.100s: should be one value", where, name);
    }
    if (mp_options_find(table, name))
        code = join_value(value, name, where, text, error);
    return code ? code : set_option(setter, key, name, text, where, error);
}

/* A group under a key of its own. */
static int apply_group(const struct setter *setter, const char *key, const struct mp_yaml *mapping,
                       const char *path, struct mp_error *error) {
    int code = MP_OK;
    if (mapping->kind == MP_YAML_SCALAR && !*mapping->text)
        return MP_OK; /* "options:" with nothing under it */
    if (mapping->kind != MP_YAML_MAPPING)
        return mp_fail(error, MP_EINVAL, "%s:%d: %s: should be a mapping of %soptions", path,
                       mapping->line, key,
                       !strcmp(key, SYSTEM_GROUP) ? "system "
                       : !strcmp(key, GATE_GROUP) ? "gate "
                                                  : "");
    for (int i = 0; i < mapping->count && !code; i++)
        code = apply_entry(setter, key, mapping, i, path, error);
    return code;
}

int mp_job_apply_more(struct mp_job_file *file, const struct mp_option_group more[],
                      const struct mp_yaml *mapping, const char *path,
                      const struct mp_systems *systems, struct mp_error *error) {
    const struct setter setter = {file, more, systems};
    int code = MP_OK;
    if (mapping->kind != MP_YAML_MAPPING)
        return mp_fail(error, MP_EINVAL, "%s:%d: should be a mapping of job options, key: value",
                       path, mapping->line);
    for (int pass = 0; pass < 2; pass++) /* system and gate first */
        for (int i = 0; i < mapping->count && !code; i++) {
            const char *key = mapping->key[i];
            if ((!strcmp(key, "system") || !strcmp(key, "gate")) != (pass == 0))
                continue;
            code = is_group(&setter, key) ? apply_group(&setter, key, mapping->item[i], path, error)
                                          : apply_entry(&setter, "", mapping, i, path, error);
        }
    return code;
}

int mp_job_apply(struct mp_job_file *file, const struct mp_yaml *mapping, const char *path,
                 const struct mp_systems *systems, struct mp_error *error) {
    return mp_job_apply_more(file, NULL, mapping, path, systems, error);
}

int mp_job_set_more(struct mp_job_file *file, const struct mp_option_group more[],
                    const char *assignment, const struct mp_systems *systems,
                    struct mp_error *error) {
    const struct setter setter = {file, more, systems};
    size_t length = strcspn(assignment, "=");
    char name[128];
    if (!assignment[length] || length == 0)
        return mp_fail(error, MP_EINVAL, "--set %.200s: should be key=value", assignment);
    if (length >= sizeof name)
        return mp_fail(error, MP_EINVAL, "--set: no option is called \"%.*s\"", (int)length,
                       assignment);
    snprintf(name, sizeof name, "%.*s", (int)length, assignment);
    const char *text = assignment + length + 1;
    char *dot = strchr(name, '.');
    if (dot)
        *dot = '\0';
    if (dot && is_group(&setter, name))
        return set_option(&setter, name, dot + 1, text, "--set", error);
    if (dot)
        *dot = '.';
    return set_option(&setter, "", name, text, "--set", error);
}

int mp_job_set(struct mp_job_file *file, const char *assignment, const struct mp_systems *systems,
               struct mp_error *error) {
    return mp_job_set_more(file, NULL, assignment, systems, error);
}

int mp_options_write(const struct mp_option table[], const void *options, const char *indent,
                     FILE *stream, struct mp_error *error) {
    char value[MP_TEXT_SIZE];
    int code = MP_OK;
    for (const struct mp_option *option = table; !code && option && option->name; option++) {
        fprintf(stream, "%s%s: ", indent, option->name);
        mp_options_format(option, options, value, sizeof value);
        if (option->type != MP_OPTION_TEXT)
            fputs(value, stream);
        else if ((code = mp_yaml_write_text(stream, value, error)))
            mp_error_prefix(error, "%s", option->name);
        fputc('\n', stream);
    }
    return code;
}

int mp_job_write(const struct mp_job_file *file, FILE *stream, struct mp_error *error) {
    int code = mp_options_write(mp_job_options, &file->job, "", stream, error);
    if (!code && file->system && file->system->options) {
        fprintf(stream, "%s:\n", SYSTEM_GROUP);
        code = mp_options_write(file->system->options, file->system_options, "  ", stream, error);
    }
    if (!code && mp_job_gate_kind(&file->job)->options) {
        fprintf(stream, "%s:\n", GATE_GROUP);
        code = mp_options_write(mp_job_gate_kind(&file->job)->options, file->job.gate_options.bytes,
                                "  ", stream, error);
    }
    if (!code && ferror(stream))
        code = mp_fail(error, MP_EIO, "can't write the job: %s", strerror(errno));
    return code;
}
