/* Payloads of recorded ranges, read by the schemas that their programs registered: numbers,
 * enumerations and embedded text, alone, in arrays whose length is fixed or stands in the payload,
 * and in schemas inside schemas.  What else NVTX's payload extension knows is left out and counted
 * by its reason.  No byte outside the payload is read, whatever a schema says. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "profiler/record/spool.h"

/* The schemas of one spool. */
struct mp_schemas;

int mp_schemas_create(struct mp_schemas **schemas, struct mp_error *error);
void mp_schemas_destroy(struct mp_schemas *schemas); /* accepts NULL */

/* Keeps the SCHEMA record `record`; a later one of the same domain and id replaces it.  Schemas may
 * refer to later ones: what can't be right is found when a payload is read.  Errors: MP_ENOMEM. */
int mp_schemas_add(struct mp_schemas *schemas, const struct mp_spool_record *record,
                   struct mp_error *error);

/* Why a field is left out of what is read. */
enum mp_payload_skip {
    MP_SKIP_POINTER,  /* it points to the program's memory */
    MP_SKIP_OFFSET,   /* its place is an offset that the payload holds */
    MP_SKIP_UNION,    /* a union: which member is meant is not looked for */
    MP_SKIP_TYPE,     /* a type that is no number that C has */
    MP_SKIP_SCHEMA,   /* its type is a schema that nobody registered */
    MP_SKIP_LENGTH,   /* an array or schema whose length the schema does not say */
    MP_SKIP_POSITION, /* lies behind one of unknown length */
    MP_SKIP_OUTSIDE,  /* would end outside the payload */
    MP_SKIP_NESTING,  /* schemas inside one another, too deep or in a circle */
    MP_SKIP_WORK,     /* too many fields lie over one another */
    MP_SKIPS
};
const char *mp_payload_skip_name(enum mp_payload_skip skip); /* "pointer" */

/* The field `name` of the RANGE record's payloads, as a whole number; a fraction is cut.  Fields of
 * a schema inside another are "outer.inner", elements of an array "name[2]", from 0.  A NULL name
 * is the plain value of a range without schemas.  false: there is none that is a number. */
bool mp_payload_number(const struct mp_schemas *schemas, const struct mp_spool_record *range,
                       const char *name, int64_t *value);

/* All payloads as a JSON array of objects: [{"layer":3,"sizes":[1,2],"from":{"rank":0}}].  Values
 * of enumerations are their names; fields without a name are left out, and those that `skipped`
 * [MP_SKIPS] counts (added to; NULL: not wanted).  Returns the length written to `text` (cut after
 * a whole object when it does not fit), 0: there are no payloads that a schema describes. */
size_t mp_payload_json(const struct mp_schemas *schemas, const struct mp_spool_record *range,
                       int64_t skipped[], char *text, size_t size);

/* A name of any bytes as UTF-8: what is none becomes \xNN.  Returns `text`, which has room for four
 * bytes per byte of `name` and one more. */
char *mp_printable_name(const char *name, char *text);
