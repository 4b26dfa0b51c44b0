/* Values by (iteration, layer, phase): an open-addressing hash table that grows. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "reference/base/error.h"

struct keyed {
    size_t value_size;
    size_t count;
    uint64_t *keys;  /* [count] */
    char *values;    /* [count][value_size] */
    uint32_t *slots; /* [slot_count], index + 1; 0: free */
    size_t slot_count;
    size_t latest;   /* index found last: spans of one key follow each other */
    uint32_t *order; /* [count] indices by key, since keyed_sort */
};

/* Keys order like (iteration, layer, phase).  iteration >= 0 and < 2^32, layer -1 .. 2^16 - 2,
 * phase 0 .. 255. */
static inline uint64_t keyed_key(int64_t iteration, int layer, int phase) {
    return (uint64_t)iteration << 24 | (uint64_t)(layer + 1) << 8 | (uint64_t)phase;
}
static inline int64_t keyed_iteration(uint64_t key) {
    return (int64_t)(key >> 24);
}
static inline int keyed_layer(uint64_t key) {
    return (int)(key >> 8 & 0xffff) - 1;
}
static inline int keyed_phase(uint64_t key) {
    return (int)(key & 0xff);
}

void keyed_init(struct keyed *keyed, size_t value_size);
void keyed_free(struct keyed *keyed); /* accepts a zeroed one */

/* The key's value, added with zeros when it is new; NULL when memory is out.  The pointer is valid
 * until the next keyed_add. */
void *keyed_add(struct keyed *keyed, uint64_t key);
/* The key's value or NULL. */
void *keyed_find(struct keyed *keyed, uint64_t key);
void *keyed_value(struct keyed *keyed, size_t index);

/* Puts those that there are now in the order of their keys; the value at a place in it, and its
 * key. Errors: MP_ENOMEM. */
int keyed_sort(struct keyed *keyed, struct mp_error *error);
void *keyed_nth(struct keyed *keyed, size_t place, uint64_t *key);
