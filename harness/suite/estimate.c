/* Estimates: see estimate.h. */
#include "harness/suite/estimate.h"

#include <stdlib.h>

#include "harness/suite/seconds.h"

struct mp_estimate {
    int jobs, rounds;
    int turn;     /* of the running job, over all rounds */
    double begin; /* of the running job, s; 0: none runs */
    double done;  /* seconds of all jobs that have ended */
    int64_t first_iteration, iteration, iterations;
    double first_at, last_at; /* when the first and the last line came, s; 0: not yet */
    double duration[];        /* [jobs] in the last round, s; 0: not known */
};

int mp_estimate_create(int jobs, int rounds, struct mp_estimate **estimate,
                       struct mp_error *error) {
    struct mp_estimate *made = calloc(1, sizeof *made + (size_t)jobs * sizeof *made->duration);
    if (!made)
        return mp_fail(error, MP_ENOMEM, "no memory to estimate times");
    made->jobs = jobs;
    made->rounds = rounds;
    *estimate = made;
    return MP_OK;
}

void mp_estimate_destroy(struct mp_estimate *estimate) {
    free(estimate);
}

void mp_estimate_begin_job(struct mp_estimate *estimate) {
    estimate->begin = mp_seconds_now();
    estimate->iteration = estimate->iterations = 0;
    estimate->first_at = estimate->last_at = 0;
}

void mp_estimate_end_job(struct mp_estimate *estimate) {
    double seconds = mp_seconds_now() - estimate->begin;
    estimate->duration[estimate->turn % estimate->jobs] = seconds;
    estimate->done += seconds;
    estimate->begin = 0;
    estimate->turn++;
}

void mp_estimate_update(struct mp_estimate *estimate, int64_t iteration, int64_t iterations) {
    if (iterations < 1 || iteration == estimate->iteration)
        return;
    estimate->last_at = mp_seconds_now();
    if (estimate->first_at <= 0) {
        estimate->first_at = estimate->last_at;
        estimate->first_iteration = iteration;
    }
    estimate->iteration = iteration;
    estimate->iterations = iterations;
}

/* Seconds that the running job still needs; negative: not known. */
static double job_left(const struct mp_estimate *estimate, double elapsed) {
    int64_t counted = estimate->iteration - estimate->first_iteration;
    if (estimate->first_at > 0 && counted > 0) {
        double pace = (estimate->last_at - estimate->first_at) / (double)counted;
        double left = pace * (double)(estimate->iterations - estimate->iteration);
        double since = mp_seconds_now() - estimate->last_at;
        return left > since ? left - since : 0;
    }
    double known = estimate->duration[estimate->turn % estimate->jobs];
    if (known <= 0)
        return -1;
    return known > elapsed ? known - elapsed : 0;
}

void mp_estimate_read(const struct mp_estimate *estimate, double *share, double *seconds_left) {
    int turns = estimate->jobs * estimate->rounds, known = 0;
    double elapsed = estimate->begin > 0 ? mp_seconds_now() - estimate->begin : 0, sum = 0;
    double left = estimate->begin > 0 ? job_left(estimate, elapsed) : 0;
    *share = turns > 0 ? (double)estimate->turn / turns : 0;
    *seconds_left = -1;
    if (left < 0)
        return;
    for (int i = 0; i < estimate->jobs; i++) {
        sum += estimate->duration[i];
        known += estimate->duration[i] > 0;
    }
    double mean = known > 0 ? sum / known : elapsed + left;
    for (int turn = estimate->turn + (estimate->begin > 0); turn < turns; turn++) {
        double duration = estimate->duration[turn % estimate->jobs];
        left += duration > 0 ? duration : mean;
    }
    double spent = estimate->done + elapsed;
    *seconds_left = left;
    *share = spent + left > 0 ? spent / (spent + left) : 0;
}
