/* Lists of words parted by single blanks: the values of an MP_OPTION_CHOICE; and names that no row
 * has.  Internal to options. */
#ifndef MOEPERF_REFERENCE_BASE_OPTION_CHOICE_H
#define MOEPERF_REFERENCE_BASE_OPTION_CHOICE_H

#include <stdbool.h>

#include "reference/base/option.h"

enum { MP_OPTION_ROWS = 128 };                      /* most of a table */
enum { MP_CHOICE_SIZE = 64, MP_CHOICE_WORDS = 32 }; /* bytes of a word; words of a list */

/* Copies the word of this index and returns true, or returns false if there are fewer. */
bool mp_choice_word(const char *choices, int index, char word[MP_CHOICE_SIZE]);
/* The index of a word, or -1. */
int mp_choice_index(const char *choices, const char *word);
/* Finds the nearest known word (mp_nearest_word). */
bool mp_choice_nearest(const char *choices, const char *word, char nearest[MP_CHOICE_SIZE]);
/* What is wrong with a list, or NULL: missing, blank, a word twice, too long or too many. */
const char *mp_choice_fault(const char *choices);

/* A name that no row of the groups with this key has, and that is no key of a group. */
int option_fail_unknown(const struct mp_option_group groups[], const char *key, const char *name,
                        const char *where, struct mp_error *error);

#endif
