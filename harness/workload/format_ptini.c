/* UCC's pattern files: INI text, a [collective] per matrix. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/format_readers.h"
#include "harness/workload/input.h"

enum { TEAM_LIMIT = 8192 };

struct ptini {
    struct mp_input *input;
    int64_t collectives; /* given so far */
    bool inside;         /* the line "[collective]" has been read */
    int team;            /* of the first collective; 0 before */
    char datatype[32];   /* of the first collective */
    uint32_t *count;     /* [team][team] */
};

static void ptini_destroy(void *self) {
    struct ptini *ptini = self;
    if (!ptini)
        return;
    mp_input_destroy(ptini->input);
    free(ptini->count);
    free(ptini);
}

static int ptini_fail(const struct ptini *ptini, const char *what, const char *text,
                      struct mp_error *error) {
    return mp_fail(error, MP_EFORMAT, "%s:%lld: '%.48s': %s", mp_input_path(ptini->input),
                   (long long)mp_input_line_number(ptini->input), text, what);
}

/* The next line with something in it, without spaces at its ends; NULL at the end. */
static int next_line(struct ptini *ptini, char **line, struct mp_error *error) {
    do {
        int code = mp_input_line(ptini->input, line, error);
        if (code || !*line)
            return code;
        *line += strspn(*line, " \t");
        size_t length = strlen(*line);
        while (length && ((*line)[length - 1] == ' ' || (*line)[length - 1] == '\t'))
            (*line)[--length] = '\0';
    } while (!**line || **line == '#' || **line == ';');
    return MP_OK;
}

/* Numbers of one line into the matrix, `filled` so far; *closed if there is the bracket. */
static int read_counts(struct ptini *ptini, char *line, int64_t *filled, bool *closed,
                       struct mp_error *error) {
    int64_t wanted = (int64_t)ptini->team * ptini->team;
    char *bracket = strchr(line, '}');
    *closed = bracket;
    if (bracket && bracket[1])
        return ptini_fail(ptini, "nothing may follow the closing bracket", bracket, error);
    if (bracket)
        *bracket = '\0';
    char *rest = NULL;
    for (char *text = strtok_r(line, ", \t", &rest); text; text = strtok_r(NULL, ", \t", &rest)) {
        int64_t value;
        char what[96];
        const char *wrong = mp_format_whole(text, UINT32_MAX, &value);
        if (wrong) {
            snprintf(what, sizeof what, "%s; a count from 0 to %u is right", wrong, UINT32_MAX);
            return ptini_fail(ptini, what, text, error);
        }
        if (*filled == wanted) {
            snprintf(what, sizeof what, "more than the %lld counts of a team of %d",
                     (long long)wanted, ptini->team);
            return ptini_fail(ptini, what, text, error);
        }
        ptini->count[(*filled)++] = (uint32_t)value;
    }
    return MP_OK;
}

/* From "counts = {" to the bracket that closes it. */
static int read_matrix(struct ptini *ptini, char *line, struct mp_error *error) {
    if (*line != '{')
        return ptini_fail(ptini, "counts = { ... } is right", line, error);
    if (!ptini->team)
        return ptini_fail(ptini, "team_size has to stand before counts", line, error);
    int64_t filled = 0;
    bool closed = false;
    int code = read_counts(ptini, line + 1, &filled, &closed, error);
    while (!code && !closed) {
        code = next_line(ptini, &line, error);
        if (!code && !line)
            code = mp_fail(error, MP_EFORMAT,
                           "%s: cut off inside the counts of collective %lld: %lld of %lld",
                           mp_input_path(ptini->input), (long long)ptini->collectives,
                           (long long)filled, (long long)ptini->team * ptini->team);
        if (!code)
            code = read_counts(ptini, line, &filled, &closed, error);
    }
    if (!code && filled != (int64_t)ptini->team * ptini->team) {
        char what[96];
        snprintf(what, sizeof what, "%lld counts; the square of the team's %d is right",
                 (long long)filled, ptini->team);
        code = ptini_fail(ptini, what, "}", error);
    }
    return code;
}

static int read_team(struct ptini *ptini, const char *text, struct mp_error *error) {
    int64_t team;
    const char *wrong = mp_format_whole(text, TEAM_LIMIT, &team);
    if (wrong || team == 0)
        return ptini_fail(ptini, "a team_size from 1 to 8192 is right", text, error);
    if (ptini->team && team != ptini->team)
        return ptini_fail(ptini, "another team_size than the first collective's", text, error);
    if (!ptini->count)
        ptini->count = calloc((size_t)(team * team), sizeof *ptini->count);
    if (!ptini->count)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for a matrix", mp_input_path(ptini->input));
    ptini->team = (int)team;
    return MP_OK;
}

/* A line "key = value" inside a collective; *counts if it was the matrix. */
static int read_key(struct ptini *ptini, char *line, bool *counts, struct mp_error *error) {
    char *value = strchr(line, '=');
    if (!value)
        return ptini_fail(ptini, "'key = value' is right", line, error);
    size_t length = (size_t)(value - line);
    while (length && (line[length - 1] == ' ' || line[length - 1] == '\t'))
        length--;
    line[length] = '\0';
    value += 1 + strspn(value + 1, " \t");
    *counts = !strcmp(line, "counts");
    if (*counts)
        return read_matrix(ptini, value, error);
    if (!strcmp(line, "type") && strcmp(value, "ALLTOALLV") != 0)
        return ptini_fail(ptini, "ALLTOALLV is the only collective with a matrix", value, error);
    if (!strcmp(line, "team_size"))
        return read_team(ptini, value, error);
    if (!strcmp(line, "datatype") && !ptini->datatype[0])
        snprintf(ptini->datatype, sizeof ptini->datatype, "%s", value);
    else if (!strcmp(line, "datatype") && strncmp(value, ptini->datatype, 31) != 0)
        return ptini_fail(ptini, "another datatype than the first collective's", value, error);
    return MP_OK;
}

/* The next matrix into ptini->count. */
static int read_collective(struct ptini *ptini, bool *end, struct mp_error *error) {
    bool counts = false;
    *end = false;
    for (;;) {
        char *line;
        int code = next_line(ptini, &line, error);
        if (code)
            return code;
        bool section = !line || *line == '[';
        if (section && ptini->inside && !counts)
            return mp_fail(error, MP_EFORMAT, "%s:%lld: collective %lld has no counts",
                           mp_input_path(ptini->input),
                           (long long)mp_input_line_number(ptini->input),
                           (long long)ptini->collectives);
        if (!line) {
            ptini->inside = false;
            *end = !counts;
            return MP_OK;
        }
        if (section) {
            bool collective = !strcmp(line, "[collective]");
            if (!collective && strcmp(line, "[format]") != 0)
                return ptini_fail(ptini, "[format] or [collective] is right", line, error);
            ptini->inside = collective;
            if (counts)
                return MP_OK;
        } else if (ptini->inside) {
            bool found = false;
            if ((code = read_key(ptini, line, &found, error)))
                return code;
            if (found && counts)
                return ptini_fail(ptini, "counts twice in one collective", "}", error);
            counts = counts || found;
        }
    }
}

static int ptini_next(void *self, struct mp_trace_block *block, bool *end, struct mp_error *error) {
    struct ptini *ptini = self;
    int code = read_collective(ptini, end, error);
    if (code || *end)
        return code;
    block->iteration = ptini->collectives++;
    block->micro_batch = 0;
    block->layer = 0;
    memcpy(block->load.count, ptini->count,
           (size_t)ptini->team * (size_t)ptini->team * sizeof *ptini->count);
    return MP_OK;
}

/* The first matrix gives the shape; then back to the beginning. */
static int find_shape(struct ptini *ptini, struct mp_trace_info *info, struct mp_error *error) {
    bool end;
    int code = read_collective(ptini, &end, error);
    if (!code && end)
        code = mp_fail(error, MP_EFORMAT, "%s: no [collective] in it", mp_input_path(ptini->input));
    if (!code)
        code = mp_input_rewind(ptini->input, error);
    if (code)
        return code;
    ptini->inside = false;
    info->shape = (struct mp_trace_shape){
        .ranks = ptini->team, .experts = ptini->team, .layers = 1, .micro_batches = 1};
    char notes[160];
    snprintf(notes, sizeof notes,
             "a matrix per iteration; destination ranks stand for experts, counts are elements%s%s",
             ptini->datatype[0] ? " of " : "", ptini->datatype);
    return mp_format_describe(mp_input_path(ptini->input), "ptini", notes, info, error);
}

int mp_format_open_ptini(const char *path, struct mp_trace_stream **stream,
                         struct mp_error *error) {
    static const struct mp_trace_stream_operations operations = {ptini_next, ptini_destroy};
    struct ptini *ptini = calloc(1, sizeof *ptini);
    if (!ptini)
        return mp_fail(error, MP_ENOMEM, "%s: no memory to read it", path);
    struct mp_trace_info info = {0};
    int code = mp_input_open(path, &ptini->input, error);
    if (!code)
        code = find_shape(ptini, &info, error);
    if (code) {
        ptini_destroy(ptini);
        return code;
    }
    return mp_trace_stream_create(&operations, ptini, &info, stream, error);
}
