/* Recent: sums of the last iterations' loads, from which planners predict the next.
 *
 * What a cell is, the user says: an expert of a layer, or one of a source rank.  Averages are kept
 * as sums, since the divisor cancels and integers are the same on every rank. */
#pragma once

#include <stddef.h>

#include "reference/base/arena.h"
#include "reference/plan/load.h"

struct mp_recent {
    size_t cells;
    int window;    /* iterations summed at most */
    int count;     /* iterations summed, 0 .. window */
    int next;      /* ring row that the next iteration overwrites */
    int64_t *ring; /* [window][cells], rows not yet written are zero; owned */
    int64_t *sum;  /* [cells], owned */
};

/* No iterations.  Tables are the arena's, whose user looks whether there was memory. */
void mp_recent_create(struct mp_arena *memory, size_t cells, int window, struct mp_recent *recent);

/* [cells] of the iteration so many before the next one: 1 .. count, 1 is the last. */
static inline const int64_t *mp_recent_row(const struct mp_recent *recent, int before) {
    int row = (recent->next + recent->window - before) % recent->window;
    return recent->ring + (size_t)row * recent->cells;
}

/* Takes in one iteration, with cells [layers][experts]: an expert's routes over all sources. */
void mp_recent_push_totals(struct mp_recent *recent, const struct mp_load load[], int layers);
/* The same with cells [layers][ranks][experts]: the counts themselves. */
void mp_recent_push_counts(struct mp_recent *recent, const struct mp_load load[], int layers);

/* As hooks of systems whose struct begins with theirs, and know nothing else:
 * writes at most `size` bytes of the state and returns the bytes needed. */
size_t mp_recent_save(const void *recent, void *buffer, size_t size);
/* Reads a state back.  Another window is fine: the newest iterations that fit are kept.
 * MP_EFORMAT for anything that was not saved with as many cells, and for routes that no load has;
 * then nothing has changed. */
int mp_recent_load(void *recent, const void *buffer, size_t size, struct mp_error *error);
