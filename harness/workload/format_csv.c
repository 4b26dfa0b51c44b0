/* CSV, long, wide and of tokens: columns by the names that a header gives them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/format_readers.h"
#include "harness/workload/format_rows.h"

/* What a column holds: a row's key, the iteration, the number of a token, a count, or (from FIRST
 * on) the count of an expert, e0 ..., or a choice of the token, k0 ... */
enum role { ITERATION = MP_ROW_KEYS, TOKEN, COUNT, ROLES, FIRST = ROLES };
enum { NUMBERED_LIMIT = MP_ROW_NUMBER_LIMIT + 1 };

/* Which columns there are in each layout, in the order of roles: y, n, or ? if one likes. */
static const char *const layouts[] = {
    [MP_CSV_LONG] = "?yyyyny", [MP_CSV_WIDE] = "?yynynn", [MP_CSV_TOKENS] = "?y?n?yn"};
static const char *const kinds[] = {
    [MP_CSV_LONG] = "csv-long", [MP_CSV_WIDE] = "csv-wide", [MP_CSV_TOKENS] = "csv-tokens"};

struct csv {
    struct mp_rows rows; /* first */
    enum mp_csv_layout wanted, layout;
    int experts;  /* that somebody said there are; 0: nobody did */
    int numbered; /* columns e0, e1, ... or k0, k1, ... */
    unsigned char taken[FIRST + NUMBERED_LIMIT];
};

struct columns {
    int count;
    int role[];
};

/* Cuts at the next comma; what is behind it, or NULL. */
static char *cut(char *cell) {
    char *comma = strchr(cell, ',');
    if (comma)
        *comma = '\0';
    return comma ? comma + 1 : NULL;
}

static const char *name_of(const struct csv *csv, int role, char text[16]) {
    static const char *const own[] = {"iteration", "token", "count"};
    if (role < ROLES)
        return role < MP_ROW_KEYS ? mp_row_key_names[role] : own[role - MP_ROW_KEYS];
    snprintf(text, 16, "%c%d", csv->wanted == MP_CSV_TOKENS ? 'k' : 'e', role - FIRST);
    return text;
}

/* The role of a column of this name, without quotes and spaces around it; -1 if unknown. */
static int role_of(const struct csv *csv, const char *cell) {
    char number[8] = "", text[16];
    int64_t index;
    cell += strspn(cell, " \t\"");
    size_t length = strcspn(cell, " \t\"");
    for (int role = 0; role < ROLES; role++) {
        const char *name = name_of(csv, role, text);
        if (strlen(name) == length && !strncmp(cell, name, length))
            return role;
    }
    if (cell[0] != *name_of(csv, FIRST, text) || length < 2 || length > sizeof number)
        return -1;
    memcpy(number, cell + 1, length - 1);
    return mp_format_whole(number, NUMBERED_LIMIT - 1, &index) ? -1 : FIRST + (int)index;
}

/* Gives each column its role, once. */
static int name_columns(struct csv *csv, const struct mp_row_source *source, char *line,
                        struct mp_error *error) {
    struct columns *columns = source->own;
    memset(csv->taken, 0, sizeof csv->taken);
    csv->numbered = 0;
    for (char *rest; line; line = rest) {
        rest = cut(line);
        int role = role_of(csv, line);
        if (role < 0 || csv->taken[role])
            return mp_row_fail(
                source, error,
                "column %d, '%.32s', is %s; known are iteration, micro_batch, layer, "
                "rank and either expert and count (long) or e0, e1, ... (wide), or "
                "token and k0, k1, ... (csv-tokens)",
                columns->count + 1, line, role < 0 ? "unknown" : "there twice");
        csv->taken[columns->role[columns->count++] = role] = 1;
        csv->numbered += role >= FIRST;
    }
    return MP_OK;
}

/* The layout has all its columns and no others. */
static int check_columns(const struct csv *csv, const struct mp_row_source *source,
                         struct mp_error *error) {
    const char *needed = layouts[csv->layout], *kind = kinds[csv->layout] + strlen("csv-");
    char text[16];
    for (int role = 0; role < ROLES; role++)
        if (needed[role] != '?' && (needed[role] == 'y') != csv->taken[role])
            return mp_row_fail(source, error, "%s column '%s' in the header of a %s file",
                               csv->taken[role] ? "unexpected" : "no", name_of(csv, role, text),
                               kind);
    for (int i = 0; i < csv->numbered || (i == 0 && csv->layout == MP_CSV_TOKENS); i++)
        if (!csv->taken[FIRST + i])
            return mp_row_fail(source, error, "no column %s among %d of them: they count from 0",
                               name_of(csv, FIRST + i, text), csv->numbered);
    if (csv->layout != csv->wanted && csv->wanted != MP_CSV_BY_HEADER)
        return mp_row_fail(source, error,
                           csv->layout == MP_CSV_WIDE
                               ? "the header of a wide file (e0, e1, ...): use csv-wide"
                               : "the header of a long file (expert, count): use csv-long");
    return MP_OK;
}

static int read_header(struct mp_rows *rows, struct mp_row_source *source, char *line,
                       struct mp_error *error) {
    struct csv *csv = (struct csv *)rows;
    if (csv->wanted == MP_CSV_BY_HEADER && strstr(line, "k0"))
        csv->wanted = MP_CSV_TOKENS;
    const bool tokens = csv->wanted == MP_CSV_TOKENS;
    if (!tokens && csv->experts)
        return mp_row_fail(source, error,
                           "long and wide files say themselves how many experts there are");
    rows->adds_tokens = rows->wants_experts = rows->keeps_tokens = tokens;
    const int before = csv->numbered;
    size_t columns = 1;
    for (const char *at = line; (at = strchr(at, ',')); at++)
        columns++;
    source->own = mp_arena_take(&rows->memory, 1, sizeof(struct columns) + columns * sizeof(int));
    if (!tokens)
        MP_TAKE(&rows->memory, source->count, columns);
    MP_TRY(mp_arena_check(&rows->memory, error));
    if (tokens)
        MP_TRY(mp_row_choices(source, columns, error));
    MP_TRY(name_columns(csv, source, line, error));
    if (source > rows->source && csv->numbered != before)
        return mp_row_fail(source, error,
                           "a header with other columns of experts than the first file's");
    csv->layout = tokens ? MP_CSV_TOKENS : csv->numbered ? MP_CSV_WIDE : MP_CSV_LONG;
    rows->kind = kinds[csv->layout];
    rows->each_expert = csv->layout == MP_CSV_LONG;
    source->tokens = 1;
    if (tokens)
        rows->shape.top_k = csv->numbered;
    else
        rows->shape.experts = csv->numbered;
    return check_columns(csv, source, error);
}

static int64_t most_of(const struct csv *csv, int role) {
    const int experts = csv->rows.shape.experts;
    if (role == ITERATION)
        return INT64_MAX - 1;
    if (role == TOKEN)
        return INT32_MAX - 1;
    if (csv->layout != MP_CSV_TOKENS)
        return role < MP_ROW_KEYS ? MP_ROW_NUMBER_LIMIT : UINT32_MAX;
    return role >= FIRST && experts ? experts - 1 : MP_ROW_NUMBER_LIMIT;
}

static int store(struct csv *csv, struct mp_row_source *source, int column, const char *cell,
                 struct mp_error *error) {
    const int role = ((struct columns *)source->own)->role[column];
    const bool choice = role >= FIRST && csv->layout == MP_CSV_TOKENS;
    const int64_t most = most_of(csv, role);
    int64_t value = -1;
    char text[16];
    bool empty = choice && !cell[strspn(cell, " \t\"")]; /* not taken */
    const char *wrong = empty ? NULL : mp_format_whole(cell, most, &value);
    if (wrong)
        return mp_row_fail(source, error,
                           "column %d (%s): '%.32s' %s; a whole number from 0 to %lld is right",
                           column + 1, name_of(csv, role, text), cell, wrong, (long long)most);
    if (role < MP_ROW_KEYS)
        source->key[role] = (int)value;
    else if (role == ITERATION)
        source->iteration = value;
    else if (role == TOKEN)
        source->first_token = (int)value;
    else if (choice)
        source->choice[role - FIRST] = (int32_t)value;
    else
        source->count[role == COUNT ? 0 : role - FIRST] = (uint32_t)value;
    if (choice && value > csv->rows.largest)
        csv->rows.largest = (int)value;
    return MP_OK;
}

static int read_line(struct mp_rows *rows, struct mp_row_source *source, char *line,
                     struct mp_error *error) {
    const int columns = ((struct columns *)source->own)->count;
    int column = 0;
    for (char *rest; line; line = rest, column++) {
        rest = cut(line);
        if (column < columns)
            MP_TRY(store((struct csv *)rows, source, column, line, error));
    }
    if (column != columns)
        return mp_row_fail(source, error, "%d columns, but the header has %d%s", column, columns,
                           column < columns ? "; is the file cut off?" : "");
    return MP_OK;
}

int mp_format_open_csv(const struct mp_format *format, const char *path, int experts,
                       struct mp_trace_stream **stream, struct mp_error *error) {
    static const struct mp_rows_reader reader = {
        .files = "*.csv", .head = read_header, .line = read_line};
    struct csv *csv = calloc(1, sizeof *csv);
    if (csv) {
        csv->rows = (struct mp_rows){.reader = &reader, .shape = {.experts = experts}};
        csv->wanted = (enum mp_csv_layout)format->variant;
        csv->experts = experts;
    }
    return mp_rows_open(csv ? &csv->rows : NULL, path, NULL, stream, error);
}
