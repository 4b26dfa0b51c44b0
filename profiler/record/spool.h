/* Spool files: the byte format of recorded runs, and a reader.
 *
 * A spool is a sequence of records, each a multiple of 8 bytes, little-endian:
 *
 *   offset 0   u32  check    CRC-32 (zlib) of the bytes from offset 4 to the record's end
 *   offset 4   u16  type     enum mp_spool_type
 *   offset 6   u16  size     of the whole record in units of 8 bytes
 *   offset 8   ...  payload  as laid out by the type (see format.h's table), padded with zeros
 *
 * The first record is MP_SPOOL_HEADER with the magic "moeperf1" and the format version.  A reader
 * stops at the first record that is cut off or whose check is wrong, reports how many bytes it left
 * unread, and everything before is good: a kill at any byte loses at most the last record. */
#ifndef MOEPERF_PROFILER_RECORD_SPOOL_H
#define MOEPERF_PROFILER_RECORD_SPOOL_H

#include <stddef.h>

#include "profiler/record/record.h"

enum { MP_SPOOL_VERSION = 1 };

enum mp_spool_type {
    MP_SPOOL_HEADER = 1,
    MP_SPOOL_STREAM, /* stream number -> name */
    MP_SPOOL_SPAN,
    MP_SPOOL_LOAD,
    MP_SPOOL_NUMBER,
    MP_SPOOL_TEXT,
    MP_SPOOL_CLOCK,
    MP_SPOOL_END
};

struct mp_spool_header {
    int version, rank, ranks, node, pid;
    int64_t realtime_ns, monotonic_ns; /* both clocks at one moment */
    char host[64];
};

/* One decoded record; pointers are valid until the next read. */
struct mp_spool_record {
    enum mp_spool_type type;
    union {
        struct {
            int stream;
            const char *name;
        } stream;
        struct mp_span span;
        struct {
            int64_t iteration;
            int layer, experts;
            const uint32_t *routes;  /* [experts] */
            const uint32_t *dropped; /* [experts] or NULL */
        } load;
        struct {
            int64_t iteration;
            int layer;
            const char *name;
            double value;
        } number;
        struct {
            const char *name, *value;
        } text;
        struct {
            int64_t at_ns, offset_ns, error_ns;
        } clock;
        struct {
            int status;
            const char *reason;
        } end;
    } as;
};

struct mp_spool_reader;

/* Errors: MP_ENOTFOUND, MP_EIO, MP_EFORMAT (not a spool), MP_EVERSION (both versions named). */
int mp_spool_open(const char *path, struct mp_spool_reader **reader, struct mp_error *error);
void mp_spool_close(struct mp_spool_reader *reader); /* accepts NULL */
const struct mp_spool_header *mp_spool_header(const struct mp_spool_reader *reader);

/* 1: `record` is filled; 0: the end (see mp_spool_unread); negative: an I/O error. Records of a
 * type this build does not know are skipped.  What a record says is not judged: phase, layer,
 * iteration may be any number, but `stream` is within 0 .. 63, arrays are as long as they say, and
 * strings end. */
int mp_spool_next(struct mp_spool_reader *reader, struct mp_spool_record *record,
                  struct mp_error *error);

/* After the end: bytes that were left because a record was cut off or damaged. */
size_t mp_spool_unread(const struct mp_spool_reader *reader);

#endif
