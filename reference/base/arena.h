/* Arena: tables that live and end together, and lists that grow.
 *
 * A thing of many tables takes them from one `struct mp_arena`, asks once whether there was room
 * for all of them, and releases all of them at once.  Each is a block of its own for those who look
 * for accesses outside. */
#ifndef MOEPERF_REFERENCE_BASE_ARENA_H
#define MOEPERF_REFERENCE_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "reference/base/error.h"

struct mp_arena {
    struct mp_arena_block *block; /* the latest; owned */
    size_t lacking;               /* bytes of the first block that there was no room for; 0: none */
};

/* `count` items of `size` bytes, zeroed, until the arena is released.  NULL, and arena->lacking
 * from then on, where there is no room. */
void *mp_arena_take(struct mp_arena *arena, size_t count, size_t size);
#define MP_TAKE(arena, table, count)                                                               \
    ((table) = mp_arena_take(arena, (size_t)(count), sizeof *(table)))

/* A copy of a text. */
char *mp_arena_text(struct mp_arena *arena, const char *text);

/* MP_ENOMEM with a sentence if anything is lacking. */
int mp_arena_check(const struct mp_arena *arena, struct mp_error *error);

/* Frees all that was taken; what is released may be taken from again. */
void mp_arena_release(struct mp_arena *arena);

/* Room for one item behind the `count` of a list that was always grown by this; `list` is the
 * address of its pointer, NULL at the beginning, and is to be freed.  False without memory: the
 * list stays as it was. */
bool mp_list_room(void *list, size_t count, size_t size);
#define MP_ROOM(list, count) mp_list_room(&(list), (size_t)(count), sizeof *(list))

#endif
