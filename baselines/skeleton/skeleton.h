/* The skeleton: where a new system starts.  It does what plain expert parallelism does (every
 * expert stays with its owner, every route goes to it), through every hook that there is;
 * skeleton.c says of each when it is called, whether it is required and what it may not do.
 * baselines/README.md tells how to make a system of it. */
#ifndef MOEPERF_BASELINES_SKELETON_SKELETON_H
#define MOEPERF_BASELINES_SKELETON_SKELETON_H

#include "reference/plan/system.h"

extern const struct mp_system mp_system_skeleton;

#endif
