#include "profiler/record/name_table.h"

#include <stdlib.h>
#include <string.h>

#include "reference/base/digest.h"

enum { FIRST_SLOTS = 256 };

struct name_slot {
    char *text; /* NULL: free */
    uint64_t hash;
    uint32_t number;
};

static struct name_slot *slot_of(const struct name_table *table, const char *text, uint64_t hash) {
    uint32_t at = (uint32_t)hash & (table->capacity - 1);
    while (table->slots[at].text &&
           (table->slots[at].hash != hash || strcmp(table->slots[at].text, text) != 0))
        at = (at + 1) & (table->capacity - 1);
    return &table->slots[at];
}

static bool grow(struct name_table *table) {
    struct name_table larger = {.capacity = table->capacity ? 2 * table->capacity : FIRST_SLOTS,
                                .count = table->count};
    larger.slots = calloc(larger.capacity, sizeof *larger.slots);
    if (!larger.slots)
        return false;
    for (uint32_t i = 0; i < table->capacity; i++)
        if (table->slots[i].text)
            *slot_of(&larger, table->slots[i].text, table->slots[i].hash) = table->slots[i];
    free(table->slots);
    *table = larger;
    return true;
}

uint32_t name_table_number(struct name_table *table, const char *text, bool *is_new) {
    *is_new = false;
    if (2 * table->count >= table->capacity && !grow(table))
        return 0;
    uint64_t hash = mp_digest(MP_DIGEST, text);
    struct name_slot *slot = slot_of(table, text, hash);
    if (slot->text)
        return slot->number;
    char *copy = strdup(text);
    if (!copy)
        return 0;
    *slot = (struct name_slot){copy, hash, ++table->count};
    *is_new = true;
    return slot->number;
}

void name_table_free(struct name_table *table) {
    for (uint32_t i = 0; i < table->capacity; i++)
        free(table->slots[i].text);
    free(table->slots);
    *table = (struct name_table){0};
}
