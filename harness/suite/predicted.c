#include "harness/suite/predicted.h"

#include <stdio.h>
#include <string.h>

#include "harness/predict/spools.h"
#include "harness/suite/seconds.h"

struct watching {
    const struct mp_predicted *predicted;
    struct mp_predict_spools *recording; /* NULL: none */
    struct mp_launch_result *result;
    double start;
    int code; /* of the recording */
    struct mp_error *error;
};

/* Whether to go on. */
static bool after_iteration(void *context, const struct mp_prediction *prediction) {
    struct watching *watching = context;
    const struct mp_predicted *predicted = watching->predicted;
    struct mp_launch_result *result = watching->result;
    if (watching->recording)
        watching->code = mp_predict_spools_step(watching->recording, prediction, watching->error);
    result->progress.iteration++;
    result->progress.ms = 1e3 * prediction->seconds;
    result->seconds = mp_seconds_now() - watching->start;
    if (predicted->watch)
        predicted->watch(predicted->context, &result->progress);
    if (result->progress.iteration >= result->progress.iterations)
        return !watching->code; /* done in time */
    if (predicted->timeout > 0 && result->seconds > predicted->timeout)
        result->end = MP_LAUNCH_TIMEOUT;
    if (predicted->signals && *predicted->signals)
        result->end = MP_LAUNCH_INTERRUPTED;
    return !watching->code && result->end == MP_LAUNCH_COMPLETE;
}

const char *mp_predicted_memory_text(const struct mp_prediction_summary *summary, char *text,
                                     size_t size) {
    static const double GIB = 1024.0 * 1024 * 1024;
    snprintf(text, size, "rank %d needs %.1f of %.1f GiB", summary->memory_rank,
             summary->memory.total / GIB, summary->memory.limit / GIB);
    return text;
}

/* How it ended, in the result's words. */
static void explain(const struct mp_predicted *predicted, int code,
                    const struct mp_prediction_summary *summary, struct mp_launch_result *result,
                    const struct mp_error *error) {
    char memory[96];
    if (code) {
        result->end = MP_LAUNCH_FAILED;
        snprintf(result->reason, sizeof result->reason, "%s", error ? error->text : "");
    } else if (result->end == MP_LAUNCH_TIMEOUT) {
        snprintf(result->reason, sizeof result->reason, "not done after %g s", predicted->timeout);
    } else if (result->end == MP_LAUNCH_INTERRUPTED) {
        snprintf(result->reason, sizeof result->reason, "stopped by the user after iteration %lld",
                 (long long)result->progress.iteration);
    } else if (summary->out_of_memory) {
        result->end = MP_LAUNCH_FAILED;
        snprintf(result->reason, sizeof result->reason, "out of memory: %s",
                 mp_predicted_memory_text(summary, memory, sizeof memory));
    }
}

int mp_predicted_run(const struct mp_predicted *predicted, struct mp_launch_result *result,
                     struct mp_prediction_summary *summary, struct mp_error *error) {
    struct watching watching = {
        .predicted = predicted, .result = result, .start = mp_seconds_now(), .error = error};
    *result = (struct mp_launch_result){.end = MP_LAUNCH_COMPLETE,
                                        .progress.iterations = predicted->job->file.job.iterations};
    memset(summary, 0, sizeof *summary);
    int code = MP_OK;
    if (predicted->spools)
        code = mp_predict_spools_create(predicted->spools, predicted->job, predicted->cluster,
                                        &watching.recording, error);
    const struct mp_predict_sink *sink =
        watching.recording ? mp_predict_spools_sink(watching.recording) : NULL;
    const struct mp_predict_watch watch = {&watching, after_iteration,
                                           sink ? predicted->bounds : NULL};
    if (!code)
        code = mp_predict_job_run(predicted->job, predicted->cluster, sink, &watch, summary, error);
    code = code ? code : watching.code;
    explain(predicted, code, summary, result, error);
    int status = result->end == MP_LAUNCH_INTERRUPTED ? MP_EINTERRUPTED
                 : result->end == MP_LAUNCH_COMPLETE  ? MP_OK
                 : code                               ? code
                                                      : MP_ELIMIT;
    int finished = mp_predict_spools_finish(&watching.recording, status, result->reason,
                                            code ? NULL : summary, error);
    if (!code && finished) {
        code = finished;
        explain(predicted, code, summary, result, error);
    }
    result->seconds = mp_seconds_now() - watching.start;
    return code;
}
