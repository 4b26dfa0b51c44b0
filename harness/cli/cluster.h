/* moeperf show for clusters: every number with where it comes from. */
#ifndef MOEPERF_HARNESS_CLI_CLUSTER_H
#define MOEPERF_HARNESS_CLI_CLUSTER_H

#include <jansson.h>

#include "reference/base/error.h"

/* A cluster's file as an object of kind "cluster": name, title, path, device, `quantities` as an
 * array of {place, value, unit, source or assumed, line}, and `tokens` and `width` of the
 * efficiency table.  NULL with an error. */
json_t *cli_pack_cluster(const char *name, const char *path, struct mp_error *error);

/* The same for people, at most a page wide. */
void cli_print_cluster(const json_t *object);

#endif
