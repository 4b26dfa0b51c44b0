/* Arena: tables that live and end together, and lists that grow.
 *
 * A thing of many tables takes them from one `struct mp_arena`, asks once whether there was room
 * for all of them, and releases all of them at once.  Each is a block of its own for those who look
 * for accesses outside. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* The same for each of up to eight tables of as many items. */
#define MP_TAKE_EACH(arena, count, ...)                                                            \
    MP_TAKE_NTH(__VA_ARGS__, MP_TAKE_8, MP_TAKE_7, MP_TAKE_6, MP_TAKE_5, MP_TAKE_4, MP_TAKE_3,     \
                MP_TAKE_2, MP_TAKE_1, )                                                            \
    (arena, count, __VA_ARGS__)
#define MP_TAKE_NTH(a, b, c, d, e, f, g, h, name, ...) name
#define MP_TAKE_1(arena, count, table) MP_TAKE(arena, table, count)
#define MP_TAKE_2(arena, count, table, ...)                                                        \
    (MP_TAKE(arena, table, count), MP_TAKE_1(arena, count, __VA_ARGS__))
#define MP_TAKE_3(arena, count, table, ...)                                                        \
    (MP_TAKE(arena, table, count), MP_TAKE_2(arena, count, __VA_ARGS__))
#define MP_TAKE_4(arena, count, table, ...)                                                        \
    (MP_TAKE(arena, table, count), MP_TAKE_3(arena, count, __VA_ARGS__))
#define MP_TAKE_5(arena, count, table, ...)                                                        \
    (MP_TAKE(arena, table, count), MP_TAKE_4(arena, count, __VA_ARGS__))
#define MP_TAKE_6(arena, count, table, ...)                                                        \
    (MP_TAKE(arena, table, count), MP_TAKE_5(arena, count, __VA_ARGS__))
#define MP_TAKE_7(arena, count, table, ...)                                                        \
    (MP_TAKE(arena, table, count), MP_TAKE_6(arena, count, __VA_ARGS__))
#define MP_TAKE_8(arena, count, table, ...)                                                        \
    (MP_TAKE(arena, table, count), MP_TAKE_7(arena, count, __VA_ARGS__))

/* A copy of a text. */
char *mp_arena_text(struct mp_arena *arena, const char *text);

/* MP_ENOMEM with a sentence if anything is lacking. */
int mp_arena_check(const struct mp_arena *arena, struct mp_error *error);

/* Frees all that was taken; what is released may be taken from again. */
void mp_arena_release(struct mp_arena *arena);
MP_END(arena, struct mp_arena, mp_arena_release(it))

/* Room for one item behind the `count` of a list that was always grown by this; `list` is the
 * address of its pointer, NULL at the beginning, and is to be freed.  False without memory: the
 * list stays as it was. */
bool mp_list_room(void *list, size_t count, size_t size);
#define MP_ROOM(list, count) mp_list_room(&(list), (size_t)(count), sizeof *(list))
/* The same as a code: MP_ENOMEM with a sentence. */
#define MP_GROW(list, count, error) (MP_ROOM(list, count) ? MP_OK : mp_no_memory(error))
/* Puts an item there and counts it. */
#define MP_APPEND(list, count, error, ...)                                                         \
    (MP_ROOM(list, count) ? ((list)[(count)++] = __VA_ARGS__, MP_OK) : mp_no_memory(error))

/* Makes a table by ids reach to `id`: items behind its *count are new and zeroed, at most `limit`.
 * `table` is the address of its pointer, NULL at the beginning, and is to be freed; id < limit.
 * MP_ENOMEM with a sentence: the table stays as it was. */
int mp_table_reach(void *table, uint32_t *count, uint32_t id, uint32_t limit, size_t size,
                   struct mp_error *error);
#define MP_REACH(table, count, id, limit, error)                                                   \
    mp_table_reach(&(table), &(count), id, limit, sizeof *(table), error)
