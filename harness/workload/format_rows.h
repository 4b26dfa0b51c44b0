/* Rows: what readers of text share whose lines stand in any order within their iteration, in one
 * file or in one for every rank.
 *
 * A reader tells what a line says: where it belongs, and the counts or the experts of tokens that
 * are there.  Here the lines of an iteration become its loads, and what is missing, twice or out of
 * order is refused.  The first iteration is read twice: it gives the shape.  Iterations ascend in
 * every file.  Memory is that of an iteration's loads, or tokens, and of a line of every file. */
#pragma once

#include "harness/workload/input.h"
#include "harness/workload/trace.h"
#include "reference/base/arena.h"

enum { MP_ROW_NUMBER_LIMIT = 65535 }; /* of a key, an expert, experts per token */

enum mp_row_key {
    MP_ROW_MICRO_BATCH,
    MP_ROW_LAYER,
    MP_ROW_RANK,
    MP_ROW_EXPERT, /* 0 where a row is of all experts */
    MP_ROW_KEYS
};
extern const char *const mp_row_key_names[MP_ROW_KEYS]; /* "micro_batch" */

/* A file, and what its line says that was read last. */
struct mp_row_source {
    struct mp_input *input; /* owned */
    void *own;              /* the reader's, in the rows' memory; NULL at first */
    bool ended;
    int64_t iteration;
    int key[MP_ROW_KEYS];
    uint32_t *count; /* [experts], or the one of the key; in the rows' memory; NULL: choices are */
    int32_t *choice; /* [tokens][top_k]; -1: not taken; owned, mp_row_choices makes room */
    size_t room;     /* of choices */
    int tokens;
    int first_token; /* number of the first of them, where rows add to those that are there */
};

struct mp_token_cell; /* tokens of a rank in a block */

struct mp_rows {
    const struct mp_rows_reader *reader;
    const char *path, *kind; /* of the info's source; the reader's first file may say the kind */
    struct mp_arena memory;
    struct mp_row_source *source;
    int sources;

    /* What the reader says before the first line of all; experts and top_k of the shape, too, where
     * they are not to be found: experts 0 is refused then, with the largest. */
    bool each_expert;   /* a row is of one expert */
    bool in_turn;       /* the n-th row of a layer and rank is of micro-batch n */
    bool adds_tokens;   /* a place has many rows, with tokens numbered from 0 on */
    bool wants_experts; /* rows don't say how many there are */
    bool keeps_tokens;  /* blocks have the experts of tokens */
    int largest;        /* expert so far, where rows have choices */

    struct mp_trace_shape shape;
    int64_t iteration;          /* the current one */
    int64_t places;             /* [micro-batch][layer][rank] and, if each_expert, [expert] */
    uint32_t *count;            /* [micro-batch][layer][rank][expert]; NULL: tokens are kept */
    unsigned char *seen;        /* [places]; NULL: a place may have any number of rows */
    int *turn;                  /* [layer][rank] rows so far, if in_turn */
    struct mp_token_cell *cell; /* [micro-batch][layer][rank] */
    int blocks, next; /* of the iteration; while the shape is looked for, blocks are rows */
};

struct mp_rows_reader {
    const char *files; /* a folder's files that count, as fnmatch has it */
    /* A file's first line; NULL: it is like the others. */
    int (*head)(struct mp_rows *rows, struct mp_row_source *source, char *line,
                struct mp_error *error);
    /* What a line says that is not empty, into the source. */
    int (*line)(struct mp_rows *rows, struct mp_row_source *source, char *line,
                struct mp_error *error);
    /* NULL: layers have the numbers that rows give.  Counts a row's layer in shape.layers if it is
     * a new one; and, with all of them known, finds its number, or fails. */
    int (*survey)(struct mp_rows *rows, const struct mp_row_source *source, struct mp_error *error);
    int (*locate)(struct mp_rows *rows, struct mp_row_source *source, struct mp_error *error);
    /* NULL: "layer 3", and nothing to note.  `size` bytes for a layer's name, and for info.notes.
     */
    void (*name_layer)(const struct mp_rows *rows, int layer, char *text, size_t size);
    void (*note)(const struct mp_rows *rows, char *text, size_t size);
    void (*destroy)(struct mp_rows *rows); /* NULL: all memory is the rows' */
};

/* Opens a file, or all of a folder that count, as a stream.  Takes over `rows`, the beginning of a
 * block of calloc with `reader` and what it says filled in, also when it fails; NULL is MP_ENOMEM.
 * `path` and the kind are borrowed during the call.  Errors: those of mp_input_open, of the reader,
 * MP_EFORMAT, MP_EINVAL (experts), MP_ELIMIT, MP_ENOMEM. */
int mp_rows_open(struct mp_rows *rows, const char *path, const char *kind,
                 struct mp_trace_stream **stream, struct mp_error *error);

/* MP_EFORMAT with file and line in front. */
__attribute__((format(printf, 3, 4))) int mp_row_fail(const struct mp_row_source *source,
                                                      struct mp_error *error, const char *what,
                                                      ...);

/* Room for so many choices in the source; those that are there are lost.  MP_ENOMEM. */
int mp_row_choices(struct mp_row_source *source, size_t count, struct mp_error *error);
