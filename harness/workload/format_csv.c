/* CSV, long and wide: rows of an iteration are collected into its loads, whatever their order. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/format_readers.h"
#include "harness/workload/input.h"
#include "reference/base/arena.h"

enum { KEYS = 4, EXPERT_LIMIT = 65536, FILES_LIMIT = 1024 };
/* What a column holds: one of the keys, the iteration, a count, or (from FIRST_EXPERT on) the count
 * of an expert. */
enum role { MICRO_BATCH, LAYER, RANK, EXPERT, ITERATION, COUNT, ROLES, FIRST_EXPERT = ROLES };
static const char *const role_name[ROLES] = {"micro_batch", "layer",     "rank",
                                             "expert",      "iteration", "count"};

/* A file and its row that was read last. */
struct source {
    struct mp_input *input;
    int columns;
    int *role; /* [columns] */
    int64_t iteration;
    int key[KEYS];
    uint32_t *row; /* [columns] the experts' counts, or the one */
    bool ended;
};

struct csv {
    struct source *source;
    int sources;
    struct source *now; /* whose row comes next; one that has ended: all have */
    bool wide;
    int experts; /* wide: columns e0, e1, ... */

    struct mp_trace_shape shape;
    int64_t previous; /* iteration, -1 before the first */
    int64_t current;
    uint32_t *count;     /* [micro-batch][layer][rank][expert] of the current iteration */
    unsigned char *seen; /* the same, without experts if wide */
    int64_t cells;       /* of `seen` */
    int blocks, next;    /* of the current iteration */
};

static void csv_destroy(void *self) {
    struct csv *csv = self;
    if (!csv)
        return;
    for (int i = 0; i < csv->sources; i++) {
        mp_input_destroy(csv->source[i].input);
        free(csv->source[i].role);
        free(csv->source[i].row);
    }
    free(csv->source);
    free(csv->count);
    free(csv->seen);
    free(csv);
}

static int csv_fail(const struct csv *csv, const char *what, struct mp_error *error) {
    return mp_fail(error, MP_EFORMAT, "%s:%lld: %s", mp_input_path(csv->now->input),
                   (long long)mp_input_line_number(csv->now->input), what);
}

/* Cuts at commas; the next cell's beginning or NULL behind the last. */
static char *cut(char *cell) {
    char *comma = strchr(cell, ',');
    if (!comma)
        return NULL;
    *comma = '\0';
    return comma + 1;
}

/* The role of a column of this name, without quotes and spaces around it; -1 if unknown. */
static int role_of(const char *cell) {
    cell += strspn(cell, " \t\"");
    size_t length = strcspn(cell, " \t\"");
    for (int role = 0; role < ROLES; role++)
        if (strlen(role_name[role]) == length && !strncmp(cell, role_name[role], length))
            return role;
    char number[8] = "";
    int64_t expert;
    if (cell[0] != 'e' || length < 2 || length > sizeof number)
        return -1;
    memcpy(number, cell + 1, length - 1);
    return mp_format_whole(number, EXPERT_LIMIT - 1, &expert) ? -1 : FIRST_EXPERT + (int)expert;
}

/* Gives each column its role, once. */
static int name_columns(struct csv *csv, char *line, struct mp_error *error) {
    char text[256];
    unsigned char *taken = calloc(FIRST_EXPERT + EXPERT_LIMIT, 1);
    if (!taken)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for its header",
                       mp_input_path(csv->now->input));
    int code = MP_OK, experts = 0;
    for (int i = 0; i < csv->now->columns && !code; i++) {
        char *rest = cut(line);
        int role = role_of(line);
        if (role < 0 || taken[role]) {
            snprintf(text, sizeof text,
                     "column %d, '%.32s', is %s; known are iteration, micro_batch, layer, rank and "
                     "either expert and count (long) or e0, e1, ... (wide)",
                     i + 1, line, role < 0 ? "unknown" : "there twice");
            code = csv_fail(csv, text, error);
        } else {
            taken[csv->now->role[i] = role] = 1;
            experts += role >= FIRST_EXPERT;
        }
        line = rest;
    }
    if (!code && csv->now > csv->source && experts != csv->experts)
        code = csv_fail(csv, "a header with other columns of experts than the first file's", error);
    csv->experts = experts;
    csv->wide = experts > 0;
    for (int role = 0; role < FIRST_EXPERT + csv->experts && !code; role++) {
        bool wanted = role >= FIRST_EXPERT || !csv->wide || (role != EXPERT && role != COUNT);
        if (wanted == (taken[role] != 0) || role == MICRO_BATCH)
            continue;
        if (role >= FIRST_EXPERT)
            snprintf(text, sizeof text, "no column e%d among %d experts: they count from e0",
                     role - FIRST_EXPERT, csv->experts);
        else
            snprintf(text, sizeof text, "%s column '%s' in the header of a %s file",
                     wanted ? "no" : "unexpected", role_name[role], csv->wide ? "wide" : "long");
        code = csv_fail(csv, text, error);
    }
    free(taken);
    return code;
}

static int read_header(struct csv *csv, enum mp_csv_layout layout, struct mp_error *error) {
    char *line;
    int code = mp_input_line(csv->now->input, &line, error);
    if (code)
        return code;
    if (!line)
        return mp_fail(error, MP_EFORMAT, "%s: an empty file; a header line has to come first",
                       mp_input_path(csv->now->input));
    csv->now->columns = 1;
    for (const char *at = line; (at = strchr(at, ',')); at++)
        csv->now->columns++;
    csv->now->role = malloc((size_t)csv->now->columns * sizeof *csv->now->role);
    csv->now->row = calloc((size_t)csv->now->columns, sizeof *csv->now->row);
    if (!csv->now->role || !csv->now->row)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for its header",
                       mp_input_path(csv->now->input));
    if ((code = name_columns(csv, line, error)))
        return code;
    if ((layout == MP_CSV_LONG && csv->wide) || (layout == MP_CSV_WIDE && !csv->wide))
        return csv_fail(csv,
                        csv->wide ? "the header of a wide file (e0, e1, ...): use csv-wide"
                                  : "the header of a long file (expert, count): use csv-long",
                        error);
    return MP_OK;
}

static int store_cell(struct csv *csv, int column, const char *cell, struct mp_error *error) {
    int role = csv->now->role[column];
    bool count = role == COUNT || role >= FIRST_EXPERT;
    int64_t most = count ? UINT32_MAX : role == ITERATION ? INT64_MAX : EXPERT_LIMIT - 1;
    int64_t value = 0;
    const char *wrong = mp_format_whole(cell, most, &value);
    if (wrong) {
        char text[256];
        char expert[16];
        snprintf(expert, sizeof expert, "e%d", role - FIRST_EXPERT);
        snprintf(text, sizeof text,
                 "column %d (%s): '%.32s' %s; a whole number from 0 to %lld is right", column + 1,
                 role < ROLES ? role_name[role] : expert, cell, wrong, (long long)most);
        return csv_fail(csv, text, error);
    }
    if (role == ITERATION)
        csv->now->iteration = value;
    else if (count)
        csv->now->row[role == COUNT ? 0 : role - FIRST_EXPERT] = (uint32_t)value;
    else
        csv->now->key[role] = (int)value;
    return MP_OK;
}

/* The next row of this file that is not empty, into the row's fields; `ended` at the end. */
static int read_row_of_now(struct csv *csv, struct mp_error *error) {
    char *line;
    do {
        int code = mp_input_line(csv->now->input, &line, error);
        if (code)
            return code;
    } while (line && !*line);
    csv->now->ended = !line;
    int column = 0;
    for (char *cell = line; cell; column++) {
        char *rest = cut(cell);
        int code = column < csv->now->columns ? store_cell(csv, column, cell, error) : MP_OK;
        if (code)
            return code;
        cell = rest;
    }
    if (line && column != csv->now->columns) {
        char text[96];
        snprintf(text, sizeof text, "%d columns, but the header has %d%s", column,
                 csv->now->columns, column < csv->now->columns ? "; is the file cut off?" : "");
        return csv_fail(csv, text, error);
    }
    return MP_OK;
}

/* The earliest iteration comes first, and of it the first file's rows. */
static void choose_source(struct csv *csv) {
    csv->now = csv->source;
    for (int i = 1; i < csv->sources; i++) {
        const struct source *other = &csv->source[i];
        if (!other->ended && (csv->now->ended || other->iteration < csv->now->iteration))
            csv->now = &csv->source[i];
    }
}

static int read_row(struct csv *csv, struct mp_error *error) {
    int code = read_row_of_now(csv, error);
    choose_source(csv);
    return code;
}

/* The first row of every file. */
static int begin(struct csv *csv, struct mp_error *error) {
    int code = MP_OK;
    for (int i = 0; i < csv->sources && !code; i++) {
        char *header;
        csv->now = &csv->source[i];
        code = mp_input_rewind(csv->now->input, error);
        if (!code)
            code = mp_input_line(csv->now->input, &header, error);
        if (!code)
            code = read_row_of_now(csv, error);
        if (!code && csv->now->ended)
            code = csv_fail(csv, "the header is all there is; rows have to follow", error);
    }
    if (!code)
        choose_source(csv);
    return code;
}

/* Reads the first iteration for the shape, then goes back to its first row. */
static int find_shape(struct csv *csv, struct mp_error *error) {
    int code = begin(csv, error);
    int64_t iteration = csv->now->iteration;
    int64_t rows = 0;
    int most[KEYS] = {0};
    while (!code && !csv->now->ended && csv->now->iteration == iteration) {
        for (int i = 0; i < KEYS; i++)
            most[i] = most[i] > csv->now->key[i] ? most[i] : csv->now->key[i];
        rows++;
        code = read_row(csv, error);
    }
    csv->shape = (struct mp_trace_shape){.ranks = most[RANK] + 1,
                                         .experts = csv->wide ? csv->experts : most[EXPERT] + 1,
                                         .layers = most[LAYER] + 1,
                                         .micro_batches = most[MICRO_BATCH] + 1};
    const struct mp_trace_shape *shape = &csv->shape;
    if (!code)
        code = mp_format_check_shape(mp_input_path(csv->now->input), shape, error);
    if (code)
        return code;
    csv->blocks = shape->micro_batches * shape->layers;
    csv->cells = (int64_t)csv->blocks * shape->ranks * (csv->wide ? 1 : shape->experts);
    /* A few rows with large numbers must not ask for much memory; fewer holes are named one by one.
     */
    if (csv->cells > 1000000 + 16 * rows)
        return mp_fail(error, MP_EFORMAT,
                       "%s: iteration %lld has %lld rows; its largest micro-batch, layer, rank and "
                       "expert ask for %lld",
                       mp_input_path(csv->now->input), (long long)iteration, (long long)rows,
                       (long long)csv->cells);
    csv->seen = malloc((size_t)csv->cells);
    csv->count =
        calloc((size_t)csv->cells * (csv->wide ? (size_t)shape->experts : 1), sizeof *csv->count);
    if (!csv->seen || !csv->count)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for the loads of an iteration",
                       mp_input_path(csv->now->input));
    return begin(csv, error);
}

/* Puts the row into the current iteration. */
static int place_row(struct csv *csv, struct mp_error *error) {
    const int length[KEYS] = {csv->shape.micro_batches, csv->shape.layers, csv->shape.ranks,
                              csv->wide ? 1 : csv->shape.experts};
    char text[128];
    int64_t cell = 0;
    for (int i = 0; i < KEYS; i++) {
        if (csv->now->key[i] >= length[i]) {
            snprintf(text, sizeof text, "%s %d, but the first iteration has 0 to %d", role_name[i],
                     csv->now->key[i], length[i] - 1);
            return csv_fail(csv, text, error);
        }
        cell = cell * length[i] + csv->now->key[i];
    }
    if (csv->seen[cell])
        return csv_fail(csv, "a second row for the same place in the same iteration", error);
    csv->seen[cell] = 1;
    int64_t width = csv->wide ? csv->shape.experts : 1;
    memcpy(csv->count + cell * width, csv->now->row, (size_t)width * sizeof *csv->now->row);
    return MP_OK;
}

static int check_whole(const struct csv *csv, struct mp_error *error) {
    const unsigned char *hole = memchr(csv->seen, 0, (size_t)csv->cells);
    if (!hole)
        return MP_OK;
    int64_t cell = hole - csv->seen;
    char expert[24] = "";
    if (!csv->wide) {
        snprintf(expert, sizeof expert, ", expert %d", (int)(cell % csv->shape.experts));
        cell /= csv->shape.experts;
    }
    int64_t block = cell / csv->shape.ranks;
    return mp_fail(
        error, MP_EFORMAT,
        "%s: no row for iteration %lld, micro-batch %d, layer %d, rank %d%s (read to line "
        "%lld)",
        mp_input_path(csv->now->input), (long long)csv->current, (int)(block / csv->shape.layers),
        (int)(block % csv->shape.layers), (int)(cell % csv->shape.ranks), expert,
        (long long)mp_input_line_number(csv->now->input));
}

static int read_iteration(struct csv *csv, struct mp_error *error) {
    csv->current = csv->now->iteration;
    if (csv->current <= csv->previous) {
        char text[160];
        snprintf(text, sizeof text,
                 "iteration %lld after iteration %lld; the rows of an iteration have to stand "
                 "together, and iterations to ascend",
                 (long long)csv->current, (long long)csv->previous);
        return csv_fail(csv, text, error);
    }
    csv->previous = csv->current;
    memset(csv->seen, 0, (size_t)csv->cells);
    while (!csv->now->ended && csv->now->iteration == csv->current) {
        int code = place_row(csv, error);
        if (code || (code = read_row(csv, error)))
            return code;
    }
    csv->next = 0;
    return check_whole(csv, error);
}

static int csv_next(void *self, struct mp_trace_block *block, bool *end, struct mp_error *error) {
    struct csv *csv = self;
    *end = csv->next == csv->blocks && csv->now->ended;
    if (*end)
        return MP_OK;
    if (csv->next == csv->blocks) {
        int code = read_iteration(csv, error);
        if (code)
            return code;
    }
    block->iteration = csv->current;
    block->micro_batch = csv->next / csv->shape.layers;
    block->layer = csv->next % csv->shape.layers;
    int64_t loads = (int64_t)csv->shape.ranks * csv->shape.experts;
    memcpy(block->load.count, csv->count + csv->next * loads, (size_t)loads * sizeof *csv->count);
    csv->next++;
    return MP_OK;
}

static int add_file(struct csv *csv, const char *path, enum mp_csv_layout layout,
                    struct mp_error *error) {
    if (!MP_ROOM(csv->source, csv->sources))
        return mp_fail(error, MP_ENOMEM, "%s: no memory to read it", path);
    csv->now = &csv->source[csv->sources];
    *csv->now = (struct source){0};
    int code = mp_input_open(path, &csv->now->input, error);
    if (code)
        return code;
    csv->sources++;
    return read_header(csv, layout, error);
}

static int is_csv(const struct dirent *entry) {
    size_t length = strlen(entry->d_name);
    return entry->d_name[0] != '.' && length > 4 && !strcmp(entry->d_name + length - 4, ".csv");
}

/* `path` itself, or all files of a folder: one for every rank. */
static int add_files(struct csv *csv, const char *path, enum mp_csv_layout layout,
                     struct mp_error *error) {
    struct dirent **entry;
    int count = scandir(path, &entry, is_csv, alphasort), code = MP_OK;
    if (count < 0)
        return add_file(csv, path, layout, error);
    if (count == 0 || count > FILES_LIMIT)
        code = mp_fail(error, count ? MP_ELIMIT : MP_ENOTFOUND,
                       "%s: %d files *.csv in this folder; 1 to %d are right", path, count,
                       FILES_LIMIT);
    for (int i = 0; i < count; i++) {
        char file[4096];
        if (!code &&
            snprintf(file, sizeof file, "%s/%s", path, entry[i]->d_name) >= (int)sizeof file)
            code = mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", path);
        if (!code)
            code = add_file(csv, file, layout, error);
        free(entry[i]);
    }
    free(entry);
    return code;
}

int mp_format_open_csv(const char *path, enum mp_csv_layout layout, struct mp_trace_stream **stream,
                       struct mp_error *error) {
    static const struct mp_trace_stream_operations operations = {csv_next, csv_destroy};
    struct csv *csv = calloc(1, sizeof *csv);
    if (!csv)
        return mp_fail(error, MP_ENOMEM, "%s: no memory to read it", path);
    csv->previous = -1;
    struct mp_trace_info info = {0};
    int code = add_files(csv, path, layout, error);
    if (!code && !(code = find_shape(csv, error)))
        code = mp_format_describe(path, csv->wide ? "csv-wide" : "csv-long", "", &info, error);
    if (code) {
        csv_destroy(csv);
        return code;
    }
    csv->next = csv->blocks;
    info.shape = csv->shape;
    return mp_trace_stream_create(&operations, csv, &info, stream, error);
}
