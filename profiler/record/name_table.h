/* Names by number: each text gets the next one from 1 on, and the same again. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct name_slot;

/* Starts as zeros. */
struct name_table {
    struct name_slot *slots; /* open addressing, never more than half full */
    uint32_t capacity, count;
};

/* The number of a text, *is_new where it has just got it; 0: no memory.  Allocates for new texts
 * only. */
uint32_t name_table_number(struct name_table *table, const char *text, bool *is_new);
void name_table_free(struct name_table *table); /* accepts zeros, and leaves them */
