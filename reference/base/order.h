/* Order and search: what qsort needs to compare items by several keys, and where in a list
 * something is, without a loop of its own.
 *
 *     MP_COMPARE(by_rank, struct span, MP_ORDER(a->rank, b->rank) ?: MP_ORDER(b->end, a->end))
 *
 * by rank, and among those of a rank the one that ends last first.
 *
 *     return MP_ANY(i, side->count, side->run[i].run_id == run_id);
 *
 * Here `i` is a name that the condition says the place by, from 0 on, and `count` is evaluated
 * often. error.h has this. */
#pragma once

#include <stdlib.h>

/* -1, 0, 1: `a` is less than `b`, neither, more. */
#define MP_ORDER(a, b) (((a) > (b)) - ((a) < (b)))

/* A function for qsort: the order of items `a` and `b` of a type. */
#define MP_COMPARE(name, type, order)                                                              \
    static int name(const void *left, const void *right) {                                         \
        const type *a = left, *b = right;                                                          \
        return order;                                                                              \
    }

/* qsort of a list that may be NULL where it is empty. */
#define MP_SORT(list, count, compare)                                                              \
    ((count) > 0 ? qsort(list, (size_t)(count), sizeof *(list), compare) : (void)0)

/* Items of a table, which is no pointer. */
#define MP_LENGTH(table) (sizeof(table) / sizeof *(table))

/* The first place that the condition holds for; `count`: none. */
#define MP_PLACE(i, count, condition)                                                              \
    ({                                                                                             \
        typedef __typeof__((count) + 0) mp_place;                                                  \
        mp_place i = 0;                                                                            \
        while ((i) < (count) && !(condition))                                                      \
            (i)++;                                                                                 \
        (i) + 0;                                                                                   \
    })
/* Whether there is one. */
#define MP_ANY(i, count, condition) (MP_PLACE(i, count, condition) < (count))
/* The item there; NULL: there is none. */
#define MP_FIND(list, i, count, condition)                                                         \
    ({                                                                                             \
        __typeof__((count) + 0) mp_found = MP_PLACE(i, count, condition);                          \
        mp_found < (count) ? &(list)[mp_found] : NULL;                                             \
    })

/* Of places in an order, the first that `is_before`, which says `at`, does not hold for; `count`:
 * it holds for all. */
#define MP_BISECT(at, count, is_before)                                                            \
    ({                                                                                             \
        typedef __typeof__((count) + 0) mp_place;                                                  \
        mp_place mp_low = 0, mp_high = (count);                                                    \
        while (mp_low < mp_high) {                                                                 \
            mp_place at = mp_low + (mp_high - mp_low) / 2;                                         \
            if (is_before)                                                                         \
                mp_low = (at) + 1;                                                                 \
            else                                                                                   \
                mp_high = at;                                                                      \
        }                                                                                          \
        mp_low + 0;                                                                                \
    })
