/* Shell: words of commands that users are told to copy. */
#pragma once

#include <stddef.h>

/* Writes a word so that a shell reads it as it is: quoted where that is needed, at most size - 1
 * bytes.  Returns the bytes that all of it takes, as snprintf does; `text` may be NULL for size 0.
 */
size_t mp_shell_word(char *text, size_t size, const char *word);
