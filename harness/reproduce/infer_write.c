/* The best set in the paper's file: see infer.h. */
#include <stdlib.h>
#include <string.h>

#include "harness/reproduce/infer.h"
#include "reference/base/whole_file.h"

/* The begin of the line with this key of the document, or NULL. */
static char *find_key(char *text, const char *key) {
    size_t length = strlen(key);
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, key, length) && line[length] == ':')
            return line;
        if (!*line)
            break;
    }
    return NULL;
}

/* Where the value of the key on this line ends: before the next line that is not indented. */
static char *find_end(char *line) {
    for (char *next = strchr(line, '\n'); next; next = strchr(next, '\n'))
        if (*++next != ' ' && *next != '\n')
            return next;
    return line + strlen(line);
}

/* Names that several lines have count once, and only if all of them are inside. */
static bool names_what_is_inside(const struct mp_inference *all, int line, const char *name) {
    char other[2 * MP_REPRODUCE_LABEL];
    for (int i = 0; i < all->lines; i++) {
        mp_reproduced_name(&all->line[i], other);
        if (!strcmp(name, other) && (i < line || !all->line[i].is_inside))
            return false;
    }
    return true;
}

static int write_inside(const struct mp_inference *all, int line, int *written, FILE *stream,
                        struct mp_error *error) {
    char name[2 * MP_REPRODUCE_LABEL];
    mp_reproduced_name(&all->line[line], name);
    if (!names_what_is_inside(all, line, name))
        return MP_OK;
    fputs((*written)++ ? "    - " : "\n    - ", stream);
    int code = mp_yaml_write_text(stream, name, error);
    fputc('\n', stream);
    return code;
}

static int write_set(const struct mp_inference *all, const char *command, FILE *stream,
                     struct mp_error *error) {
    fputs("inferred:\n  command: ", stream);
    int code = mp_yaml_write_text(stream, command, error);
    fputs("\n  values:\n", stream);
    for (int u = 0; u < all->reproduction->unknowns; u++)
        fprintf(stream, "    %s: %s\n", all->reproduction->unknown[u].key,
                all->set[all->best].value[u]);
    int written = 0;
    fputs("  inside:", stream);
    for (int i = 0; !code && i < all->lines; i++)
        code = write_inside(all, i, &written, stream, error);
    if (!written)
        fputs(" []\n", stream);
    return code;
}

int mp_infer_write(const struct mp_inference *all, const char *command, struct mp_error *error) {
    const char *path = all->reproduction->path;
    struct mp_whole_file file = {0};
    char *text = NULL;
    size_t size;
    int code = mp_yaml_read_file(path, &text, &size, error);
    if (!code)
        code = mp_whole_file_open(&file, path, error);
    if (!code) {
        char *place = find_key(text, "inferred"), *rest = place ? find_end(place) : NULL;
        if (!place) { /* behind the unknowns, which there are */
            place = find_end(find_key(text, "unknowns"));
            rest = place;
        }
        fwrite(text, 1, (size_t)(place - text), file.stream);
        code = write_set(all, command, file.stream, error);
        fputs(rest, file.stream);
        code = mp_whole_file_close(&file, code, error);
    }
    free(text);
    return code;
}
