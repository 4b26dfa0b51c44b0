#include "results/report/command.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "reference/base/characters.h"
#include "reference/base/shell.h"

const char *command_word(char *text, const char *word) {
    if (mp_shell_word(text, COMMAND_WORD, word) >= COMMAND_WORD)
        snprintf(text, COMMAND_WORD, "''");
    return text;
}

const char *command_text(char *text, const char *database, const char *words, ...) {
    va_list arguments;
    char clean[COMMAND_TEXT];
    size_t length = (size_t)snprintf(text, COMMAND_TEXT, "moeperf ");
    va_start(arguments, words);
    length += (size_t)vsnprintf(text + length, COMMAND_TEXT - length, words, arguments);
    va_end(arguments);
    if (length < COMMAND_TEXT) /* "--db=": a name that begins with "-" is no option */
        length += (size_t)snprintf(text + length, COMMAND_TEXT - length, " --db%c",
                                   *database == '-' ? '=' : ' ');
    if (length < COMMAND_TEXT)
        length += mp_shell_word(text + length, COMMAND_TEXT - length, database);
    if (length >= COMMAND_TEXT || strcmp(mp_clean_text(clean, sizeof clean, text), text) != 0)
        text[0] = '\0';
    return text;
}
