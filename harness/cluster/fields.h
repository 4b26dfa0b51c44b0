/* What a cluster's file may say: one table for reading, showing and messages. */
#ifndef MOEPERF_HARNESS_CLUSTER_FIELDS_H
#define MOEPERF_HARNESS_CLUSTER_FIELDS_H

#include "harness/cluster/cluster.h"

struct mp_cluster_field {
    const char *name; /* NULL ends a table */
    const char *unit;
    size_t offset; /* of the struct mp_quantity */
    double minimum, maximum;
    bool whole;          /* no fractions */
    const char *choices; /* words instead of a number: as in an option table */
    bool optional;       /* a file may leave it out */
};

extern const struct mp_cluster_field mp_cluster_size_fields[]; /* of the file itself */
extern const struct mp_cluster_field mp_cluster_device_fields[], mp_cluster_peak_fields[];
extern const struct mp_cluster_field mp_cluster_level_fields[];
extern const struct mp_cluster_field mp_cluster_share_fields[]; /* by direction */

/* The quantity of a field in the struct that its table is for. */
static inline struct mp_quantity *mp_cluster_field_of(void *object,
                                                      const struct mp_cluster_field *field) {
    return (struct mp_quantity *)((char *)object + field->offset);
}

#endif
