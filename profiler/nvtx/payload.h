/* Payloads of recorded ranges, read by the schemas that their programs registered. */
#ifndef MOEPERF_PROFILER_NVTX_PAYLOAD_H
#define MOEPERF_PROFILER_NVTX_PAYLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "profiler/record/spool.h"

/* The schemas of one spool. */
struct mp_schemas;

int mp_schemas_create(struct mp_schemas **schemas, struct mp_error *error);
void mp_schemas_destroy(struct mp_schemas *schemas); /* accepts NULL */

/* Keeps the SCHEMA record `record`; a later one of the same domain and id replaces it.  What can't
 * be right (fields outside the payload) is found when a payload is read.  Errors: MP_ENOMEM. */
int mp_schemas_add(struct mp_schemas *schemas, const struct mp_spool_record *record,
                   struct mp_error *error);

/* The field `name` of the RANGE record's payloads, as a whole number; a fraction is cut.  A NULL
 * name is the plain value of a range without schemas.  false: there is none that is a number. */
bool mp_payload_number(const struct mp_schemas *schemas, const struct mp_spool_record *range,
                       const char *name, int64_t *value);

/* All payloads as a JSON array of objects: [{"layer":3,"tokens":100}].  Values of enumerations are
 * their names, fields that are neither numbers nor these are left out.  Returns the length written
 * to `text` (cut after a whole object when it does not fit), 0: there are no payloads that a schema
 * describes. */
size_t mp_payload_json(const struct mp_schemas *schemas, const struct mp_spool_record *range,
                       char *text, size_t size);

/* A name of any bytes as UTF-8: what is none becomes \xNN.  Returns `text`, which has room for four
 * bytes per byte of `name` and one more. */
char *mp_printable_name(const char *name, char *text);

#endif
