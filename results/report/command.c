#include "results/report/command.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool is_plain(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./+,:@%=-";
    return *word && *word != '-' && !word[strspn(word, plain)];
}

/* The number of bytes added, or more than there is room for. */
static size_t add_quoted(char *text, size_t size, const char *word) {
    size_t length = 0;
    if (is_plain(word))
        return (size_t)snprintf(text, size, "%s", word);
    length += (size_t)snprintf(text, size, "'");
    for (; *word && length + 8 < size; word++)
        length +=
            (size_t)snprintf(text + length, size - length, *word == '\'' ? "'\\''" : "%c", *word);
    return *word ? size : length + (size_t)snprintf(text + length, size - length, "'");
}

const char *command_word(char *text, const char *word) {
    if (add_quoted(text, COMMAND_WORD, word) >= COMMAND_WORD)
        snprintf(text, COMMAND_WORD, "''");
    return text;
}

const char *command_text(char *text, const char *database, const char *words, ...) {
    va_list arguments;
    size_t length = (size_t)snprintf(text, COMMAND_TEXT, "moeperf ");
    va_start(arguments, words);
    length += (size_t)vsnprintf(text + length, COMMAND_TEXT - length, words, arguments);
    va_end(arguments);
    if (length + 8 < COMMAND_TEXT) {
        /* "--db=": a name that begins with "-" is no option. */
        length += (size_t)snprintf(text + length, COMMAND_TEXT - length, " --db%c",
                                   *database == '-' ? '=' : ' ');
        length += add_quoted(text + length, COMMAND_TEXT - length, database);
    }
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            length = COMMAND_TEXT;
    if (length + 8 >= COMMAND_TEXT)
        text[0] = '\0';
    return text;
}
