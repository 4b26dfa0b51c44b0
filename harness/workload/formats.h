/* Formats of routing loads, others' and our own, read as a trace stream.
 *
 * Every reader tells what is wrong with a file by path and line (text) or record (JSON path, block
 * of an array), and reads in memory bounded by one iteration; JSON, which has to be whole to be
 * understood, in files of at most 64 MiB.  Text and arrays may be packed with zstd or gzip, known
 * by their first bytes.  Numbers are whole and not negative; 8.0 is whole. */
#pragma once

#include "harness/workload/trace.h"

struct mp_format;
/* Opens a file or folder of the format; `experts` is 0 where it says itself how many there are. */
typedef int mp_format_opener(const struct mp_format *format, const char *path, int experts,
                             struct mp_trace_stream **stream, struct mp_error *error);
struct mp_format {
    const char *name;
    const char *description; /* one line for a list of formats */
    mp_format_opener *open;
    int variant;        /* the opener's own */
    bool takes_experts; /* it does not say how many there are */
};
/* Ends with a NULL name. */
extern const struct mp_format mp_formats[];

/* Opens `path` as `kind`, a name of the table.  `experts` of every layer are needed where the
 * format takes_experts, 0 elsewhere.  What a format lacks is in the info's notes.  Errors:
 * MP_EINVAL (unknown kind, of which the text names the nearest; experts), MP_ENOTFOUND, MP_EIO,
 * MP_EFORMAT (later also from mp_trace_next), MP_ELIMIT (larger than the reader's limits),
 * MP_ENOMEM. */
int mp_format_open(const char *kind, const char *path, int experts, struct mp_trace_stream **stream,
                   struct mp_error *error);

/* The format that the name's ending suggests (.csv, .json, .jsonl, .npy, each also with
 * .zst or .gz; .mptrace), or what lies in a folder, a name of the table; NULL if none.  Of the JSON
 * formats it suggests sglang. */
const char *mp_format_guess(const char *path);
