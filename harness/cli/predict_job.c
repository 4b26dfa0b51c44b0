#include "harness/cli/predict_job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/suite/suite.h"
#include "harness/workload/named.h"

enum { SEQUENCES = 4 };

int cli_read_job_flags(const struct cli_job_flags *flags, struct cli_job_settings *settings,
                       struct mp_error *error) {
    char nodes[32], iterations[32];
    snprintf(nodes, sizeof nodes, "nodes=%" PRId64, flags->nodes);
    snprintf(iterations, sizeof iterations, "%" PRId64, flags->iterations);
    const char *const said[CLI_JOB_FLAGS][2] = {
        {"cluster", flags->cluster},
        {"change", flags->nodes ? nodes : NULL},
        {"loads", flags->trace ? flags->trace : flags->loads},
        {"fit", flags->fit ? "yes" : NULL},
        {"iterations", flags->iterations ? iterations : NULL}};
    if (flags->trace && flags->loads)
        return mp_fail(error, MP_EINVAL, "--trace and --loads: give one of them");
    if (flags->trace && access(flags->trace, R_OK))
        return mp_fail(error, errno == ENOENT ? MP_ENOTFOUND : MP_EIO,
                       "--trace %.1000s: %s; it takes a file, --loads a generator", flags->trace,
                       strerror(errno));
    for (int i = 0; i < CLI_JOB_FLAGS; i++) {
        if (!said[i][1])
            continue;
        if (strlen(said[i][1]) >= MP_TEXT_SIZE)
            return mp_fail(error, MP_EINVAL, "%.100s...: longer than %d characters", said[i][1],
                           MP_TEXT_SIZE - 1);
        snprintf(settings->text[i], sizeof settings->text[i], "%s=%s", said[i][0], said[i][1]);
        settings->all.item[settings->all.count++] = settings->text[i];
    }
    for (int i = 0; i < flags->set.count; i++) {
        MP_TRY(mp_predict_job_check_setting("--set", flags->set.word[i], error));
        if (!strncmp(flags->set.word[i], "system=", 7))
            return mp_fail(error, MP_EINVAL, "--set %.100s: --system NAME says which",
                           flags->set.word[i]);
        if ((flags->trace || flags->loads) && (!strncmp(flags->set.word[i], "routing=", 8) ||
                                               !strncmp(flags->set.word[i], "skew-", 5)))
            return mp_fail(error, MP_EINVAL, "--set %.100s: --trace or --loads says what is routed",
                           flags->set.word[i]);
        settings->all.item[settings->all.count++] = flags->set.word[i];
    }
    return MP_OK;
}

/* Sizes of Hecate's GPT-MoE-S (its set-up of the evaluation). */
static void set_usual_sizes(struct mp_job *job) {
    job->layers = 12;
    job->width = 768;
    job->heads = 12;
    job->experts = 64;
    job->expert_width = 1536;
    job->sequence = 2048;
    job->batch = 0; /* by the ranks, once they are known */
}

static int apply_settings(struct mp_predict_job *job, const struct mp_systems *systems,
                          const struct cli_settings *settings, struct mp_error *error) {
    for (int i = 0; i < settings->count; i++)
        if (strncmp(settings->item[i], "options.", 8) != 0) /* of each system */
            MP_TRY(mp_predict_job_set(job, settings->item[i], systems, error));
    return MP_OK;
}

/* Experts that loads brought, and that no setting has changed. */
static int check_adopted(const struct mp_predict_job *job, int experts, struct mp_error *error) {
    const struct mp_job *sizes = &job->file.job;
    if (!*job->loads || mp_trace_names_generator(job->loads) || sizes->experts != experts ||
        experts >= mp_job_top_k(sizes))
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "loads: %.200s has %d expert%s, and the %s gate sends a token to %d: another "
                   "gate is right, as --set gate=switch",
                   job->loads, experts, experts == 1 ? "" : "s", mp_job_gate_kind(sizes)->name,
                   mp_job_top_k(sizes));
}

int cli_prepare_job(const struct mp_systems *systems, const struct cli_settings *settings,
                    struct mp_predict_job *job, struct mp_error *error) {
    struct mp_cluster *cluster = NULL;
    job->executor = MP_EXECUTOR_PREDICTED;
    set_usual_sizes(&job->file.job);
    MP_TRY(mp_predict_job_set(job, "system=ep", systems, error));
    MP_TRY(apply_settings(job, systems, settings, error));
    MP_TRY(mp_suite_job_cluster(job, &cluster, error));
    int code = mp_predict_job_adopt(job, cluster, error);
    mp_cluster_destroy(cluster);
    MP_TRY(code);
    const int experts = job->file.job.experts;
    MP_TRY(apply_settings(job, systems, settings, error));
    MP_TRY(check_adopted(job, experts, error));
    int64_t batch = (int64_t)job->file.job.ranks * job->options.micro_batches * SEQUENCES;
    if (job->file.job.batch == 0 && batch <= 1 << 24)
        job->file.job.batch = (int)batch;
    return MP_OK;
}

/* ---- systems ---- */

int cli_system_words_add(struct cli_system_words *words, const char *name, const char *value,
                         struct mp_error *error) {
    if (words->options == CLI_SYSTEM_OPTIONS_LIMIT)
        return mp_fail(error, MP_EINVAL, "--system %.100s: more than %d options",
                       words->system->name, CLI_SYSTEM_OPTIONS_LIMIT);
    words->option[words->options][0] = name;
    words->option[words->options++][1] = value;
    return MP_OK;
}

/* Cuts "window=2" in two. */
static int add_word(struct cli_system_words *words, char *word, struct mp_error *error) {
    char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return mp_fail(error, MP_EINVAL, "--system %.100s: \"%.100s\" should be option=value",
                       words->system->name, word);
    *equals = '\0';
    return cli_system_words_add(words, word, equals + 1, error);
}

int cli_system_words_parse(const struct mp_systems *systems, const char *text,
                           struct cli_system_words *words, struct mp_error *error) {
    size_t length = strcspn(text, ":");
    char *rest = NULL;
    words->options = 0;
    if (strlen(text) >= sizeof words->text)
        return mp_fail(error, MP_EINVAL, "--system %.100s...: too long", text);
    strcpy(words->text, text);
    words->text[length] = '\0';
    words->system = mp_systems_find(systems, words->text, error);
    if (!words->system)
        return mp_error_prefix(error, "--system");
    if (!text[length])
        return MP_OK;
    for (char *word = strtok_r(words->text + length + 1, ",", &rest); word;
         word = strtok_r(NULL, ",", &rest))
        MP_TRY(add_word(words, word, error));
    return MP_OK;
}

int cli_system_words_check(const struct cli_system_words *words, struct mp_error *error) {
    const struct mp_system *system = words->system;
    char owner[64];
    void *options = calloc(1, system->options_size + 1);
    int code =
        options ? mp_options_set_defaults(system->options, options, error) : mp_no_memory(error);
    snprintf(owner, sizeof owner, "system %.50s", system->name);
    for (int i = 0; i < words->options && !code; i++)
        code = mp_options_set(system->options, options, owner, words->option[i][0],
                              words->option[i][1], "--system", error);
    free(options);
    return code;
}
