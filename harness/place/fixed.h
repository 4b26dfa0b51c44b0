/* Fixed: a placement as a planner, for the predictor: homes that stay, or change once. */
#ifndef MOEPERF_HARNESS_PLACE_FIXED_H
#define MOEPERF_HARNESS_PLACE_FIXED_H

#include "harness/place/place.h"

struct place_fixed_options {
    const struct mp_place_map *map;
    const struct mp_place_map *next; /* from the end of the first step on; NULL: it stays */
};
/* Not registered: its options are pointers, borrowed until it is destroyed. */
extern const struct mp_system place_fixed;

#endif
