/* Commands: see command.h. */
#include "harness/suite/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/shell.h"

void mp_command_destroy(struct mp_command *command) {
    if (!command)
        return;
    for (int i = 0; i < command->count; i++)
        free(command->word[i]);
    free(command->word);
    memset(command, 0, sizeof *command);
}

/* Takes `word`, also when it fails or is NULL for want of memory. */
static int add_word(struct mp_command *command, char *word, struct mp_error *error) {
    size_t size = (size_t)command->count + 2;
    char **grown = word ? realloc(command->word, size * sizeof *grown) : NULL;
    if (!grown) {
        free(word);
        return mp_fail(error, MP_ENOMEM, "no memory for a command line");
    }
    command->word = grown;
    grown[command->count++] = word;
    grown[command->count] = NULL;
    return MP_OK;
}

/* What a placeholder "{...}" of `length` bytes stands for, or NULL. */
static const char *placeholder_value(const char *placeholder, size_t length, const char *ranks,
                                     const char *program) {
    if (length == 7 && !strncmp(placeholder, "{ranks}", 7))
        return ranks;
    return length == 9 && !strncmp(placeholder, "{program}", 9) ? program : NULL;
}

/* Adds the template's word [from, to) with its placeholders replaced. */
static int add_expanded(struct mp_command *command, const char *from, const char *to,
                        const char *ranks, const char *program, struct mp_error *error) {
    char *word = NULL;
    size_t size;
    FILE *stream = open_memstream(&word, &size);
    if (!stream)
        return mp_fail(error, MP_ENOMEM, "no memory for a command line");
    int code = MP_OK;
    while (from < to && !code) {
        const char *close = *from == '{' ? memchr(from, '}', (size_t)(to - from)) : NULL;
        if (!close) {
            fputc(*from++, stream);
            continue;
        }
        size_t length = (size_t)(close - from) + 1;
        const char *value = placeholder_value(from, length, ranks, program);
        if (value)
            fputs(value, stream);
        else
            code = mp_fail(error, MP_EINVAL,
                           "launcher: %.*s is not one of {ranks}, {program} and, as a word of its "
                           "own, {arguments}",
                           (int)length, from);
        from += length;
    }
    fclose(stream);
    if (code) {
        free(word);
        return code;
    }
    return add_word(command, word, error);
}

static int add_arguments(struct mp_command *command, const char *const arguments[],
                         struct mp_error *error) {
    int code = MP_OK;
    for (; *arguments && !code; arguments++)
        code = add_word(command, strdup(*arguments), error);
    return code;
}

static int expand(struct mp_command *command, const char *template, int ranks, const char *program,
                  const char *const arguments[], struct mp_error *error) {
    char number[16];
    int code = MP_OK;
    snprintf(number, sizeof number, "%d", ranks);
    for (const char *from = template; *from && !code;) {
        size_t length = strcspn(from, " \t\n");
        if (length == 11 && !strncmp(from, "{arguments}", 11))
            code = add_arguments(command, arguments, error);
        else if (length > 0)
            code = add_expanded(command, from, from + length, number, program, error);
        from += length + (from[length] != '\0');
    }
    return code;
}

int mp_command_create(const char *template, int ranks, const char *program,
                      const char *const arguments[], struct mp_command *command,
                      struct mp_error *error) {
    memset(command, 0, sizeof *command);
    if (template && (!strstr(template, "{program}") || !strstr(template, "{arguments}")))
        return mp_fail(error, MP_EINVAL,
                       "launcher: \"%.200s\" should contain {program} and {arguments}", template);
    command->has_launcher = template || ranks > 1;
    const char *chosen = template    ? template
                         : ranks > 1 ? MP_COMMAND_TEMPLATE
                                     : "{program} {arguments}";
    int code = expand(command, chosen, ranks, program, arguments, error);
    if (code)
        mp_command_destroy(command);
    return code;
}

char *mp_command_text(const struct mp_command *command) {
    size_t size = 1, used = 0;
    for (int i = 0; i < command->count; i++)
        size += mp_shell_word(NULL, 0, command->word[i]) + 1;
    char *text = calloc(size, 1);
    for (int i = 0; text && i < command->count; i++) {
        if (i > 0)
            text[used++] = ' ';
        used += mp_shell_word(text + used, size - used, command->word[i]);
    }
    return text;
}
