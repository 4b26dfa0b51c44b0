/* Measurements in turns: see run_pairs.h. */
#include "harness/cli/run_pairs.h"

#include <stdlib.h>

#include "harness/cli/cli.h"
#include "reference/base/characters.h"
#include "results/compare/gate.h"
#include "results/compare/statistics.h"

enum { PAIRS_MOST = 1000 };
static const double usual_slice = 0.15, shortest_slice = 0.02, longest_slice = 3600; /* s */

int cli_parse_pairs(const char *text, struct mp_suite *suite, struct mp_error *error) {
    int64_t pairs;
    if (!mp_whole_number(text, 1, PAIRS_MOST, &pairs))
        return mp_fail(error, MP_EINVAL, "--pairs %.60s: should be a number from 1 to %d", text,
                       PAIRS_MOST);
    suite->repeat = (int)pairs;
    return MP_OK;
}

int cli_check_pairs(const struct mp_suite *suite, struct mp_error *error) {
    for (int i = 0; i < suite->count; i++) {
        const struct mp_job *job = &suite->job[i].file.job;
        int64_t warm_up = (job->iterations + 9) / 10, counted = job->iterations - warm_up;
        if (!mp_suite_is_predicted(suite, i) && counted < MP_STEADY_WINDOW)
            return mp_fail(error, MP_EINVAL,
                           "job %s of suite %s has %lld iterations, of which %lld count without "
                           "the first tenth: with fewer than %d no time can be judged; add --set "
                           "iterations=%d, or more",
                           job->name, suite->name, (long long)job->iterations, (long long)counted,
                           MP_STEADY_WINDOW, 2 * MP_STEADY_WINDOW);
    }
    return MP_OK;
}

int cli_parse_slice(const char *text, double *slice, struct mp_error *error) {
    char *end;
    *slice = text ? strtod(text, &end) : usual_slice;
    if (text && (end == text || *end ||
                 !(*slice == 0 || (*slice >= shortest_slice && *slice <= longest_slice))))
        return mp_fail(error, MP_EINVAL, "--slice %.60s: should be from %g to %g seconds, or 0",
                       text, shortest_slice, longest_slice);
    return MP_OK;
}

/* Floors of this very measurement are kept only after it was judged by earlier ones. */
static int keep_floors(const struct mp_gate *gate, struct mp_store *store,
                       const struct mp_runner_result *result, bool json, struct mp_error *error) {
    int kept;
    int code = mp_gate_keep_floors(gate, store, result->suite_run, &kept, error);
    if (!code && !json)
        printf("Both sides are the same program: %s\n",
               kept > 0 ? "what they differ by is kept as noise floor."
                        : "no time could be judged, so no noise floor.");
    return code;
}

int cli_compare_pairs(struct mp_store *store, const struct mp_runner_result *result, bool json,
                      struct mp_error *error) {
    const struct mp_gate_side base = {store, result->base_run, NULL, 0},
                              head = {store, result->suite_run, NULL, 0};
    const struct mp_gate_options options = {.minimum_effect = MP_MINIMUM_EFFECT};
    struct mp_gate *gate = NULL;
    int code = mp_gate_compare(&base, &head, &options, &gate, error);
    if (!code)
        code = mp_gate_print(gate, json ? MP_REPORT_JSON : MP_REPORT_TEXT, stdout, error);
    if (!code && gate->same_program)
        code = keep_floors(gate, store, result, json, error);
    if (!code)
        code = mp_gate_outcome(gate) == MP_OUTCOME_FAIL ? CLI_FINDING : CLI_SUCCESS;
    mp_gate_destroy(gate);
    return code;
}
