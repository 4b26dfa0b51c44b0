/* Calls that may fail.  Each of these declares the `error` that its call names, fresh:
 *
 *     assert_works(mp_load_create(4, 8, &load, &error));
 *     assert_fails(mp_load_create(0, 8, &load, &error), MP_EINVAL, "ranks");
 */
#pragma once

#include "tests/code_name.h"
#include "tests/support.h"

#include "reference/base/error.h"

#define assert_works(call)                                                                         \
    do {                                                                                           \
        struct mp_error error = {0};                                                               \
        test_failed_with(call, &error, MP_OK, NULL, NULL, #call, __FILE__, __LINE__);              \
    } while (0)

/* The call returns `wanted` and leaves it with a sentence that holds all of the texts given. */
#define assert_fails(call, wanted, ...)                                                            \
    do {                                                                                           \
        struct mp_error error = {0};                                                               \
        test_failed_with(call, &error, wanted, (const char *const[]){__VA_ARGS__, NULL}, NULL,     \
                         #call, __FILE__, __LINE__);                                               \
    } while (0)

/* With this sentence and no other. */
#define assert_sentence(call, wanted, sentence)                                                    \
    do {                                                                                           \
        struct mp_error error = {0};                                                               \
        test_failed_with(call, &error, wanted, NULL, sentence, #call, __FILE__, __LINE__);         \
    } while (0)

/* The code is the wanted one, and the error's too; a failure has a sentence of one line. */
static inline void test_failed_with(int code, const struct mp_error *error, int wanted,
                                    const char *const *texts, const char *sentence,
                                    const char *call, const char *file, int line) {
    bool is_fine = code == wanted && error->code == code &&
                   (*error->text != '\0') == (code != MP_OK) && !strchr(error->text, '\n');
    while (texts && *texts && strstr(error->text, *texts))
        texts++;
    const char *lacks = texts                                       ? *texts
                        : sentence && strcmp(error->text, sentence) ? sentence
                                                                    : NULL;
    if (is_fine && !lacks)
        return;
    print_error("%s: %s \"%s\"\ninstead of %s \"%s\"\n", call, mp_code_name(code), error->text,
                mp_code_name(wanted), lacks ? lacks : "");
    _fail(file, line);
}
