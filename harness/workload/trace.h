/* Routing traces: the loads of a training run, whoever recorded it.
 *
 * A trace is a stream of blocks.  A block is the load matrix of one layer in one micro-batch of one
 * iteration: how many routes every source rank sent to every expert.  Blocks come in ascending
 * order of (iteration, micro-batch, layer); iterations may have gaps (a recorder that looks at
 * every tenth), layers and micro-batches may not.  All blocks of a trace have the same shape.
 *
 * Everything that has loads gives or takes this stream: readers of others' formats (formats.h),
 * generators (generate.h), runs in a database, the trainer's replay, the predictor. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reference/plan/load.h"

struct mp_trace_shape {
    int ranks;         /* sources; 1 if the loads are of all ranks together */
    int experts;       /* per layer */
    int layers;        /* with experts, numbered 0 .. layers - 1 */
    int micro_batches; /* per iteration */
    int top_k;         /* experts per token; 0: not known */
};

/* Whether loads of the one shape are of the other, too; an unknown number of experts per token is
 * any. */
bool mp_trace_shape_fits(const struct mp_trace_shape *given, const struct mp_trace_shape *wanted);
/* "16 ranks, 12 layers, 64 experts, 1 micro-batch and 2 experts per token"; returns `text`. */
const char *mp_trace_shape_describe(const struct mp_trace_shape *shape, char *text, size_t size);

/* What a trace says of itself beside its loads. */
struct mp_trace_info {
    struct mp_trace_shape shape;
    char *source; /* where the loads come from, in words: file and kind, run, generator, seed; owned
                   */
    char *notes;  /* what was done to them since (folded, split, ...), "" if nothing; owned */
    bool ragged;  /* ranks and layers of a micro-batch may have different numbers of routes */
    bool routes;  /* every block's load has the experts of its tokens (reference/plan/routes.h) */
    /* An iteration is a whole run's sum: its loads are proportions and say nothing of a step's
     * tokens, nor of how loads change. */
    bool of_run;
    /* Layers without experts that the source has in front of layer 0, which a file for its model
     * has to number along; -1: it has some in other places; 0: none, or it does not say. */
    int dense_layers;
};
void mp_trace_info_destroy(struct mp_trace_info *info); /* accepts a zeroed one */

struct mp_trace_block {
    int64_t iteration; /* >= 0, as the source counts them */
    int micro_batch;
    int layer;
    struct mp_load load; /* [ranks][experts] */
};

/* A stream being read.  Kinds of sources implement the table; users call the functions below. */
struct mp_trace_stream;
struct mp_trace_stream_operations {
    /* Fills block->load (created with the shape) and the block's numbers, which are those that come
     * next in order, of iterations that count from 0, unless it says otherwise.  Returns MP_OK and
     * sets *end at the end; after an error or the end it is not called again. */
    int (*next)(void *self, struct mp_trace_block *block, bool *end, struct mp_error *error);
    void (*destroy)(void *self);
};
/* Takes over `self` and info's texts, also when it fails.  `code` is what opening the source came
 * to: all that is left to do of one that failed is to destroy it.  Errors: that; MP_ENOMEM;
 * MP_EINVAL for an impossible shape: a number below 1, top_k above experts, more than 2^26 counts
 * in a block. */
int mp_trace_stream_create(int code, const struct mp_trace_stream_operations *operations,
                           void *self, struct mp_trace_info *info, struct mp_trace_stream **stream,
                           struct mp_error *error);
void mp_trace_stream_destroy(struct mp_trace_stream *stream); /* accepts NULL */
MP_END(stream, struct mp_trace_stream *, mp_trace_stream_destroy(*it))
const struct mp_trace_info *mp_trace_stream_info(const struct mp_trace_stream *stream);

/* The next block, valid until the next call; NULL in *block at the end.  Checks what every source
 * must keep: order, no missing layer or micro-batch, the same number of routes from every rank and
 * in every layer of a micro-batch unless the trace is ragged; and where it has the experts of
 * tokens, that they make the counts, and are of the same tokens in all layers.  Errors: the
 * source's own, and MP_EFORMAT naming block, rank and numbers. */
int mp_trace_next(struct mp_trace_stream *stream, const struct mp_trace_block **block,
                  struct mp_error *error);
/* Makes it a ragged one: sources may have different numbers of tokens, and layers drop some.  A
 * file that is written from it keeps that. */
void mp_trace_allow_ragged(struct mp_trace_stream *stream);

/* ---- the native format (.mptrace) ----
 *
 * Little-endian.  "MPTRACE1"; u32 bytes of a JSON object with shape, source, notes, format version
 * and, where they are, that it is ragged, of a run, and its dense layers, the object, u32 CRC-32 of
 * it; then frames until the end of the file.  A frame: u32 "FRAM", u32 blocks, u32 raw bytes, u32
 * packed bytes, u32 CRC-32 of the packed bytes, the packed bytes (zstd) of its blocks.  A raw
 * block: i64 iteration, i32 micro-batch, i32 layer, then u32 [ranks][experts]; a frame has at most
 * 16 MiB of them, or one larger one.  The last frame has no block and zeros behind its magic: a
 * file without it was cut.
 *
 * With the experts of tokens the object says "routes" and format version 2, and behind every frame
 * follows another, "ROUT", with those of its blocks: u32 experts per token, u32 [ranks] tokens,
 * then [tokens][experts per token] choices, i16 where experts are at most 32767, otherwise i32; -1
 * less its expert where a choice is not taken.  A trace without them has the bytes it always had.
 *
 * A frame is whole or it is not there: a file that was cut, or damaged from some place on, gives
 * all frames before it and then says how many blocks were read. */

/* Errors: MP_ENOTFOUND, MP_EIO, MP_EFORMAT (not a trace, damaged header; later, from
 * mp_trace_next: damaged frame, with what was read before), MP_EVERSION, MP_ENOMEM. */
int mp_trace_open(const char *path, struct mp_trace_stream **stream, struct mp_error *error);

/* Writes a whole file (reference/base/whole_file.h).  Errors: MP_EINVAL (impossible shape, PATH is
 * a folder), MP_EIO, MP_ENOSPACE, MP_ENOMEM. */
struct mp_trace_writer;
int mp_trace_writer_create(const char *path, const struct mp_trace_info *info,
                           struct mp_trace_writer **writer, struct mp_error *error);
/* Blocks in order, as above.  MP_EINVAL for a block out of order or of another shape; after an
 * error the writer can only be finished. */
int mp_trace_write(struct mp_trace_writer *writer, const struct mp_trace_block *block,
                   struct mp_error *error);
/* Ends the file; with `commit` false, or after an error, removes it instead.  Frees the writer. */
int mp_trace_writer_finish(struct mp_trace_writer *writer, bool commit, struct mp_error *error);
