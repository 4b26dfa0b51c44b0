/* Catalog: what is built in, for list and show; of it workloads, and capabilities of systems, are
 * here in words.  Systems and gates describe themselves otherwise. */
#ifndef MOEPERF_HARNESS_CLI_CATALOG_H
#define MOEPERF_HARNESS_CLI_CATALOG_H

#include <jansson.h>

#include "reference/plan/system.h"

struct cli_entry {
    const char *name;
    const char *title;  /* one line */
    const char *models; /* some sentences */
    const char *use;    /* what to write into a job */
};

extern const struct cli_entry cli_workloads[]; /* ends with a row whose name is NULL */

/* All of it, an object each as `moeperf show` has it, with "kind" and "name" (show.c).  NULL: no
 * memory. */
json_t *cli_catalog(const struct mp_systems *systems);

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
