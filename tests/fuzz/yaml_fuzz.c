/* YAML of arbitrary bytes: the reader ends, keeps its limits, and what it gives can be walked. */
#include <stdint.h>
#include <string.h>

#include "reference/base/yaml.h"
#include "tests/fuzz/expect.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static size_t walk(const struct mp_yaml *value, int depth) {
    size_t values = 1;
    expect(depth <= 32, "nested deeper than the limit");
    expect(value->line >= 1 && value->column >= 1, "a value stands somewhere");
    expect((value->kind == MP_YAML_SCALAR) == (value->text != NULL), "scalars have a text");
    expect(value->kind != MP_YAML_SCALAR || value->count == 0, "scalars have no items");
    for (int i = 0; i < value->count; i++) {
        if (value->kind == MP_YAML_MAPPING)
            expect(mp_yaml_get(value, value->key[i]) == value->item[i], "keys are unique");
        values += walk(value->item[i], depth + 1);
    }
    return values;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    struct mp_yaml *document = NULL;
    struct mp_error error = {0};
    int code = mp_yaml_parse("fuzz", (const char *)input, size, &document, &error);
    expect_sentence(code, &error);
    if (code)
        return 0;
    expect(walk(document, 1) <= 1 << 20, "more values than the limit");
    mp_yaml_destroy(document);
    return 0;
}
