/* Shell: words of commands that users are told to copy, and where programs are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Writes a word so that a shell reads it as it is: quoted where that is needed, at most size - 1
 * bytes.  Returns the bytes that all of it takes, as snprintf does; `text` may be NULL for size 0.
 */
size_t mp_shell_word(char *text, size_t size, const char *word);

/* Whether there is a program of that name, in the folders of PATH unless it has a '/'; where.  An
 * empty entry of PATH is the current folder.  Where there is none errno says why. */
bool mp_shell_search(const char *name, char path[], size_t size);
