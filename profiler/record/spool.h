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

#include "profiler/record/activity.h"
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
    MP_SPOOL_END,
    MP_SPOOL_NAME,          /* of a string, a domain, a category, a thread */
    MP_SPOOL_RANGE,         /* of an annotated program (profiler/nvtx), as it was */
    MP_SPOOL_SCHEMA,        /* what the bytes of a range's payload are */
    MP_SPOOL_CHOICES,       /* experts of tokens */
    MP_SPOOL_ACTIVITY = 16, /* of a GPU, or of the host on its behalf (profiler/cupti) */
    MP_SPOOL_COLLECTIVE,    /* of NCCL (profiler/nccl) */
    MP_SPOOL_TIMER          /* the GPU's timer beside the span clock */
};

enum mp_name_kind { MP_NAME_STRING, MP_NAME_DOMAIN, MP_NAME_CATEGORY, MP_NAME_THREAD };

enum mp_range_kind { MP_RANGE_PUSHED, MP_RANGE_STARTED, MP_RANGE_MARK };

/* What an importer says of ranges that no program made (harness/recordings); bits. */
enum mp_range_trait {
    MP_RANGE_ECHO = 1, /* what the work of another range, with this name, became: its time there;
                          `value` is where that one starts, in ns */
    MP_RANGE_BACKWARD = 2, /* of the backward pass, whatever a rule says */
    MP_RANGE_DEVICE = 4 /* an echo on a GPU, `thread` is a stream: it counts in that one's place */
};

/* What `value` of a range holds; the numbers are NVTX's payload types. */
enum mp_value_type {
    MP_VALUE_NONE,
    MP_VALUE_U64,
    MP_VALUE_I64,
    MP_VALUE_DOUBLE,
    MP_VALUE_U32,
    MP_VALUE_I32,
    MP_VALUE_FLOAT
};

struct mp_range {
    int64_t start_ns, end_ns;    /* mp_clock_ns; end 0: still open when its process ended */
    uint64_t value;              /* bits of what value_type says, from the lowest */
    uint32_t name, domain;       /* ids of NAME records, 0: none, the default domain */
    uint32_t thread, end_thread; /* the system's ids */
    uint32_t category, color;    /* 0: none; color is ARGB */
    uint8_t kind;                /* enum mp_range_kind */
    uint8_t value_type;          /* enum mp_value_type */
    uint16_t level;              /* pushed: ranges of its thread and domain around it */
    uint16_t payloads;           /* how many follow */
    uint16_t traits;             /* of enum mp_range_trait */
};

/* One payload of a range; `bytes` are not aligned. */
struct mp_range_payload {
    uint64_t schema;
    const uint8_t *bytes;
    size_t size;
};

/* A SCHEMA's type for an enumeration: entries are its values, with the value in `count`. */
enum { MP_SCHEMA_ENUM = 1000 };

/* One field of a schema. */
struct mp_schema_entry {
    uint64_t flags, type, count, offset; /* as in nvtxPayloadSchemaEntry_t */
    const char *name;
};

struct mp_spool_header {
    char magic[8];
    int32_t version, rank, ranks, node, pid;
    uint32_t zero;
    int64_t realtime_ns, monotonic_ns; /* both clocks at one moment */
    char host[64];
};

/* One record in memory.  Each begins as its payload does (format.h); pointers stand for what lies
 * behind that, and are valid until the next read. */
struct mp_spool_record {
    enum mp_spool_type type;
    union {
        struct mp_spool_header header; /* of writers only: a reader has its own */
        struct {
            int32_t stream;
            uint32_t zero;
            const char *name;
        } stream;
        struct mp_span span;
        struct {
            int64_t iteration;
            int32_t layer, experts;
            uint32_t has_dropped, zero;
            const uint32_t *routes;  /* [experts] */
            const uint32_t *dropped; /* [experts] or NULL */
        } load;
        struct {
            int64_t iteration;
            int64_t first; /* of a rank's choices in this layer, [tokens][top_k] */
            int32_t layer, top_k;
            int32_t count, width;  /* how many follow, of how many bytes: 2 or 4 */
            const uint8_t *expert; /* -1 less its expert where a choice is not taken */
        } choices;
        struct {
            int64_t iteration;
            double value;
            int32_t layer;
            uint32_t zero;
            const char *name;
        } number;
        struct {
            const char *name, *value;
        } text;
        struct {
            int64_t at_ns, offset_ns, error_ns;
        } clock;
        struct {
            int32_t status;
            uint32_t zero;
            const char *reason;
        } end;
        struct {
            uint32_t id, kind, domain, number; /* kind: enum mp_name_kind; number: of the category
                                                  or the thread that is named */
            const char *text;                  /* any bytes but zero */
        } name;
        struct {
            struct mp_range is;
            const uint8_t *payload; /* for mp_range_payload */
            size_t payload_bytes;
        } range;
        struct {
            uint64_t id;
            uint32_t domain, type;
            uint64_t bytes; /* of one payload; 0: not known */
            uint32_t entries;
            uint32_t pack; /* fields are aligned to at most so many bytes; 0: naturally */
            const char *name;
            const uint8_t *entry; /* for mp_schema_entry */
            size_t entry_bytes;
        } schema;
        struct mp_activity activity;
        struct mp_collective collective;
        struct mp_timer timer;
    } as;
};

struct mp_spool_reader;

/* Errors: MP_ENOTFOUND, MP_EIO, MP_EFORMAT (not a spool), MP_EVERSION (both versions named). */
int mp_spool_open(const char *path, struct mp_spool_reader **reader, struct mp_error *error);
void mp_spool_close(struct mp_spool_reader *reader); /* accepts NULL */
MP_END(spool_reader, struct mp_spool_reader *, mp_spool_close(*it))
const struct mp_spool_header *mp_spool_header(const struct mp_spool_reader *reader);

/* 1: `record` is filled; 0: the end (see mp_spool_unread); negative: an I/O error. Records of a
 * type this build does not know are skipped.  What a record says is not judged: phase, layer,
 * iteration may be any number, but `stream` is within 0 .. 63, arrays are as long as they say, and
 * strings end. */
int mp_spool_next(struct mp_spool_reader *reader, struct mp_spool_record *record,
                  struct mp_error *error);

/* The bytes of the record that was read last, whole: for passing it on as it is. */
const void *mp_spool_bytes(const struct mp_spool_reader *reader, size_t *size);

/* Takes the next payload of a range off *at and *left, which start as the record's payload and
 * payload_bytes; and the next entry of a schema likewise.  false: there is no further whole one. */
bool mp_range_next_payload(const uint8_t **at, size_t *left, struct mp_range_payload *payload);
bool mp_schema_next_entry(const uint8_t **at, size_t *left, struct mp_schema_entry *entry);
/* Puts an entry at *at, which goes behind it, if the *left bytes there have room. */
bool mp_schema_put_entry(uint8_t **at, size_t *left, const struct mp_schema_entry *entry);

/* A digest of the whole records that were read: other for another recording, and for one more
 * record of the same (by their checks and sizes, in 64 bits). */
uint64_t mp_spool_digest(const struct mp_spool_reader *reader);

/* After the end: bytes that were left because a record was cut off or damaged. */
size_t mp_spool_unread(const struct mp_spool_reader *reader);

#endif
