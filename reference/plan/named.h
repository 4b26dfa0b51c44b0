/* Named numbers: members of a struct that are recorded, and read again, under a name. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct mp_named_number {
    const char *name; /* "bytes-before-gate"; a table ends with NULL */
    size_t offset;    /* of the member */
    enum mp_number_kind { MP_NUMBER_INT, MP_NUMBER_INT64, MP_NUMBER_DOUBLE } kind;
};

/* The member of `values`, the struct that the table is of. */
double mp_named_value(const struct mp_named_number *number, const void *values);
