/* Catalog: workloads, and capabilities of systems, in words, for list and show.  Systems and gates
 * describe themselves otherwise. */
#ifndef MOEPERF_HARNESS_CLI_CATALOG_H
#define MOEPERF_HARNESS_CLI_CATALOG_H

#include <jansson.h>

struct cli_entry {
    const char *name;
    const char *title;  /* one line */
    const char *models; /* some sentences */
    const char *use;    /* what to write into a job */
};

extern const struct cli_entry cli_workloads[]; /* ends with a row whose name is NULL */

const struct cli_entry *cli_workload_find(const char *name);

/* What a capability of enum mp_system_capability means to somebody who reads a result. */
struct cli_capability {
    unsigned bit;
    const char *brief; /* some words, for list; NULL: nothing that changes how a result is read */
    const char *words; /* a sentence, for show */
};

/* By the name of its bit (mp_system_capability_name). */
const struct cli_capability *cli_capability_find(const char *name);
/* Array of the names of all bits that are set; NULL: no memory. */
json_t *cli_pack_capabilities(unsigned capabilities);

#endif
