/* Lines of published files, and predictors with the sizes of what they are about, for tests. */
#pragma once

#include "harness/predict/predictor.h"
#include "harness/workload/input.h"
#include "tests/harness/predict/job_support.h"

/* How many lines of the file are taken; the header is one of the others. */
static inline int published_lines(const char *path, bool (*take)(void *context, const char *line),
                                  void *context) {
    struct mp_input *input = NULL;
    char *line;
    int taken = 0;
    assert_works(mp_input_open(path, &input, &error));
    struct mp_error error = {0};
    while (!mp_input_line(input, &line, &error) && line)
        taken += take(context, line);
    mp_input_destroy(input);
    return taken;
}

/* Of a job that names its cluster, which is read. */
static inline struct mp_predictor *published_predictor(struct mp_predict_job *job,
                                                       struct mp_cluster **cluster,
                                                       const struct mp_predict_sink *sink) {
    struct mp_predictor *predictor = NULL;
    *cluster = read_cluster(job);
    const struct mp_predictor_config config = {
        .cluster = *cluster, .job = &job->file, .options = &job->options, .sink = sink};
    assert_works(mp_predictor_create(&config, &predictor, &error));
    return predictor;
}
