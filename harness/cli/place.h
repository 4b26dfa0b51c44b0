/* Results of moeperf place, in words and as one JSON object. */
#ifndef MOEPERF_HARNESS_CLI_PLACE_H
#define MOEPERF_HARNESS_CLI_PLACE_H

#include <jansson.h>

#include "harness/place/decide.h"

/* What was asked and what came of it; all borrowed. */
struct cli_placed {
    const struct mp_place_loads *loads;
    const struct mp_decision *decision;
    const char *mode;   /* what was chosen of it, in words; "": nothing */
    const char *output; /* the file that was written; NULL: none */
    enum mp_place_format format;
};

/* The placement: what it is, what it is worth, what it costs. */
void cli_print_placement(const struct cli_placed *placed, FILE *out);
/* Whether to turn the balancer on. */
void cli_print_decision(const struct cli_placed *placed, FILE *out);
/* Both prints' numbers. */
json_t *cli_pack_placed(const struct cli_placed *placed);

#endif
