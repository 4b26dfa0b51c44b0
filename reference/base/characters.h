/* Characters: text of others, as UTF-8 and as something that can be shown.
 *
 * Names come from files, databases and programs that others made.  What is put on a terminal, into
 * a table or into a message passes through mp_clean_text, so that it can't move the cursor, ring,
 * or stand in another order than its bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes one UTF-8 sequence of a string; the bytes it takes, or 0 if it is not one. */
int mp_character_decode(const char *text, uint32_t *character);

/* Whether it can stand in a text that is shown.  Not so control characters, line breaks and tabs
 * among them, and characters that are not seen or change the direction of others (U+200B to U+200F,
 * U+202A to U+202E and their like). */
bool mp_character_is_shown(uint32_t character);

/* Copies at most size - 1 bytes of whole characters.  '?' takes the place of those that can't be
 * shown and of bytes that are no UTF-8.  `to` may be `text`.  Returns `to`. */
char *mp_clean_text(char *to, size_t size, const char *text);

/* Whether all of the text is one whole number from `least` to `most`; only then *value is set. */
bool mp_whole_number(const char *text, int64_t least, int64_t most, int64_t *value);
/* The same of any number; `unit` ("%") may stand behind it. */
bool mp_real_number(const char *text, const char *unit, double least, double most, double *value);

/* Adds to the text that is in `text`, behind `between` if it is not empty ("ep, fssdp"); what there
 * is no room for is cut off.  Returns `text`. */
char *mp_text_add(char *text, size_t size, const char *between, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
