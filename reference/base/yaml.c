/* YAML documents with the place of every value: see yaml.h.
 *
 * libyaml composes the document (that resolves aliases into node numbers); this file turns it into
 * a tree, where an alias becomes a copy.  Copies of copies grow without bound, so the tree has a
 * limit of its own beside the file's. */
#include "reference/base/yaml.h"
#include "reference/base/order.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum {
    DEPTH_LIMIT = 32,
    VALUE_LIMIT = 1 << 20 /* nodes of the tree, aliases expanded */
};

struct conversion {
    const char *name; /* of the file, for messages */
    yaml_document_t *document;
    bool *open; /* [nodes] being converted now: meeting one again is a cycle */
    struct mp_arena *arena;
    int values; /* nodes made so far */
    struct mp_error *error;
};

static int no_memory(const struct conversion *conversion) {
    return mp_fail(conversion->error, MP_ENOMEM, "%s: no memory for its %d values",
                   conversion->name, conversion->values);
}

/* "path:line:column: `problem`" at a node. */
static int fail_at(const struct conversion *conversion, const yaml_node_t *node,
                   const char *problem) {
    return mp_fail(conversion->error, MP_EFORMAT, "%s:%zu:%zu: %s", conversion->name,
                   node->start_mark.line + 1, node->start_mark.column + 1, problem);
}

/* Copies a scalar's text; a C string can't hold a zero byte, which "\0" may bring in. */
static int copy_text(const struct conversion *conversion, const yaml_node_t *node, char **text) {
    const char *value = (const char *)node->data.scalar.value;
    if (strlen(value) != node->data.scalar.length)
        return fail_at(conversion, node, "a zero byte in a value");
    *text = mp_arena_text(conversion->arena, value);
    return *text ? MP_OK : no_memory(conversion);
}

struct keyed_entry {
    const char *key;
    int index;
};

static int compare_entries(const void *left, const void *right) {
    const struct keyed_entry *a = left, *b = right;
    return strcmp(a->key, b->key) ?: MP_ORDER(a->index, b->index);
}

/* Refuses a mapping that says the same key twice.  By sorting: files come from anywhere, and one
 * mapping may fill the whole file. */
static int check_duplicates(const struct conversion *conversion, const struct mp_yaml *mapping) {
    if (mapping->count < 2)
        return MP_OK;
    MP_AUTO(arena) struct mp_arena memory = {0};
    struct keyed_entry *entry = mp_arena_take(&memory, (size_t)mapping->count, sizeof *entry);
    if (!entry)
        return no_memory(conversion);
    for (int i = 0; i < mapping->count; i++)
        entry[i] = (struct keyed_entry){mapping->key[i], i};
    MP_SORT(entry, mapping->count, compare_entries);
    for (int i = 1; i < mapping->count; i++)
        if (!strcmp(entry[i - 1].key, entry[i].key))
            return mp_fail(conversion->error, MP_EFORMAT,
                           "%s:%d: the key \"%.200s\" is given twice, first in line %d",
                           conversion->name, mapping->key_line[entry[i].index], entry[i].key,
                           mapping->key_line[entry[i - 1].index]);
    return MP_OK;
}

static int convert(struct conversion *conversion, int number, int depth, struct mp_yaml *made);

static int convert_item(struct conversion *conversion, int number, int depth,
                        struct mp_yaml **item) {
    MP_TAKE(conversion->arena, *item, 1);
    return *item ? convert(conversion, number, depth, *item) : no_memory(conversion);
}

static int convert_sequence(struct conversion *conversion, const yaml_node_t *node, int depth,
                            struct mp_yaml *sequence) {
    const yaml_node_item_t *start = node->data.sequence.items.start;
    size_t count = (size_t)(node->data.sequence.items.top - start);
    MP_TAKE(conversion->arena, sequence->item, count + 1);
    if (!sequence->item)
        return no_memory(conversion);
    for (size_t i = 0; i < count; i++) {
        MP_TRY(convert_item(conversion, start[i], depth + 1, &sequence->item[i]));
        sequence->count++;
    }
    return MP_OK;
}

static int convert_entry(struct conversion *conversion, const yaml_node_pair_t *pair, int depth,
                         struct mp_yaml *mapping) {
    const yaml_node_t *key = yaml_document_get_node(conversion->document, pair->key);
    if (key->type != YAML_SCALAR_NODE)
        return fail_at(conversion, key, "a key must be one word");
    int i = mapping->count++;
    int code = copy_text(conversion, key, &mapping->key[i]);
    mapping->key_line[i] = (int)key->start_mark.line + 1;
    return code ? code : convert_item(conversion, pair->value, depth + 1, &mapping->item[i]);
}

static int convert_mapping(struct conversion *conversion, const yaml_node_t *node, int depth,
                           struct mp_yaml *mapping) {
    const yaml_node_pair_t *start = node->data.mapping.pairs.start;
    size_t count = (size_t)(node->data.mapping.pairs.top - start);
    MP_TAKE_EACH(conversion->arena, count + 1, mapping->item, mapping->key, mapping->key_line);
    if (conversion->arena->lacking)
        return no_memory(conversion);
    for (size_t i = 0; i < count; i++) {
        MP_TRY(convert_entry(conversion, &start[i], depth, mapping));
    }
    return check_duplicates(conversion, mapping);
}

/* Converts node `number`. */
static int convert(struct conversion *conversion, int number, int depth, struct mp_yaml *made) {
    static const enum mp_yaml_kind kinds[] = {[YAML_SCALAR_NODE] = MP_YAML_SCALAR,
                                              [YAML_SEQUENCE_NODE] = MP_YAML_SEQUENCE,
                                              [YAML_MAPPING_NODE] = MP_YAML_MAPPING};
    const yaml_node_t *node = yaml_document_get_node(conversion->document, number);
    if (conversion->open[number])
        return fail_at(conversion, node, "an alias refers to the value that it is part of");
    if (depth > DEPTH_LIMIT)
        return fail_at(conversion, node, "values are nested deeper than 32 levels");
    if (++conversion->values > VALUE_LIMIT)
        return fail_at(conversion, node, "more than 1048576 values, aliases expanded");

    made->kind = kinds[node->type];
    made->line = (int)node->start_mark.line + 1;
    made->column = (int)node->start_mark.column + 1;
    conversion->open[number] = true;
    int code = made->kind == MP_YAML_SCALAR     ? copy_text(conversion, node, &made->text)
               : made->kind == MP_YAML_SEQUENCE ? convert_sequence(conversion, node, depth, made)
                                                : convert_mapping(conversion, node, depth, made);
    conversion->open[number] = false;
    return code;
}

/* Reports what libyaml found.  Its reader errors (bytes that are not UTF-8) come with an offset
 * instead of a mark. */
static int fail_syntax(const yaml_parser_t *parser, const char *name, const char *text, size_t size,
                       struct mp_error *error) {
    if (parser->error == YAML_MEMORY_ERROR)
        return mp_fail(error, MP_ENOMEM, "%s: no memory to read it", name);
    size_t line = parser->problem_mark.line, column = parser->problem_mark.column;
    if (parser->error == YAML_READER_ERROR) {
        line = column = 0;
        for (size_t i = 0; i < parser->problem_offset && i < size; i++) {
            column = text[i] == '\n' ? 0 : column + 1;
            line += text[i] == '\n';
        }
    }
    const char *problem = parser->problem ? parser->problem : "not YAML";
    if (parser->context)
        return mp_fail(error, MP_EFORMAT, "%s:%zu:%zu: %s, %s", name, line + 1, column + 1,
                       parser->context, problem);
    return mp_fail(error, MP_EFORMAT, "%s:%zu:%zu: %s", name, line + 1, column + 1, problem);
}

static int convert_document(const char *name, yaml_document_t *composed, struct mp_yaml **document,
                            struct mp_error *error) {
    if (!yaml_document_get_root_node(composed))
        return mp_fail(error, MP_EFORMAT, "%s:1:1: the file is empty", name);
    size_t nodes = (size_t)(composed->nodes.top - composed->nodes.start);
    struct conversion conversion = {.name = name, .document = composed, .error = error};
    struct mp_yaml *first = calloc(1, sizeof *first);
    if (!first)
        return no_memory(&conversion);
    conversion.arena = &first->arena;
    MP_TAKE(&first->arena, conversion.open, nodes + 1); /* numbers count from 1 */
    int code = conversion.open ? convert(&conversion, 1, 1, first) : no_memory(&conversion);
    if (code)
        mp_yaml_destroy(first);
    else
        *document = first;
    return code;
}

int mp_yaml_parse(const char *name, const char *text, size_t size, struct mp_yaml **document,
                  struct mp_error *error) {
    if (size > MP_YAML_SIZE_LIMIT)
        return mp_fail(error, MP_EFORMAT, "%s: larger than 16 MiB", name);
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return mp_fail(error, MP_ENOMEM, "%s: no memory to read it", name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    yaml_document_t composed;
    int code;
    if (!yaml_parser_load(&parser, &composed)) {
        code = fail_syntax(&parser, name, text, size, error);
    } else {
        code = convert_document(name, &composed, document, error);
        yaml_document_delete(&composed);
    }
    yaml_parser_delete(&parser);
    return code;
}
