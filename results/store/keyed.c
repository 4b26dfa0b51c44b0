#include "results/store/keyed.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"

enum { FIRST_SLOTS = 512 };

void keyed_init(struct keyed *keyed, size_t value_size) {
    *keyed = (struct keyed){.value_size = value_size};
}

void keyed_free(struct keyed *keyed) {
    free(keyed->keys);
    free(keyed->values);
    free(keyed->slots);
    free(keyed->order);
    *keyed = (struct keyed){0};
}

void *keyed_value(struct keyed *keyed, size_t index) {
    return keyed->values + index * keyed->value_size;
}

/* Fibonacci hashing; consecutive keys spread over the table. */
static size_t first_slot(const struct keyed *keyed, uint64_t key) {
    return (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (keyed->slot_count - 1);
}

/* The slot that holds the key, or the free one where it belongs. */
static size_t slot_of(const struct keyed *keyed, uint64_t key) {
    size_t slot = first_slot(keyed, key);
    while (keyed->slots[slot] && keyed->keys[keyed->slots[slot] - 1] != key)
        slot = (slot + 1) & (keyed->slot_count - 1);
    return slot;
}

static bool add_slots(struct keyed *keyed) {
    const size_t count = keyed->slot_count ? 2 * keyed->slot_count : FIRST_SLOTS;
    uint32_t *slots = count <= UINT32_MAX / 2 ? calloc(count, sizeof *slots) : NULL;
    if (!slots)
        return false;
    free(keyed->slots);
    keyed->slots = slots;
    keyed->slot_count = count;
    for (size_t i = 0; i < keyed->count; i++)
        slots[slot_of(keyed, keyed->keys[i])] = (uint32_t)i + 1;
    return true;
}

void *keyed_find(struct keyed *keyed, uint64_t key) {
    if (!keyed->count)
        return NULL;
    if (keyed->keys[keyed->latest] != key) {
        size_t slot = slot_of(keyed, key);
        if (!keyed->slots[slot])
            return NULL;
        keyed->latest = keyed->slots[slot] - 1;
    }
    return keyed_value(keyed, keyed->latest);
}

void *keyed_add(struct keyed *keyed, uint64_t key) {
    void *found = keyed_find(keyed, key);
    if (found)
        return found;
    if ((2 * keyed->count >= keyed->slot_count && !add_slots(keyed)) ||
        !MP_ROOM(keyed->keys, keyed->count) ||
        !mp_list_room(&keyed->values, keyed->count, keyed->value_size))
        return NULL;
    keyed->keys[keyed->count] = key;
    keyed->slots[slot_of(keyed, key)] = (uint32_t)keyed->count + 1;
    keyed->latest = keyed->count++;
    return memset(keyed_value(keyed, keyed->latest), 0, keyed->value_size);
}

static int compare_keys(const void *left, const void *right, void *keys) {
    uint64_t a = ((const uint64_t *)keys)[*(const uint32_t *)left];
    uint64_t b = ((const uint64_t *)keys)[*(const uint32_t *)right];
    return (a > b) - (a < b);
}

int keyed_sort(struct keyed *keyed, struct mp_error *error) {
    free(keyed->order);
    MP_TRY(MP_NEW(keyed->order, keyed->count + 1, error));
    for (size_t i = 0; i < keyed->count; i++)
        keyed->order[i] = (uint32_t)i;
    qsort_r(keyed->order, keyed->count, sizeof *keyed->order, compare_keys, keyed->keys);
    return MP_OK;
}

void *keyed_nth(struct keyed *keyed, size_t place, uint64_t *key) {
    *key = keyed->keys[keyed->order[place]];
    return keyed_value(keyed, keyed->order[place]);
}
