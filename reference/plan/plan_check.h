/* The law for plans.
 *
 * Runs on every plan in debug builds and tests, on request in release builds. */
#pragma once

#include "reference/plan/plan.h"

enum mp_plan_violation {
    MP_PLAN_LEGAL,
    MP_PLAN_SHAPE,                  /* load and plan disagree in ranks or experts, or sizes < 1 */
    MP_PLAN_OWNER_OUT_OF_RANGE,     /* an owner that is no rank */
    MP_PLAN_OWNER_NOT_HOLDER,       /* an owner that does not hold its expert */
    MP_PLAN_OWNER_CHANGED,          /* before and during name different owners */
    MP_PLAN_HOLDER_LOST,            /* a holder of before is missing in during */
    MP_PLAN_HOLDER_OUT_OF_RANGE,    /* a bit beyond the last rank */
    MP_PLAN_OWNER_ACCOMPANIED,      /* several keep an expert, and its optimizer is the owner's */
    MP_PLAN_HOLDER_UNFED,           /* an extra holder that no fetch feeds */
    MP_PLAN_FETCH_FROM_NON_HOLDER,  /* a fetch whose source does not have it before its stage */
    MP_PLAN_FETCH_TO_NON_HOLDER,    /* a fetch to a rank that is no holder in during */
    MP_PLAN_FETCH_TWICE,            /* a copy fetched twice, or fetched where it was before */
    MP_PLAN_REDUCE_MISSING,         /* a copy whose gradient is not summed into the owner */
    MP_PLAN_REDUCE_TWICE,           /* a copy whose gradient is summed twice */
    MP_PLAN_REDUCE_NOT_TO_OWNER,    /* a gradient that goes elsewhere than to the owner */
    MP_PLAN_REDUCE_FROM_NON_HOLDER, /* a gradient from a rank that computes nothing of it */
    MP_PLAN_SHARE_WRONG,      /* a replica that does not get the sum once, or another that does */
    MP_PLAN_SLICES,           /* slices and copies, or unequally many of an expert */
    MP_PLAN_WRONG_STAGE,      /* a fetch in a reduce stage or the other way round */
    MP_PLAN_WRONG_BYTES,      /* a transfer whose bytes are not the expert's */
    MP_PLAN_WRONG_LAYER,      /* a transfer of another layer, or an expert out of range */
    MP_PLAN_HOLDERS_UNLISTED, /* the list of holders is not that of during */
    MP_PLAN_ROUTE_TO_NON_HOLDER, /* routes sent to a rank that does not hold the expert */
    MP_PLAN_ROUTE_TWICE,         /* more routes dispatched than the load has, */
                                 /* or one holder twice for one (source, expert) */
    MP_PLAN_ROUTE_LOST,          /* fewer routes dispatched and the system declares no drops */
    MP_PLAN_DROP_BELOW_CAPACITY, /* routes dropped that capacities left room for */
    MP_PLAN_OVER_CAPACITY,       /* more routes kept than a capacity */
    MP_PLAN_PADDING,             /* a padded pair with more routes than rows, or not one holder; */
                                 /* what takes padding without it */
    MP_PLAN_EXCHANGE,            /* none, of groups that do not divide the ranks, or not padded */
    MP_PLAN_MEMORY,              /* more extra copies on a rank than the limit */
    MP_PLAN_VIOLATIONS
};

/* A short name in words: "fetch-from-non-holder". */
const char *mp_plan_violation_name(enum mp_plan_violation violation);

struct mp_plan_law {
    bool drops_routes;      /* the system declares that it drops */
    int extra_copies_limit; /* most copies on one rank beside what persists, or with a sliced
                               optimizer most holders; < 0: no limit */
    int64_t padding_limit;  /* most rows per pair in a padded exchange */
};

/* MP_OK, or MP_EPLAN with a sentence that names iteration, layer, violation, expert, ranks and
 * counts.  The violation (the first in enum order) is also stored if `violation` is not NULL.
 * `load` may be NULL for a plan before its gate: then dispatch is not looked at.
 * Cost: O(transfers + parts + ranks * experts).  Allocates working memory of O(experts * words):
 * not for release-mode steps unless asked for. */
int mp_plan_check(const struct mp_plan *plan, const struct mp_load *load,
                  const struct mp_plan_law *law, enum mp_plan_violation *violation,
                  struct mp_error *error);

/* MP_OK, or MP_EPLAN with a sentence like that, if a source's routes to the shards of an expert
 * (mp_setting.shards) are not equally many, so that some would be dropped of one shard and not of
 * another.  A plan of its dispatch.  O(parts), allocates nothing: of every plan. */
int mp_plan_check_shards(const struct mp_plan *plan, int shards, struct mp_error *error);
