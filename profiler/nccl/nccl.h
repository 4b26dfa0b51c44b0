/* libmoeperf-nccl.so: when NCCL's collectives, sends and receives really ran.
 *
 * Loaded by NCCL 2.28 or newer: NCCL_PROFILER_PLUGIN names the library.  One COLLECTIVE record per
 * operation and rank: when the host began and had finished queueing it, and from the GPU's own
 * timer when its first channel started and its last one ended.  A NCCL kernel's duration contains
 * waiting for late ranks; how much is known once all ranks' records are side by side (view
 * v_collective).  An all-to-all is not a collective here but sends and receives under one group
 * call: its group's ordinal in the communicator is what ranks have in common.
 *
 *   MOEPERF_DEVICE_SPOOLS   folder for the records; unset: off
 *   MOEPERF_NCCL_SAMPLE     "N/P": the first N group calls of every P are recorded ("1/1": all;
 *                           "1000/10000" when unset).  Ranks that make the same calls record the
 *                           same ones.
 *
 * What is not sampled costs one event per group call.  What is sampled makes NCCL's proxy thread
 * visit every operation (hardly visible to 10 % for small messages, says NCCL's issue 1809), and
 * our own part of it is measured: numbers "nccl.events" and "nccl.callback-ns", which NCCL's log
 * (NCCL_DEBUG=INFO) repeats when the last communicator ends.
 *
 * "nccl.lost" counts operations for which no room was left (32768 are open at most),
 * "nccl.unfinished" those that had not ended when their communicator did, "nccl.foreign" events of
 * another process, which are none of ours. */
#pragma once

#include "profiler/nccl/plugin.h"

/* The whole of "N/P"; false: not of that form, or not 1 <= N <= P.  NULL and "" are the default. */
bool nccl_parse_sample(const char *text, int64_t *sampled, int64_t *period);

enum { NCCL_OPERATIONS = 32768 }; /* most that are under way at once */
