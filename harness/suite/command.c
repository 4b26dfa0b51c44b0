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

/* What the placeholders of a template stand for. */
struct filling {
    const char *whose, *known; /* for the sentence about an unknown one */
    struct {
        const char *name, *value;
    } placeholder[2];
};

/* What a placeholder "{...}" of `length` bytes stands for, or NULL. */
static const char *placeholder_value(const struct filling *filling, const char *placeholder,
                                     size_t length) {
    for (int i = 0; i < 2; i++)
        if (strlen(filling->placeholder[i].name) == length &&
            !strncmp(placeholder, filling->placeholder[i].name, length))
            return filling->placeholder[i].value;
    return NULL;
}

/* Adds the template's word [from, to) with its placeholders replaced. */
static int add_expanded(struct mp_command *command, const char *from, const char *to,
                        const struct filling *filling, struct mp_error *error) {
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
        const char *value = placeholder_value(filling, from, length);
        if (value)
            fputs(value, stream);
        else
            code = mp_fail(error, MP_EINVAL, "%s: %.*s is not one of %s", filling->whose,
                           (int)length, from, filling->known);
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
    for (; *arguments; arguments++)
        MP_TRY(add_word(command, strdup(*arguments), error));
    return MP_OK;
}

/* Takes away what it made if it fails. */
static int expand(struct mp_command *command, const char *template, const struct filling *filling,
                  const char *const arguments[], struct mp_error *error) {
    int code = MP_OK;
    for (const char *from = template; *from && !code;) {
        size_t length = strcspn(from, " \t\n");
        if (arguments && length == 11 && !strncmp(from, "{arguments}", 11))
            code = add_arguments(command, arguments, error);
        else if (length > 0)
            code = add_expanded(command, from, from + length, filling, error);
        from += length + (from[length] != '\0');
    }
    if (code)
        mp_command_destroy(command);
    return code;
}

int mp_command_create(const char *template, int ranks, const char *program,
                      const char *const arguments[], struct mp_command *command,
                      struct mp_error *error) {
    char number[16];
    memset(command, 0, sizeof *command);
    if (template && (!strstr(template, "{program}") || !strstr(template, "{arguments}")))
        return mp_fail(error, MP_EINVAL,
                       "launcher: \"%.200s\" should contain {program} and {arguments}", template);
    command->has_launcher = template || ranks > 1;
    const char *chosen = template    ? template
                         : ranks > 1 ? MP_COMMAND_TEMPLATE
                                     : "{program} {arguments}";
    snprintf(number, sizeof number, "%d", ranks);
    const struct filling filling = {"launcher",
                                    "{ranks}, {program} and, as a word of its own, {arguments}",
                                    {{"{ranks}", number}, {"{program}", program}}};
    return expand(command, chosen, &filling, arguments, error);
}

int mp_command_create_copy(const char *template, const char *from, const char *to,
                           struct mp_command *command, struct mp_error *error) {
    const struct filling filling = {"--copy", "{from} and {to}", {{"{from}", from}, {"{to}", to}}};
    memset(command, 0, sizeof *command);
    if (!strstr(template, "{from}") || !strstr(template, "{to}"))
        return mp_fail(error, MP_EINVAL, "--copy: \"%.200s\" should contain {from} and {to}",
                       template);
    return expand(command, template, &filling, NULL, error);
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
