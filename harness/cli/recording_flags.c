#include "harness/cli/recording_flags.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/predict/job.h"
#include "reference/base/shell.h"

static int check_suggest(const char *path, struct mp_error *error) {
    const char *ending = path ? strrchr(path, '.') : ".yaml";
    if (!ending || strcmp(ending, ".yaml") != 0)
        return mp_fail(error, MP_EINVAL,
                       "--suggest %.200s: a rules file's name has to end in .yaml", path);
    if (path && !access(path, F_OK))
        return mp_fail(error, MP_EINVAL, "--suggest %.200s: this file is there already", path);
    return MP_OK;
}

static int read_job(struct cli_recording_flags *flags, const struct mp_systems *systems,
                    struct mp_error *error) {
    MP_AUTO(predict_job) struct mp_predict_job job = {0};
    MP_AUTO(yaml) struct mp_yaml *document = NULL;
    size_t size = 0;
    MP_TRY(mp_yaml_read_file(flags->job, &flags->job_text, &size, error));
    MP_TRY(mp_yaml_parse(flags->job, flags->job_text, size, &document, error));
    MP_TRY(mp_predict_job_create(&job, error));
    MP_TRY(mp_predict_job_apply(&job, document, flags->job, systems, error));
    if (!job.file.system)
        return mp_fail(error, MP_EINVAL,
                       "%s: names no system; \"system: ep\" is plain expert parallelism, moeperf "
                       "list systems has the others",
                       flags->job);
    return MP_OK;
}

int cli_read_recording_flags(struct cli_recording_flags *flags, const char *database,
                             const struct mp_systems *systems, struct mp_error *error) {
    const struct mp_record_loads_source *loads = &flags->run.loads;
    MP_TRY(check_suggest(flags->suggest, error));
    if (!loads->path && (loads->kind || loads->experts))
        return mp_fail(error, MP_EINVAL, "%s goes with --loads PATH",
                       loads->experts ? "--experts" : "--loads-as");
    if (flags->job)
        MP_TRY(read_job(flags, systems, error));
    char path[MP_PATH_SIZE];
    for (int i = 0; i < flags->rules.count; i++) {
        MP_TRY(mp_path_file(MP_RULES, flags->rules.word[i], path, error));
        MP_TRY(mp_rules_load(path, &flags->loaded, error));
    }
    MP_TRY(flags->rules.count > 0 ? MP_OK : mp_rules_load_ready(&flags->loaded, error));
    snprintf(flags->suggested, MP_PATH_SIZE, "%s%s", flags->suggest ? flags->suggest : database,
             flags->suggest ? "" : ".rules.yaml");
    if (!access(flags->suggested, F_OK)) /* of an earlier recording, edited perhaps */
        snprintf(flags->suggested, MP_PATH_SIZE, "%s.rules-%d.yaml", database, (int)getpid());
    flags->run.rules = &flags->loaded;
    flags->run.job_text = flags->job_text;
    flags->run.suggested = flags->suggested;
    flags->run.suggest = flags->suggest;
    return MP_OK;
}

void cli_destroy_recording_flags(struct cli_recording_flags *flags) {
    mp_rules_destroy(&flags->loaded);
    free(flags->job_text);
    free(flags->resume);
}

void cli_add_word(struct cli_recording_flags *flags, const char *flag, const char *word) {
    if (!word || !flags->resume)
        return;
    size_t length = strlen(flags->resume), size = mp_shell_word(NULL, 0, word) + 1;
    char *grown = realloc(flags->resume, length + strlen(flag) + 2 + size);
    if (grown) {
        length += (size_t)snprintf(grown + length, strlen(flag) + 3, *flag ? " %s " : " %s", flag);
        mp_shell_word(grown + length, size, word);
    } else {
        free(flags->resume);
    }
    flags->resume = grown;
}

void cli_add_recording_flags(struct cli_recording_flags *flags, const char *system) {
    const struct mp_record_run *run = &flags->run;
    char experts[16] = "";
    if (run->loads.experts)
        snprintf(experts, sizeof experts, "%d", run->loads.experts);
    const char *const said[][2] = {{"--system", run->system ? run->system : system},
                                   {"--workload", run->workload},
                                   {"--loads", run->loads.path},
                                   {"--loads-as", run->loads.kind},
                                   {"--experts", *experts ? experts : NULL},
                                   {"--job", flags->job}};
    for (size_t i = 0; i < MP_LENGTH(said); i++)
        cli_add_word(flags, said[i][0], said[i][1]);
}
