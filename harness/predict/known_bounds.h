/* Known bounds: what has been worked out already.  Jobs of a suite that meet the same loads on the
 * same cluster have one bound (bound.h), whatever their systems. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "reference/base/error.h"

struct mp_bound;
struct mp_cluster;
struct mp_known_bounds;
struct mp_predict_job;

/* MP_ENOMEM. */
int mp_known_bounds_create(struct mp_known_bounds **known, struct mp_error *error);
void mp_known_bounds_destroy(struct mp_known_bounds *known); /* accepts NULL */
MP_END(known_bounds, struct mp_known_bounds *, mp_known_bounds_destroy(*it))

/* The bound for such a job, which is made anew unless the job before was the same
 * but for its name and system; clusters are taken as the same by their name and changes.  Borrowed
 * until the next call.  Errors: mp_bound_create's. */
int mp_known_bounds_take(struct mp_known_bounds *known, const struct mp_predict_job *job,
                         const struct mp_cluster *cluster, struct mp_bound **bound,
                         struct mp_error *error);

/* What seconds depend on: numbers, [parts], [count] each. */
struct mp_known_part {
    const double *number;
    size_t count;
};
/* The seconds of the same numbers, bit for bit, as they were set; false: there are none.  Where two
 * hashes of 64 bits are equal, numbers are taken as equal.  The place stays valid until the next
 * call and is to be set where it is new; NULL: there is no memory for it, or `known` is NULL. */
bool mp_known_bounds_find(struct mp_known_bounds *known, const struct mp_known_part part[],
                          int parts, double **seconds);
