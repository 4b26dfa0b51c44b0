/* Rules files of arbitrary bytes: the reader ends and leaves nothing behind, an error has its
 * sentence, and what was read can be asked for any name. */
#include <stdlib.h>
#include <string.h>

#include "harness/record/rules.h"
#include "tests/fuzz/expect.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

/* The bytes before the first zero are the file, those behind it a range's name. */
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    const uint8_t *zero = size ? memchr(input, 0, size) : NULL;
    size_t length = zero ? (size_t)(zero - input) : size, rest = zero ? size - length - 1 : 0;
    struct mp_rules rules = {0};
    struct mp_error error = {0};
    struct mp_rule_capture capture;
    char *name = calloc(1, rest + 1);
    expect(name != NULL, "calloc");
    if (rest)
        memcpy(name, zero + 1, rest);
    int code = mp_rules_parse("rules", (const char *)input, length, &rules, &error);
    expect_sentence(code, &error);
    const struct mp_rule *rule = mp_rules_find(&rules, name, "domain", &capture);
    expect(!rule || (rule >= rules.rule && rule < rules.rule + rules.count), "a rule of the file");
    mp_rules_end_iteration(&rules, name, name);
    mp_rules_destroy(&rules);
    expect(!rules.rule && rules.count == 0, "nothing is left");
    free(name);
    return 0;
}
