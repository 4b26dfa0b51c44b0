/* The readers behind formats.h, one file each, and what they share. */
#pragma once

#include "harness/workload/formats.h"

/* CSV with a header; columns in any order, unknown ones refused; the rows of an iteration stand
 * together, in any order, and iterations ascend.  Long: iteration, micro_batch (or 0), layer, rank,
 * expert, count.  Wide: iteration, micro_batch (or 0), layer, rank, e0, e1, ...  `path` is a file
 * or a folder of them, *.csv, one for every rank, whose rows of an iteration are put together.
 *
 * Of tokens: layer, token and k0, k1, ..., a token's experts in the order of its choices, empty
 * where one is not taken; iteration, micro_batch and rank (0 without them).  Rows of a layer and
 * rank number tokens from 0 on, and token 5 is the same one in all layers.  The trace has the
 * experts of tokens. */
enum mp_csv_layout { MP_CSV_BY_HEADER, MP_CSV_LONG, MP_CSV_WIDE, MP_CSV_TOKENS }; /* variants */
mp_format_opener mp_format_open_csv;

/* {"logical_count": [layer][expert]}: SGLang's recorder and EPLB's weights.  A layer of zeros is
 * dense; it is left out and the others are numbered from 0.  Counts are of the recorder's whole
 * run. */
mp_format_opener mp_format_open_sglang;

/* vLLM's EPLB dump: the latest loads of every snapshot, slots added up by logical expert.  The
 * windows are not used: those of successive snapshots overlap. */
mp_format_opener mp_format_open_vllm;

/* NumPy arrays of little-endian uint32, int32 or int64 in C order.  The axes are the last ones of
 * [iteration][layer][rank][expert]; those not there have length 1. */
mp_format_opener mp_format_open_npy;

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
 * With variant 1 the trace has the experts of tokens, which are the same ones in all lines of a
 * step, rank and micro-batch then, each with different experts; otherwise nothing is asked of them.
 * A line has at most 4 MiB. */
mp_format_opener mp_format_open_megatron;

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
