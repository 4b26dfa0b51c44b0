/* The readers behind formats.h, one file each, and what they share. */
#ifndef MOEPERF_HARNESS_WORKLOAD_FORMAT_READERS_H
#define MOEPERF_HARNESS_WORKLOAD_FORMAT_READERS_H

#include "harness/workload/trace.h"

/* CSV with a header; columns in any order, unknown ones refused; the rows of an iteration stand
 * together, in any order, and iterations ascend.  Long: iteration, micro_batch (or 0), layer, rank,
 * expert, count.  Wide: iteration, micro_batch (or 0), layer, rank, e0, e1, ...  `path` is a file
 * or a folder of them, *.csv, one for every rank, whose rows of an iteration are put together. */
enum mp_csv_layout { MP_CSV_BY_HEADER, MP_CSV_LONG, MP_CSV_WIDE };
int mp_format_open_csv(const char *path, enum mp_csv_layout layout, struct mp_trace_stream **stream,
                       struct mp_error *error);

/* CSV with a header: columns layer, token and k0, k1, ..., a token's experts in the order of its
 * choices, empty where one is not taken; iteration and rank (0 without them).  The rows of an
 * iteration stand together, those of a layer and rank number tokens from 0 on, and token 5 is the
 * same one in all layers.  `experts` is how many there are; 0 is refused (MP_EINVAL).  The trace
 * has the experts of tokens.  Memory is that of an iteration. */
int mp_format_open_tokens(const char *path, int experts, struct mp_trace_stream **stream,
                          struct mp_error *error);

/* {"logical_count": [layer][expert]}: SGLang's recorder and EPLB's weights.  A layer of zeros is
 * dense; it is left out and the others are numbered from 0.  Counts are of the recorder's whole
 * run. */
int mp_format_open_sglang(const char *path, struct mp_trace_stream **stream,
                          struct mp_error *error);

/* vLLM's EPLB dump: the latest loads of every snapshot, slots added up by logical expert.  The
 * windows are not used: those of successive snapshots overlap. */
int mp_format_open_vllm(const char *path, struct mp_trace_stream **stream, struct mp_error *error);

/* NumPy arrays of little-endian uint32, int32 or int64 in C order.  The axes are the last ones of
 * [iteration][layer][rank][expert]; those not there have length 1. */
int mp_format_open_npy(const char *path, struct mp_trace_stream **stream, struct mp_error *error);

/* Megatron-LM's router traces: lines {"step", "stage", "block", "layer", "rank", "num_tokens",
 * "topk", "top_indices"}, read as iteration, rank, top_k and routes.  `path` is a file of such
 * lines or a folder of files router_trace_rank*.jsonl, one for every rank as Megatron-LM writes
 * them; in each file steps ascend, and lines of one step come in any order.
 *
 *   layers         those of the first step by (block, mtp_idx, layer), decoder before mtp
 *   micro-batches  the n-th line of a (step, layer, rank) is of micro-batch n: a router runs once
 *                  in each (and again where activations are recomputed, which nothing tells apart)
 *   stage          one for the whole trace ("pre_dispatch"); those of another are refused, for they
 *                  would count twice
 *   top_indices    a list of every token's experts, or all of them in one list
 *
 * Lines do not say how many experts there are: `experts` does; 0 is refused (MP_EINVAL) with the
 * largest index of the first step.  With keeps_tokens the trace has the experts of tokens, which
 * are the same ones in all lines of a step, rank and micro-batch then, each with different experts;
 * otherwise nothing is asked of them.  A line has at most 4 MiB; memory is that of a step's loads
 * and a line of every file. */
int mp_format_open_megatron(const char *path, int experts, bool keeps_tokens,
                            struct mp_trace_stream **stream, struct mp_error *error);

/* Tokens of a source in a block, as a reader collects them. */
struct mp_token_cell {
    int32_t *expert; /* [room][top_k], owned */
    int32_t tokens, room;
};
/* More of them, [tokens][top_k].  MP_ENOMEM naming `path`. */
int mp_token_cell_add(struct mp_token_cell *cell, int top_k, int tokens, const int32_t expert[],
                      const char *path, struct mp_error *error);
void mp_token_cells_destroy(struct mp_token_cell cell[], int64_t count); /* accepts NULL */
/* What the cells of a load's ranks hold becomes its routes and, if it is zero, its counts.
 * MP_EINVAL, MP_ENOMEM. */
int mp_token_cells_give(const struct mp_token_cell cell[], int top_k, struct mp_load *load,
                        struct mp_error *error);

/* Checks that every number of the shape is 1 .. 65536 and its loads are at most 2^28 numbers: an
 * iteration is held in memory.  MP_ELIMIT. */
int mp_format_check_shape(const char *path, const struct mp_trace_shape *shape,
                          struct mp_error *error);

/* Sets info->source to "<path> (<kind>)" and info->notes.  MP_ENOMEM. */
int mp_format_describe(const char *path, const char *kind, const char *notes,
                       struct mp_trace_info *info, struct mp_error *error);

/* A number of a text: NULL and *value if all of `text` is a whole number of 0 .. most (spaces
 * around it, quotes, and ".0" are accepted), else what is wrong: "is negative", ... */
const char *mp_format_whole(const char *text, int64_t most, int64_t *value);

#endif
