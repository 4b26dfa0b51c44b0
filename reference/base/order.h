/* Order: what qsort needs to compare items by several keys.
 *
 *     return MP_ORDER(a->rank, b->rank) ?: MP_ORDER(b->end_ns, a->end_ns);
 *
 * by rank, and among those of a rank the one that ends last first. */
#pragma once

#include <stdlib.h>

/* -1, 0, 1: `a` is less than `b`, neither, more. */
#define MP_ORDER(a, b) (((a) > (b)) - ((a) < (b)))

/* qsort of a list that may be NULL where it is empty. */
#define MP_SORT(list, count, compare)                                                              \
    ((count) > 0 ? qsort(list, (size_t)(count), sizeof *(list), compare) : (void)0)
