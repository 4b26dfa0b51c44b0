#include "harness/predict/known_bounds.h"

#include <stdlib.h>
#include <string.h>

#include "harness/predict/bound.h"
#include "harness/predict/job.h"
#include "reference/base/random.h"
#include "results/store/keyed.h"

struct mp_known_bounds {
    struct keyed by_hash;
    char *conditions; /* of the last job, whose bound it is; NULL: none */
    struct mp_bound *bound;
};

struct value {
    uint64_t hash; /* another one of the same numbers; 0: new */
    double seconds;
};

int mp_known_bounds_create(struct mp_known_bounds **out, struct mp_error *error) {
    MP_TRY(MP_NEW(*out, 1, error));
    keyed_init(&(*out)->by_hash, sizeof(struct value));
    return MP_OK;
}

static void forget(struct mp_known_bounds *known) {
    mp_bound_destroy(known->bound);
    free(known->conditions);
    known->bound = NULL;
    known->conditions = NULL;
}

void mp_known_bounds_destroy(struct mp_known_bounds *known) {
    if (!known)
        return;
    forget(known);
    keyed_free(&known->by_hash);
    free(known);
}

/* All that is said of a job but for its name and system. */
static int write_conditions(const struct mp_predict_job *job, char **text, struct mp_error *error) {
    struct mp_predict_job nameless = *job;
    *nameless.file.job.name = *nameless.file.job.system = '\0';
    nameless.file.system = NULL;
    return mp_predict_job_text(&nameless, true, text, error);
}

int mp_known_bounds_take(struct mp_known_bounds *known, const struct mp_predict_job *job,
                         const struct mp_cluster *cluster, struct mp_bound **bound,
                         struct mp_error *error) {
    char *conditions;
    int code = write_conditions(job, &conditions, error);
    if (!code && (!known->bound || strcmp(conditions, known->conditions) != 0)) {
        forget(known);
        code =
            mp_bound_create(NULL, cluster, &job->file.job, &job->options, 0, &known->bound, error);
        known->conditions = code ? NULL : conditions;
        conditions = code ? conditions : NULL;
    }
    free(conditions);
    MP_TRY(code);
    mp_bound_remember(known->bound, known);
    *bound = known->bound;
    return MP_OK;
}

static uint64_t hash_of(const struct mp_known_part part[], int parts, uint64_t hash) {
    for (int p = 0; p < parts; p++)
        for (size_t i = 0; i < part[p].count; i++) {
            uint64_t bits;
            memcpy(&bits, &part[p].number[i], sizeof bits);
            hash = mp_random_bits(hash, bits, i);
        }
    return hash;
}

bool mp_known_bounds_find(struct mp_known_bounds *known, const struct mp_known_part part[],
                          int parts, double **seconds) {
    *seconds = NULL;
    if (!known)
        return false;
    struct value *value = keyed_add(&known->by_hash, hash_of(part, parts, 1));
    if (!value)
        return false;
    uint64_t hash = hash_of(part, parts, 2) | 1;
    bool is_known = value->hash == hash;
    value->hash = hash;
    *seconds = &value->seconds;
    return is_known;
}
