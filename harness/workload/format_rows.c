#include "harness/workload/format_rows.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/format_readers.h"
#include "reference/plan/routes.h"

enum { FILES_LIMIT = 1024 };

const char *const mp_row_key_names[MP_ROW_KEYS] = {"micro_batch", "layer", "rank", "expert"};

struct mp_token_cell {
    int32_t *expert; /* [room][top_k], owned */
    int32_t tokens, room;
};

static void rows_destroy(void *self) {
    struct mp_rows *rows = self;
    for (int64_t i = 0; rows->cell && i < (int64_t)rows->blocks * rows->shape.ranks; i++)
        free(rows->cell[i].expert);
    for (int i = 0; i < rows->sources; i++) {
        mp_input_destroy(rows->source[i].input);
        free(rows->source[i].choice);
    }
    if (rows->reader->destroy)
        rows->reader->destroy(rows);
    free(rows->source);
    mp_arena_release(&rows->memory);
    free(rows);
}

int mp_row_fail(const struct mp_row_source *source, struct mp_error *error, const char *what, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, what);
    vsnprintf(text, sizeof text, what, arguments);
    va_end(arguments);
    return mp_fail(error, MP_EFORMAT, "%s:%lld: %s", mp_input_path(source->input),
                   (long long)mp_input_line_number(source->input), text);
}

int mp_row_choices(struct mp_row_source *source, size_t count, struct mp_error *error) {
    if (count <= source->room)
        return MP_OK;
    free(source->choice);
    source->choice = malloc(count * sizeof *source->choice);
    source->room = source->choice ? count : 0;
    return source->choice ? MP_OK : mp_no_memory(error);
}

/* ---- files ---- */

static int read_row(struct mp_rows *rows, struct mp_row_source *source, struct mp_error *error) {
    char *line;
    do
        MP_TRY(mp_input_line(source->input, &line, error));
    while (line && !line[strspn(line, " \t")]);
    source->ended = !line;
    return line ? rows->reader->line(rows, source, line, error) : MP_OK;
}

/* The first row of every file. */
static int begin(struct mp_rows *rows, struct mp_error *error) {
    char *head;
    for (int i = 0; i < rows->sources; i++) {
        MP_TRY(mp_input_rewind(rows->source[i].input, error));
        if (rows->reader->head)
            MP_TRY(mp_input_line(rows->source[i].input, &head, error));
        MP_TRY(read_row(rows, &rows->source[i], error));
    }
    return MP_OK;
}

static int add_file(struct mp_rows *rows, const char *path, struct mp_error *error) {
    char *line;
    MP_TRY(MP_GROW(rows->source, rows->sources, error));
    struct mp_row_source *source = &rows->source[rows->sources];
    *source = (struct mp_row_source){0};
    MP_TRY(mp_input_open(path, &source->input, error));
    rows->sources++;
    if (!rows->reader->head)
        return MP_OK;
    MP_TRY(mp_input_line(source->input, &line, error));
    if (!line)
        return mp_fail(error, MP_EFORMAT, "%s: an empty file; a header line has to come first",
                       path);
    return rows->reader->head(rows, source, line, error);
}

/* `path` itself, or what counts of a folder's files: one for every rank. */
static int add_files(struct mp_rows *rows, const char *path, struct mp_error *error) {
    struct dirent **entry;
    int all = scandir(path, &entry, NULL, alphasort), count = 0, code = MP_OK;
    if (all < 0 && errno != ENOTDIR && errno != ENOENT)
        return mp_fail(error, MP_EIO, "%s: %s", path, strerror(errno));
    if (all < 0)
        return add_file(rows, path, error);
    for (int i = 0; i < all; i++) {
        char file[4096];
        bool counts = !fnmatch(rows->reader->files, entry[i]->d_name, FNM_PERIOD);
        count += counts;
        if (counts && !code &&
            snprintf(file, sizeof file, "%s/%s", path, entry[i]->d_name) >= (int)sizeof file)
            code = mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", path);
        if (counts && !code && count <= FILES_LIMIT)
            code = add_file(rows, file, error);
        free(entry[i]);
    }
    free(entry);
    if (!code && count == 0)
        code = mp_fail(error, MP_ENOTFOUND,
                       "%s: no file of this folder is called %s, as files of loads are; moeperf "
                       "import --help lists them",
                       path, rows->reader->files);
    if (!code && count > FILES_LIMIT)
        code = mp_fail(error, MP_ELIMIT, "%s: %d files %s in this folder; at most %d are right",
                       path, count, rows->reader->files, FILES_LIMIT);
    return code;
}

/* ---- an iteration ---- */

/* Takes up the iteration that comes next in any of the files; false at the end of all. */
static bool find_iteration(struct mp_rows *rows) {
    bool found = false;
    for (int i = 0; i < rows->sources; i++) {
        const struct mp_row_source *source = &rows->source[i];
        if (source->ended || (found && source->iteration >= rows->iteration))
            continue;
        rows->iteration = source->iteration;
        found = true;
    }
    return found;
}

/* Calls `take` with every row of the iteration, file by file. */
static int walk(struct mp_rows *rows,
                int (*take)(struct mp_rows *, struct mp_row_source *, struct mp_error *),
                struct mp_error *error) {
    for (int i = 0; i < rows->sources; i++) {
        struct mp_row_source *source = &rows->source[i];
        while (!source->ended && source->iteration == rows->iteration) {
            MP_TRY(take(rows, source, error));
            MP_TRY(read_row(rows, source, error));
        }
        if (!source->ended && source->iteration < rows->iteration)
            return mp_row_fail(source, error,
                               "iteration %lld after iteration %lld; the rows of an iteration have "
                               "to stand together, and iterations to ascend",
                               (long long)source->iteration, (long long)rows->iteration);
    }
    return MP_OK;
}

/* More tokens of a rank. */
static int add_tokens(struct mp_token_cell *cell, int top_k, const struct mp_row_source *source,
                      struct mp_error *error) {
    int64_t all = (int64_t)cell->tokens + source->tokens;
    size_t token = (size_t)top_k * sizeof *source->choice;
    if (all > cell->room) {
        int64_t room = 2 * all;
        int32_t *larger = room > INT32_MAX ? NULL : realloc(cell->expert, (size_t)room * token);
        if (!larger)
            return mp_fail(error, MP_ENOMEM, "%s: no memory for %lld tokens",
                           mp_input_path(source->input), (long long)room);
        cell->expert = larger;
        cell->room = (int32_t)room;
    }
    if (source->tokens > 0)
        memcpy(cell->expert + (size_t)cell->tokens * (size_t)top_k, source->choice,
               (size_t)source->tokens * token);
    cell->tokens = (int32_t)all;
    return MP_OK;
}

/* What cells hold becomes the load's routes and counts. */
static int give_tokens(const struct mp_token_cell cell[], int top_k, struct mp_load *load,
                       struct mp_error *error) {
    MP_AUTO(memory) int32_t *tokens = NULL;
    MP_TRY(MP_NEW(tokens, load->ranks, error));
    for (int rank = 0; rank < load->ranks; rank++)
        tokens[rank] = cell[rank].tokens;
    MP_TRY(mp_load_give_routes(load, top_k, tokens, error));
    memset(load->count, 0, (size_t)load->ranks * (size_t)load->experts * sizeof *load->count);
    for (int rank = 0; rank < load->ranks; rank++) {
        int32_t *to = load->routes->expert + (size_t)load->routes->begin[rank] * (size_t)top_k;
        if (cell[rank].tokens > 0)
            memcpy(to, cell[rank].expert, (size_t)cell[rank].tokens * (size_t)top_k * sizeof *to);
        mp_routes_count(load->routes, rank, load->count + (size_t)rank * (size_t)load->experts);
    }
    return MP_OK;
}

/* Where the row belongs among places. */
static int find_place(struct mp_rows *rows, struct mp_row_source *source, int64_t *place,
                      struct mp_error *error) {
    const struct mp_trace_shape *shape = &rows->shape;
    const int length[MP_ROW_KEYS] = {shape->micro_batches, shape->layers, shape->ranks,
                                     rows->each_expert ? shape->experts : 1};
    if (rows->reader->locate)
        MP_TRY(rows->reader->locate(rows, source, error));
    for (int key = MP_ROW_KEYS - 1; key >= 0; key--) { /* layer and rank may give the micro-batch */
        if (key == MP_ROW_MICRO_BATCH && rows->in_turn)
            source->key[key] =
                rows->turn[source->key[MP_ROW_LAYER] * shape->ranks + source->key[MP_ROW_RANK]]++;
        if (source->key[key] >= length[key])
            return mp_row_fail(source, error, "%s %d, but the first iteration has 0 to %d",
                               mp_row_key_names[key], source->key[key], length[key] - 1);
    }
    for (int key = 0; key < MP_ROW_KEYS; key++)
        *place = *place * length[key] + source->key[key];
    return MP_OK;
}

static int place_row(struct mp_rows *rows, struct mp_row_source *source, struct mp_error *error) {
    const size_t width = rows->each_expert ? 1 : (size_t)rows->shape.experts;
    int64_t place = 0;
    MP_TRY(find_place(rows, source, &place, error));
    if (rows->seen && rows->seen[place]++)
        return mp_row_fail(source, error, "a second row for the same place in the same iteration");
    if (rows->adds_tokens && source->first_token != rows->cell[place].tokens)
        return mp_row_fail(source, error,
                           "tokens of a layer and rank have to be numbered from 0 on and to come "
                           "in this order");
    if (rows->cell)
        return add_tokens(&rows->cell[place], rows->shape.top_k, source, error);
    uint32_t *count = rows->count + (size_t)place * width;
    if (source->count)
        memcpy(count, source->count, width * sizeof *count);
    for (int i = 0; !source->count && i < source->tokens * rows->shape.top_k; i++)
        count[source->choice[i]]++;
    return MP_OK;
}

static int check_whole(const struct mp_rows *rows, struct mp_error *error) {
    const unsigned char *hole = rows->seen ? memchr(rows->seen, 0, (size_t)rows->places) : NULL;
    if (!hole)
        return MP_OK;
    const struct mp_trace_shape *shape = &rows->shape;
    const struct mp_input *input = rows->source[0].input;
    int64_t place = hole - rows->seen;
    char layer[48], expert[24] = "";
    if (rows->each_expert) {
        snprintf(expert, sizeof expert, ", expert %d", (int)(place % shape->experts));
        place /= shape->experts;
    }
    int64_t block = place / shape->ranks;
    if (rows->reader->name_layer)
        rows->reader->name_layer(rows, (int)(block % shape->layers), layer, sizeof layer);
    else
        snprintf(layer, sizeof layer, "layer %d", (int)(block % shape->layers));
    return mp_fail(error, MP_EFORMAT,
                   "%s: no row for iteration %lld, micro-batch %d, %s, rank %d%s (read to line "
                   "%lld)",
                   rows->sources > 1 ? "the files" : mp_input_path(input),
                   (long long)rows->iteration, (int)(block / shape->layers), layer,
                   (int)(place % shape->ranks), expert, (long long)mp_input_line_number(input));
}

static int rows_next(void *self, struct mp_trace_block *block, bool *end, struct mp_error *error) {
    struct mp_rows *rows = self;
    const struct mp_trace_shape *shape = &rows->shape;
    const size_t loads = (size_t)shape->ranks * (size_t)shape->experts;
    *end = rows->next == rows->blocks && !find_iteration(rows);
    if (*end)
        return MP_OK;
    if (rows->next == rows->blocks) {
        const size_t cells = (size_t)rows->blocks * (size_t)shape->ranks;
        if (rows->count)
            memset(rows->count, 0, cells * (size_t)shape->experts * sizeof *rows->count);
        if (rows->seen)
            memset(rows->seen, 0, (size_t)rows->places);
        if (rows->turn)
            memset(rows->turn, 0,
                   (size_t)shape->layers * (size_t)shape->ranks * sizeof *rows->turn);
        for (size_t i = 0; rows->cell && i < cells; i++)
            rows->cell[i].tokens = 0;
        rows->next = 0;
        MP_TRY(walk(rows, place_row, error));
        MP_TRY(check_whole(rows, error));
    }
    const int at = rows->next++;
    block->iteration = rows->iteration;
    block->micro_batch = at / shape->layers;
    block->layer = at % shape->layers;
    if (rows->cell)
        return give_tokens(rows->cell + (int64_t)at * shape->ranks, shape->top_k, &block->load,
                           error);
    memcpy(block->load.count, rows->count + (size_t)at * loads, loads * sizeof *rows->count);
    return MP_OK;
}

/* ---- opening: the first iteration gives the shape ---- */

static int larger(int number, int than) {
    return number > than ? number : than;
}

static int survey_row(struct mp_rows *rows, struct mp_row_source *source, struct mp_error *error) {
    struct mp_trace_shape *shape = &rows->shape;
    const int *key = source->key;
    rows->blocks++;
    shape->ranks = larger(key[MP_ROW_RANK] + 1, shape->ranks);
    shape->micro_batches = larger(key[MP_ROW_MICRO_BATCH] + 1, shape->micro_batches);
    if (rows->each_expert)
        shape->experts = larger(key[MP_ROW_EXPERT] + 1, shape->experts);
    if (rows->reader->survey)
        return rows->reader->survey(rows, source, error);
    shape->layers = larger(key[MP_ROW_LAYER] + 1, shape->layers);
    return MP_OK;
}

/* A few rows with large numbers must not ask for much memory; fewer holes are named one by one. */
static int check_places(const struct mp_rows *rows, int64_t count, struct mp_error *error) {
    if (rows->places <= 1000000 + 16 * count)
        return MP_OK;
    return mp_fail(error, MP_EFORMAT,
                   "%s: iteration %lld has %lld rows; its largest micro-batch, layer, rank and "
                   "expert ask for %lld",
                   rows->path, (long long)rows->iteration, (long long)count,
                   (long long)rows->places);
}

static int survey(struct mp_rows *rows, struct mp_error *error) {
    struct mp_trace_shape *shape = &rows->shape;
    MP_TRY(begin(rows, error));
    if (!find_iteration(rows))
        return mp_row_fail(&rows->source[0], error, "no row in it; rows have to follow");
    MP_TRY(walk(rows, survey_row, error));
    if (rows->wants_experts && !shape->experts)
        return mp_fail(error, MP_EINVAL,
                       "%s: rows of tokens' experts do not say how many experts there are; the "
                       "largest index of the first iteration is %d; --experts N says it",
                       rows->path, rows->largest);
    const int64_t count = rows->blocks, each = (int64_t)shape->layers * shape->ranks;
    if (rows->in_turn)
        shape->micro_batches = (int)((count + each - 1) / each);
    rows->blocks = rows->next = 0; /* there is nothing of them yet */
    MP_TRY(mp_format_check_shape(rows->path, shape, error));
    const int blocks = shape->micro_batches * shape->layers;
    rows->places = (int64_t)blocks * shape->ranks * (rows->each_expert ? shape->experts : 1);
    MP_TRY(check_places(rows, count, error));
    rows->blocks = rows->next = blocks;
    const int64_t cells = (int64_t)rows->blocks * shape->ranks;
    if (!rows->adds_tokens)
        MP_TAKE(&rows->memory, rows->seen, rows->places);
    if (rows->in_turn)
        MP_TAKE(&rows->memory, rows->turn, (int64_t)shape->layers * shape->ranks);
    if (rows->keeps_tokens)
        MP_TAKE(&rows->memory, rows->cell, cells);
    else
        MP_TAKE(&rows->memory, rows->count, cells * shape->experts);
    MP_TRY(mp_arena_check(&rows->memory, error));
    return begin(rows, error);
}

int mp_rows_open(struct mp_rows *rows, const char *path, const char *kind,
                 struct mp_trace_stream **stream, struct mp_error *error) {
    static const struct mp_trace_stream_operations operations = {rows_next, rows_destroy};
    char notes[256] = "";
    if (!rows)
        return mp_no_memory(error);
    struct mp_trace_info info = {0};
    rows->path = path;
    rows->kind = kind;
    int code = add_files(rows, path, error);
    if (!code)
        code = survey(rows, error);
    if (!code && rows->reader->note)
        rows->reader->note(rows, notes, sizeof notes);
    if (!code)
        code = mp_format_describe(path, rows->kind, notes, &info, error);
    rows->path = rows->kind = NULL;
    info.shape = rows->shape;
    info.routes = rows->keeps_tokens;
    return mp_trace_stream_create(code, &operations, rows, &info, stream, error);
}
