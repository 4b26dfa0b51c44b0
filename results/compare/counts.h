/* Counts: the exact measures of one run, each as a total and a hash over all its rows. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "results/store/store.h"

enum { COUNT_NAME = 80 };

struct count {
    char name[COUNT_NAME];
    uint64_t hash; /* of all rows with their places; equal ones are taken as equal */
    double total;  /* sum, or for losses the last value */
    int64_t rows;
    bool is_loss; /* may differ a little between builds and machines */
};

/* One row of a measure; iteration, layer and rank are -1 where they do not apply. */
struct count_row {
    int64_t iteration;
    int layer, rank, part; /* part: direction and stream of spans */
    double value;          /* NAN: not a number */
    uint64_t hash;         /* of a value that is a list */
};

struct counts {
    struct count *item; /* [count], in the order of the database, owned */
    int count;
    uint64_t inputs; /* hash of what the planners were told of speeds */
    /* Rows of one measure, if `wanted` is set before loading; owned. */
    const char *wanted;
    struct count_row *row; /* [rows] */
    int rows;
};

/* `counts` is zeroed but for `wanted`.  Of measured runs, times and what depends on them are left
 * out; of predicted ones they are exact as well.  Errors: MP_EIO, MP_ENOMEM. */
int counts_load(struct mp_store *store, int64_t run_id, bool predicted, struct counts *counts,
                struct mp_error *error);
void counts_free(struct counts *counts);
MP_END(counts, struct counts, counts_free(it))

const struct count *counts_find(const struct counts *counts, const char *name); /* NULL: none */
