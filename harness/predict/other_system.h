/* Another system on a recorded run: the predictor carries out what its planner makes of the loads
 * that the run recorded, with costs fitted to the run (fitted.h).
 *
 * The answer is what the run took, and what the predictor says the other system takes more or less
 * than the run's own, so that what the model lacks stays as it was.
 *
 * A run records the loads of whole iterations: of several micro-batches each gets its share. */
#pragma once

#include "harness/predict/fitted.h"
#include "reference/plan/system.h"
#include "results/store/store.h"

struct mp_other_system;

/* Reads the run's job and loads from the database and fits the costs.  All but error is borrowed
 * until destroy.  MP_ENOTFOUND for a run without its job file, loads, or expert spans; errors of
 * the planner; MP_ENOMEM. */
int mp_other_system_create(struct mp_what_if *what_if, const struct mp_recorded *recorded,
                           struct mp_store *store, const struct mp_systems *systems,
                           struct mp_other_system **other, struct mp_error *error);
void mp_other_system_destroy(struct mp_other_system *other); /* accepts NULL */
MP_END(other_system, struct mp_other_system *, mp_other_system_destroy(*it))
const struct mp_fitted *mp_other_system_fitted(const struct mp_other_system *other);
/* The run's own, as its job says: reports may call a run of somebody else's program otherwise. */
const struct mp_system *mp_other_system_own(const struct mp_other_system *other);
/* What planners are told. */
const struct mp_setting *mp_other_system_setting(const struct mp_other_system *other);

/* Works out the bound (bound.h) with these costs, which answers then have a share
 * of: seconds, median of an iteration, with what the model lacks as in answers.  NAN of a run whose
 * experts were cut into shards.  `always`: also where it takes more than a second or so, and is NAN
 * otherwise.  Errors: those of bound.h. */
int mp_other_system_bound(struct mp_other_system *other, bool always, double *seconds,
                          struct mp_error *error);

struct mp_other_request {
    const char *system;
    const char *const (*option)[2]; /* [options] of the system: name and value */
    int options;
};
struct mp_other_answer {
    double seconds;  /* median of an iteration */
    double of_bound; /* the bound as a share of its time, of means; NAN where it is not worked out
                        or says nothing of the system */
    char options[1024]; /* that it planned with, all of them: "memory=2 overlap=auto" */
};
/* A system with its default options (the run's own system with the run's), but for those that are
 * given.  The run's own system as it was: what the predictor alone says, which tells what it is
 * worth.  MP_ENOTFOUND for an unknown system, MP_EINVAL for an option that it does not have, and
 * what it refuses. */
int mp_other_system_ask(struct mp_other_system *other, const struct mp_other_request *request,
                        struct mp_other_answer *answer, struct mp_error *error);
