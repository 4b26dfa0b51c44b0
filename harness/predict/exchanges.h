/* Exchanges by themselves: how long rows take from every rank to every other one, all pairs alike,
 * by each of the ways that a job may ask for. */
#pragma once

#include "harness/cluster/cluster.h"
#include "reference/schedule/exchange/exchange.h"

/* Seconds until the last rank has all of `bytes` > 0 from each rank, itself included: round by
 * round as in a layer's dispatch, copies in between included.  MP_ENOMEM. */
int mp_exchange_seconds(const struct mp_cluster *cluster, enum mp_exchange_kind kind, double bytes,
                        double *seconds, struct mp_error *error);
