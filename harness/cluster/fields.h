/* What a cluster's file may say: one table for reading, showing and messages. */
#pragma once

#include "harness/cluster/cluster.h"

extern const struct mp_option mp_cluster_peak_rows[]; /* in the order of enum mp_precision */
extern const struct mp_option mp_cluster_level_rows[];
extern const struct mp_option_form mp_cluster_number;  /* a quantity; likewise: */
extern const struct mp_option_form mp_cluster_whole;   /* without fractions */
extern const struct mp_option_form mp_cluster_sharing; /* words instead of a number */
extern const struct mp_option_form mp_cluster_table;   /* struct mp_cluster_efficiency */
extern const struct mp_option mp_cluster_share_rows[]; /* of its entries, by direction */

/* Readers of the forms (read.c). */
int mp_cluster_read_quantity(const struct mp_reading *reading, const struct mp_option *row,
                             const struct mp_yaml *value, void *quantity);
int mp_cluster_read_table(const struct mp_reading *reading, const struct mp_option *row,
                          const struct mp_yaml *value, void *efficiency);

/* The row of a quantity's value, under another name. */
struct mp_option mp_cluster_value_row(const struct mp_option *row, const char *name);
