/* Words that a choice has, in a text parted by single blanks or in a list; and names that no row
 * has.  Internal to options. */
#pragma once

#include <stdbool.h>

#include "reference/base/option.h"

enum { MP_OPTION_ROWS = 128 };                      /* most of a table */
enum { MP_CHOICE_SIZE = 64, MP_CHOICE_WORDS = 32 }; /* bytes of a word; words of a list */

/* Of a row with a choice or word: copies the word of this index and returns true, or returns false
 * if there are fewer. */
bool option_word(const struct mp_option *row, int index, char word[MP_CHOICE_SIZE]);
/* The index of a word, or -1. */
int option_word_index(const struct mp_option *row, const char *word);
/* What is wrong with its words, or NULL: missing, blank, one twice, too long or too many. */
const char *option_word_fault(const struct mp_option *row);

/* A name that no row of the groups with this key has, and that is no key of a group. */
int option_fail_unknown(const struct mp_option_group groups[], const char *key, const char *name,
                        const char *where, struct mp_error *error);
