/* Commands that a report advises: they work where they are printed. */
#pragma once

#include <stddef.h>

enum { COMMAND_TEXT = 4096, COMMAND_WORD = 512 };

/* One word as shells want it, quoted where that is needed.  Returns `text`, which has COMMAND_WORD
 * bytes; "''" for a word that is too long. */
const char *command_word(char *text, const char *word);

/* "moeperf WORDS --db DATABASE", DATABASE quoted as shells want it.  Returns `text`, which has
 * COMMAND_TEXT bytes; "" for a path that is too long or that no line can show. */
const char *command_text(char *text, const char *database, const char *words, ...)
    __attribute__((format(printf, 3, 4)));
