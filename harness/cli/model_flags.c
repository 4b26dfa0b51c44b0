/* Flags about a recorded model: see model_flags.h. */
#include "harness/cli/model_flags.h"

#include "harness/cli/cli.h"
#include "harness/predict/job.h"

static int read_job(struct cli_model_flags *flags, const struct mp_systems *systems,
                    struct mp_error *error) {
    struct mp_predict_job job = {0};
    struct mp_yaml *document = NULL;
    size_t size = 0;
    int code = mp_yaml_read_file(flags->job, &flags->job_text, &size, error);
    if (!code)
        code = mp_yaml_parse(flags->job, flags->job_text, size, &document, error);
    if (!code)
        code = mp_predict_job_create(&job, error);
    if (!code)
        code = mp_predict_job_apply(&job, document, flags->job, systems, error);
    if (!code && !job.file.system)
        code = mp_fail(error, MP_EINVAL,
                       "%s: names no system; \"system: ep\" is plain expert parallelism, moeperf "
                       "list systems has the others",
                       flags->job);
    mp_predict_job_destroy(&job);
    mp_yaml_destroy(document);
    return code;
}

int cli_read_model_flags(struct cli_model_flags *flags, const struct mp_systems *systems,
                         struct mp_error *error) {
    if (!flags->loads.path && (flags->loads.kind || flags->loads.experts))
        return mp_fail(error, MP_EINVAL, "%s goes with --loads PATH",
                       flags->loads.experts ? "--experts" : "--loads-as");
    return flags->job ? read_job(flags, systems, error) : MP_OK;
}

void cli_add_model_flags(char *command, size_t size, const struct cli_model_flags *flags) {
    char experts[16];
    snprintf(experts, sizeof experts, "%d", flags->loads.experts);
    const char *const said[][2] = {{"--loads", flags->loads.path},
                                   {"--loads-as", flags->loads.kind},
                                   {"--experts", flags->loads.experts ? experts : NULL},
                                   {"--job", flags->job}};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (said[i][1])
            cli_add_word(command, size, said[i][0], said[i][1]);
}
