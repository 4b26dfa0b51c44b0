/* CSV of tokens: rows of an iteration are collected into the experts of its tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/format_readers.h"
#include "harness/workload/input.h"
#include "reference/plan/routes.h"

enum { NUMBER_LIMIT = 65535, CHOICES = 64 };
/* What a column holds; from FIRST on a token's experts. */
enum role { ITERATION, LAYER, RANK, TOKEN, FIRST };
static const char *const role_name[FIRST] = {"iteration", "layer", "rank", "token"};

struct tokens {
    struct mp_input *input;
    int role[FIRST + CHOICES], columns;
    int64_t value[FIRST];    /* of the row read last; a column that there is not: 0 */
    int32_t expert[CHOICES]; /* likewise */
    bool ended;
    struct mp_trace_shape shape;
    struct mp_token_cell *cell; /* [layers][ranks] of the current iteration */
    int64_t current;            /* iteration; -1 before the first */
    int next;                   /* layer */
};

/* ---- what readers share ---- */

int mp_token_cell_add(struct mp_token_cell *cell, int top_k, int tokens, const int32_t expert[],
                      const char *path, struct mp_error *error) {
    int64_t all = (int64_t)cell->tokens + tokens;
    size_t token = (size_t)top_k * sizeof *expert;
    if (all > cell->room) {
        int64_t room = 2 * all;
        int32_t *larger = room > INT32_MAX ? NULL : realloc(cell->expert, (size_t)room * token);
        if (!larger)
            return mp_fail(error, MP_ENOMEM, "%s: no memory for %lld tokens", path,
                           (long long)room);
        cell->expert = larger;
        cell->room = (int32_t)room;
    }
    if (tokens > 0)
        memcpy(cell->expert + (size_t)cell->tokens * (size_t)top_k, expert, (size_t)tokens * token);
    cell->tokens = (int32_t)all;
    return MP_OK;
}

void mp_token_cells_destroy(struct mp_token_cell cell[], int64_t count) {
    for (int64_t i = 0; cell && i < count; i++)
        free(cell[i].expert);
    free(cell);
}

int mp_token_cells_give(const struct mp_token_cell cell[], int top_k, struct mp_load *load,
                        struct mp_error *error) {
    int32_t *tokens = calloc((size_t)load->ranks, sizeof *tokens);
    if (!tokens)
        return mp_fail(error, MP_ENOMEM, "no memory for the tokens of %d ranks", load->ranks);
    for (int rank = 0; rank < load->ranks; rank++)
        tokens[rank] = cell[rank].tokens;
    int code = mp_load_give_routes(load, top_k, tokens, error);
    free(tokens);
    for (int rank = 0; rank < load->ranks && !code; rank++) {
        int32_t *to = load->routes->expert + (size_t)load->routes->begin[rank] * (size_t)top_k;
        if (cell[rank].tokens > 0)
            memcpy(to, cell[rank].expert, (size_t)cell[rank].tokens * (size_t)top_k * sizeof *to);
        mp_routes_count(load->routes, rank, load->count + (size_t)rank * (size_t)load->experts);
    }
    return code;
}

/* ---- rows of tokens ---- */

static void tokens_destroy(void *self) {
    struct tokens *tokens = self;
    mp_input_destroy(tokens->input);
    mp_token_cells_destroy(tokens->cell, (int64_t)tokens->shape.layers * tokens->shape.ranks);
    free(tokens);
}

static int tokens_fail(const struct tokens *tokens, const char *what, struct mp_error *error) {
    return mp_fail(error, MP_EFORMAT, "%s:%lld: %s", mp_input_path(tokens->input),
                   (long long)mp_input_line_number(tokens->input), what);
}

/* Cuts at the next comma; what is behind it, or NULL. */
static char *cut(char *cell) {
    char *comma = strchr(cell, ',');
    if (comma)
        *comma = '\0';
    return comma ? comma + 1 : NULL;
}

static int role_of(const char *cell, int choices) {
    char wanted[16];
    cell += strspn(cell, " \t\"");
    size_t length = strcspn(cell, " \t\"");
    snprintf(wanted, sizeof wanted, "k%d", choices);
    for (int role = 0; role < FIRST; role++)
        if (strlen(role_name[role]) == length && !strncmp(cell, role_name[role], length))
            return role;
    return strlen(wanted) == length && !strncmp(cell, wanted, length) ? FIRST + choices : -1;
}

static int read_header(struct tokens *tokens, struct mp_error *error) {
    char *line;
    bool taken[FIRST + CHOICES] = {false};
    int code = mp_input_line(tokens->input, &line, error);
    for (char *rest; !code && line; line = rest) {
        rest = cut(line);
        int role = role_of(line, tokens->shape.top_k);
        if (role < 0 || taken[role] || tokens->columns == FIRST + CHOICES)
            return tokens_fail(tokens,
                               "a header of columns iteration, layer, rank, token and experts k0, "
                               "k1, ... once each is right; without iteration or rank there is one",
                               error);
        taken[role] = true;
        tokens->role[tokens->columns++] = role;
        tokens->shape.top_k += role >= FIRST;
        if (tokens->shape.top_k == CHOICES)
            return tokens_fail(tokens, "at most 63 experts of a token are possible", error);
    }
    if (!code && (!taken[LAYER] || !taken[TOKEN] || !taken[FIRST]))
        code = tokens_fail(tokens, "no column layer, token or k0 in the header", error);
    return code;
}

static int store(struct tokens *tokens, int column, char *cell, struct mp_error *error) {
    int role = tokens->role[column];
    int64_t value = 0, most = role == ITERATION ? INT64_MAX - 1 : NUMBER_LIMIT;
    if (role == TOKEN)
        most = INT32_MAX - 1;
    /* An empty cell is a choice that is not taken. */
    bool empty = role >= FIRST && !cell[strspn(cell, " \t\"")];
    const char *wrong = empty ? NULL : mp_format_whole(cell, most, &value);
    if (!wrong && role >= FIRST && value >= tokens->shape.experts)
        wrong = "is no expert that there is (--experts)";
    if (wrong) {
        char text[160];
        snprintf(text, sizeof text, "column %d: '%.32s' %s", column + 1, cell, wrong);
        return tokens_fail(tokens, text, error);
    }
    if (role < FIRST)
        tokens->value[role] = value;
    else
        tokens->expert[role - FIRST] = empty ? -1 : (int32_t)value;
    return MP_OK;
}

static int read_row(struct tokens *tokens, struct mp_error *error) {
    char *line;
    int column = 0, code;
    do {
        code = mp_input_line(tokens->input, &line, error);
    } while (!code && line && !*line);
    tokens->ended = !line;
    for (char *rest; !code && line; line = rest, column++) {
        rest = cut(line);
        if (column < tokens->columns)
            code = store(tokens, column, line, error);
    }
    if (!code && !tokens->ended && column != tokens->columns)
        code = tokens_fail(tokens, "another number of columns than the header has", error);
    return code;
}

/* Reads the first iteration for ranks and layers, then goes back to its first row. */
static int find_shape(struct tokens *tokens, struct mp_error *error) {
    struct mp_trace_shape *shape = &tokens->shape;
    char *header;
    int code = read_row(tokens, error);
    if (!code && tokens->ended)
        code = tokens_fail(tokens, "the header is all there is; rows have to follow", error);
    int64_t iteration = tokens->value[ITERATION], rows = 0;
    for (; !code && !tokens->ended && tokens->value[ITERATION] == iteration;
         code = read_row(tokens, error)) {
        int layer = (int)tokens->value[LAYER] + 1, rank = (int)tokens->value[RANK] + 1;
        shape->layers = layer > shape->layers ? layer : shape->layers;
        shape->ranks = rank > shape->ranks ? rank : shape->ranks;
        rows++;
    }
    /* A few rows with large numbers must not ask for much memory. */
    if (!code && (int64_t)shape->layers * shape->ranks > 1000000 + 16 * rows)
        code =
            tokens_fail(tokens, "layers and ranks of the first iteration ask for more rows", error);
    if (!code)
        code = mp_format_check_shape(mp_input_path(tokens->input), shape, error);
    if (!code)
        code = mp_input_rewind(tokens->input, error);
    if (!code)
        code = mp_input_line(tokens->input, &header, error);
    if (code)
        return code;
    tokens->cell = calloc((size_t)shape->layers * (size_t)shape->ranks, sizeof *tokens->cell);
    if (!tokens->cell)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for its tokens",
                       mp_input_path(tokens->input));
    return read_row(tokens, error);
}

static int place_row(struct tokens *tokens, struct mp_error *error) {
    const struct mp_trace_shape *shape = &tokens->shape;
    if (tokens->value[LAYER] >= shape->layers || tokens->value[RANK] >= shape->ranks)
        return tokens_fail(tokens, "a layer or rank that the first iteration has not", error);
    struct mp_token_cell *cell =
        &tokens->cell[tokens->value[LAYER] * shape->ranks + tokens->value[RANK]];
    if (tokens->value[TOKEN] != cell->tokens)
        return tokens_fail(tokens,
                           "tokens of a layer and rank have to be numbered from 0 on and to "
                           "come in this order",
                           error);
    return mp_token_cell_add(cell, shape->top_k, 1, tokens->expert, mp_input_path(tokens->input),
                             error);
}

static int read_iteration(struct tokens *tokens, struct mp_error *error) {
    int code = MP_OK;
    if (tokens->value[ITERATION] <= tokens->current)
        return tokens_fail(tokens,
                           "rows of an iteration have to stand together, and iterations to "
                           "ascend",
                           error);
    tokens->current = tokens->value[ITERATION];
    for (int i = 0; i < tokens->shape.layers * tokens->shape.ranks; i++)
        tokens->cell[i].tokens = 0;
    while (!code && !tokens->ended && tokens->value[ITERATION] == tokens->current) {
        code = place_row(tokens, error);
        if (!code)
            code = read_row(tokens, error);
    }
    tokens->next = 0;
    return code;
}

static int tokens_next(void *self, struct mp_trace_block *block, bool *end,
                       struct mp_error *error) {
    struct tokens *tokens = self;
    const struct mp_trace_shape *shape = &tokens->shape;
    struct mp_load *load = &block->load;
    int code = MP_OK;
    *end = tokens->next == shape->layers && tokens->ended;
    if (*end)
        return MP_OK;
    if (tokens->next == shape->layers)
        code = read_iteration(tokens, error);
    if (code)
        return code;
    block->iteration = tokens->current;
    block->micro_batch = 0;
    block->layer = tokens->next++;
    memset(load->count, 0, (size_t)shape->ranks * (size_t)shape->experts * sizeof *load->count);
    return mp_token_cells_give(tokens->cell + block->layer * shape->ranks, shape->top_k, load,
                               error);
}

int mp_format_open_tokens(const char *path, int experts, struct mp_trace_stream **stream,
                          struct mp_error *error) {
    static const struct mp_trace_stream_operations operations = {tokens_next, tokens_destroy};
    struct mp_trace_info info = {.routes = true};
    if (experts < 1)
        return mp_fail(error, MP_EINVAL,
                       "%s: rows of tokens do not say how many experts there are; --experts N "
                       "says it",
                       path);
    struct tokens *tokens = calloc(1, sizeof *tokens);
    if (!tokens)
        return mp_fail(error, MP_ENOMEM, "%s: no memory to read it", path);
    tokens->current = -1;
    tokens->shape = (struct mp_trace_shape){.ranks = 1, .experts = experts, .micro_batches = 1};
    int code = mp_input_open(path, &tokens->input, error);
    if (!code)
        code = read_header(tokens, error);
    if (!code)
        code = find_shape(tokens, error);
    if (!code)
        code = mp_format_describe(path, "csv-tokens", "", &info, error);
    if (code) {
        tokens_destroy(tokens);
        return code;
    }
    tokens->next = tokens->shape.layers;
    info.shape = tokens->shape;
    return mp_trace_stream_create(&operations, tokens, &info, stream, error);
}
