#include "reference/base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct mp_arena_block {
    struct mp_arena_block *before;
    alignas(max_align_t) unsigned char table[];
};

enum { LEAST_ROOM = 16 }; /* items of a list, a power of two */

void *mp_arena_take(struct mp_arena *arena, size_t count, size_t size) {
    struct mp_arena_block *block;
    const bool fits = count <= (SIZE_MAX - sizeof *block) / size;
    const size_t bytes = fits ? sizeof *block + count * size : SIZE_MAX;
    block = fits ? calloc(1, bytes) : NULL;
    if (!block) {
        arena->lacking = arena->lacking ? arena->lacking : bytes;
        return NULL;
    }
    block->before = arena->block;
    arena->block = block;
    return block->table;
}

char *mp_arena_text(struct mp_arena *arena, const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = mp_arena_take(arena, size, 1);
    return copy ? memcpy(copy, text, size) : NULL;
}

int mp_arena_check(const struct mp_arena *arena, struct mp_error *error) {
    return arena->lacking
               ? mp_fail(error, MP_ENOMEM, "no memory for a table of %zu bytes", arena->lacking)
               : MP_OK;
}

void mp_arena_release(struct mp_arena *arena) {
    while (arena->block) {
        struct mp_arena_block *before = arena->block->before;
        free(arena->block);
        arena->block = before;
    }
    arena->lacking = 0;
}

/* A list of `count` items has room for the next power of two, so it is full when it has so many. */
bool mp_list_room(void *list, size_t count, size_t size) {
    void *items;
    if (count != 0 && (count < LEAST_ROOM || (count & (count - 1)) != 0))
        return true;
    size_t room = count ? 2 * count : LEAST_ROOM;
    if (room > SIZE_MAX / size)
        return false;
    memcpy(&items, list, sizeof items);
    items = realloc(items, room * size);
    if (items)
        memcpy(list, &items, sizeof items);
    return items;
}

int mp_table_reach(void *table, uint32_t *count, uint32_t id, uint32_t limit, size_t size,
                   struct mp_error *error) {
    char *items;
    if (id < *count)
        return MP_OK;
    const uint32_t room = id < limit / 2 - 512 ? 2 * (id + 512) : limit;
    memcpy(&items, table, sizeof items);
    items = realloc(items, room * size);
    if (!items)
        return mp_no_memory(error);
    memset(items + *count * size, 0, (room - *count) * size);
    memcpy(table, &items, sizeof items);
    *count = room;
    return MP_OK;
}
