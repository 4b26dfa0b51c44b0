/* What needs no parser: trees, files as text, values as text; see yaml.h. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/characters.h"
#include "reference/base/yaml.h"

void mp_yaml_destroy(struct mp_yaml *document) {
    if (!document)
        return;
    mp_arena_release(&document->arena);
    free(document);
}

const struct mp_yaml *mp_yaml_get(const struct mp_yaml *mapping, const char *key) {
    if (!mapping || mapping->kind != MP_YAML_MAPPING)
        return NULL;
    for (int i = 0; i < mapping->count; i++)
        if (!strcmp(mapping->key[i], key))
            return mapping->item[i];
    return NULL;
}

/* Reads until the end or one byte above the limit; *text is the caller's also on errors. */
static int read_stream(const char *path, FILE *file, char **text, size_t *size,
                       struct mp_error *error) {
    size_t capacity = 0;
    do {
        capacity = capacity ? 2 * capacity : 16384;
        if (capacity > MP_YAML_SIZE_LIMIT)
            capacity = MP_YAML_SIZE_LIMIT + 1;
        char *grown = realloc(*text, capacity + 1);
        if (!grown)
            return mp_fail(error, MP_ENOMEM, "%s: no memory to read it", path);
        *text = grown;
        *size += fread(*text + *size, 1, capacity - *size, file);
    } while (*size == capacity && capacity <= MP_YAML_SIZE_LIMIT);
    (*text)[*size] = '\0';
    if (ferror(file))
        return mp_fail_errno(error, "%s", path);
    return *size > MP_YAML_SIZE_LIMIT ? mp_fail(error, MP_EFORMAT, "%s: larger than 16 MiB", path)
                                      : MP_OK;
}

int mp_yaml_read_file(const char *path, char **text, size_t *size, struct mp_error *error) {
    MP_AUTO(file) FILE *file = fopen(path, "re");
    if (!file)
        return mp_fail_errno(error, "%s", path);
    *text = NULL;
    *size = 0;
    const int code = read_stream(path, file, text, size, error);
    if (code) {
        free(*text);
        *text = NULL;
    }
    return code;
}

int mp_yaml_load(const char *path, struct mp_yaml **document, struct mp_error *error) {
    char *text;
    size_t size;
    MP_TRY(mp_yaml_read_file(path, &text, &size, error));
    int code = mp_yaml_parse(path, text, size, document, error);
    free(text);
    return code;
}

int mp_yaml_write_text(FILE *stream, const char *text, struct mp_error *error) {
    fputc('"', stream);
    for (const char *at = text; *at;) {
        uint32_t character;
        int length = mp_character_decode(at, &character);
        if (!length)
            return mp_fail(error, MP_EINVAL, "\"%.200s\" is not UTF-8, which YAML files need",
                           text);
        if (character == '"' || character == '\\')
            fprintf(stream, "\\%c", (int)character);
        else if (character >= ' ' && character < 0x7f)
            fputc((int)character, stream);
        else
            fprintf(stream, character > 0xffff ? "\\U%08X" : "\\u%04X", (unsigned)character);
        at += length;
    }
    fputc('"', stream);
    return ferror(stream) ? mp_fail_errno(error, "can't write a value") : MP_OK;
}
