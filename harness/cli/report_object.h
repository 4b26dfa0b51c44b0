/* A report (results/report/report.h) as a JSON object, to be put into a larger one. */
#ifndef MOEPERF_HARNESS_CLI_REPORT_OBJECT_H
#define MOEPERF_HARNESS_CLI_REPORT_OBJECT_H

#include <jansson.h>

#include "results/report/report.h"

typedef int cli_report_function(struct mp_store *store, const struct mp_report_selection *selection,
                                enum mp_report_format format, FILE *out, struct mp_error *error);

/* The caller owns the object; NULL with `error` set. */
json_t *cli_report_object(cli_report_function *report, struct mp_store *store,
                          const struct mp_report_selection *selection, struct mp_error *error);

#endif
