#include "harness/cli/system_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cli_system_words_add(struct cli_system_words *words, const char *name, const char *value,
                         struct mp_error *error) {
    if (words->options == CLI_SYSTEM_OPTIONS_LIMIT)
        return mp_fail(error, MP_EINVAL, "--system %.100s: more than %d options",
                       words->system->name, CLI_SYSTEM_OPTIONS_LIMIT);
    words->option[words->options][0] = name;
    words->option[words->options++][1] = value;
    return MP_OK;
}

/* Cuts "window=2" in two. */
static int add_word(struct cli_system_words *words, char *word, struct mp_error *error) {
    char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return mp_fail(error, MP_EINVAL, "--system %.100s: \"%.100s\" should be option=value",
                       words->system->name, word);
    *equals = '\0';
    return cli_system_words_add(words, word, equals + 1, error);
}

int cli_system_words_parse(const struct mp_systems *systems, const char *text,
                           struct cli_system_words *words, struct mp_error *error) {
    size_t length = strcspn(text, ":");
    char *rest = NULL;
    words->options = 0;
    if (strlen(text) >= sizeof words->text)
        return mp_fail(error, MP_EINVAL, "--system %.100s...: too long", text);
    strcpy(words->text, text);
    words->text[length] = '\0';
    words->system = mp_systems_find(systems, words->text, error);
    if (!words->system)
        return mp_error_prefix(error, "--system");
    if (!text[length])
        return MP_OK;
    for (char *word = strtok_r(words->text + length + 1, ",", &rest); word;
         word = strtok_r(NULL, ",", &rest))
        MP_TRY(add_word(words, word, error));
    return MP_OK;
}

int cli_system_words_check(const struct cli_system_words *words, struct mp_error *error) {
    const struct mp_system *system = words->system;
    char owner[64];
    void *options = calloc(1, system->options_size + 1);
    int code =
        options ? mp_options_set_defaults(system->options, options, error) : mp_no_memory(error);
    snprintf(owner, sizeof owner, "system %.50s", system->name);
    for (int i = 0; i < words->options && !code; i++)
        code = mp_options_set(system->options, options, owner, words->option[i][0],
                              words->option[i][1], "--system", error);
    free(options);
    return code;
}
