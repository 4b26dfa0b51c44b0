/* The bytes of a spool, shared by its writer (record.c, spool_file.c) and its reader (spool.c).
 *
 * Every record starts with the 8 bytes of `struct spool_head`; the payload follows at offset 8. All
 * numbers are little-endian, offsets below count from the payload's start, strings end in a zero
 * byte, and zeros pad the record to a multiple of 8 bytes.
 *
 *   HEADER   0 char magic[8] "moeperf1"   8 u32 version      12 i32 rank        16 i32 ranks
 *           20 i32 node                  24 i32 pid          28 u32 zero
 *           32 i64 realtime_ns           40 i64 monotonic_ns 48 char host[64]
 *   STREAM   0 i32 stream (0..63)         4 u32 zero          8 string name
 *   SPAN     0 i64 start_ns               8 i64 end_ns       16 i64 wait_ns     24 i64 cpu_ns
 *           32 i64 tokens                40 i64 bytes        48 i64 flops       56 i32 iteration
 *           60 i16 layer                 62 u8 phase
 *           63 u8: bits 0-1 direction, bits 2-7 stream
 *   LOAD     0 i64 iteration              8 i32 layer        12 u32 experts     16 u32 has_dropped
 *           20 u32 zero                  24 u32 routes[experts], then, if has_dropped is 1,
 *                                           u32 dropped[experts]
 *   NUMBER   0 i64 iteration              8 f64 value        16 i32 layer       20 u32 zero
 *           24 string name
 *   TEXT     0 string name, then at once string value
 *   CLOCK    0 i64 at_ns                  8 i64 offset_ns    16 i64 error_ns
 *   END      0 i32 status                 4 u32 zero          8 string reason
 *   NAME     0 u32 id (from 1)            4 u32 kind          8 u32 domain      12 u32 number
 *           16 string text
 *   RANGE    0 i64 start_ns               8 i64 end_ns       16 u64 value       24 u32 name
 *           28 u32 domain                32 u32 thread       36 u32 end_thread  40 u32 category
 *           44 u32 color                 48 u8 kind          49 u8 value_type   50 u16 level
 *           52 u16 payloads              54 u16 traits       56 payloads, one after the other:
 *                                           u64 schema, u32 size, u32 zero, u8 bytes[size], padded
 *   SCHEMA   0 u64 id                     8 u32 domain       12 u32 type        16 u64 bytes
 *           24 u32 entries               28 u32 pack         32 string name, then for each entry
 *                                           u64 flags, u64 type, u64 count, u64 offset, string name
 *   CHOICES  0 i64 iteration              8 i64 first        16 i32 layer       20 u32 top_k
 *           24 u32 count                 28 u32 width        32 i16 or i32 [count], as width says
 *   ACTIVITY    struct mp_activity, COLLECTIVE struct mp_collective, TIMER struct mp_timer: as they
 *           stand in activity.h
 *
 * ACTIVITY, COLLECTIVE and TIMER (types 16 to 18) came later, too, in files of their own beside a
 * rank's (profiler/device/companion.h).
 *
 * NAME, RANGE and SCHEMA came later (profiler/nvtx): version 1 has them, and its older readers,
 * which skip types that they do not know, read all else of such a file.  A NAME stands before what
 * refers to its id; id 0 is no name, and as a domain the default one.
 *
 * CHOICES came later, too.
 *
 * In every version the first record keeps this head, and the magic and the version keep their
 * places, so that a build can name the version of a file that it cannot read.  A payload may be
 * longer than its type's layout here; a reader ignores the rest.  A stream's STREAM record stands
 * before everything that its thread recorded; records of different streams are not ordered. */
#ifndef MOEPERF_PROFILER_RECORD_FORMAT_H
#define MOEPERF_PROFILER_RECORD_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "profiler/record/check.h"
#include "profiler/record/spool.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "spool records are written as they lie in memory, which is right on little-endian hosts only"
#endif

#define SPOOL_MAGIC "moeperf1"

enum {
    SPOOL_UNIT = 8,                               /* records are multiples of this */
    SPOOL_RECORD_LIMIT = UINT16_MAX * SPOOL_UNIT, /* largest record, bytes */
    SPOOL_NAME_LIMIT = 47,                        /* longest name, bytes without the zero */
    SPOOL_TEXT_LIMIT = 60000,                     /* longest text, bytes without the zero */
    SPOOL_STREAMS = 64                            /* a span has 6 bits for its stream */
};

struct spool_head {
    uint32_t check;
    uint16_t type;
    uint16_t size; /* of the whole record, in SPOOL_UNIT */
};

struct spool_header_payload {
    char magic[8];
    uint32_t version;
    int32_t rank, ranks, node, pid;
    uint32_t zero;
    int64_t realtime_ns, monotonic_ns;
    char host[64];
};

struct spool_stream_payload {
    int32_t stream;
    uint32_t zero;
};

struct spool_load_payload {
    int64_t iteration;
    int32_t layer;
    uint32_t experts;
    uint32_t has_dropped;
    uint32_t zero;
};

struct spool_choices_payload {
    int64_t iteration, first;
    int32_t layer;
    uint32_t top_k, count, width;
};

struct spool_number_payload {
    int64_t iteration;
    double value;
    int32_t layer;
    uint32_t zero;
};

struct spool_clock_payload {
    int64_t at_ns, offset_ns, error_ns;
};

struct spool_end_payload {
    int32_t status;
    uint32_t zero;
};

struct spool_name_payload {
    uint32_t id, kind, domain, number;
};

/* In front of each payload of a range. */
struct spool_blob_head {
    uint64_t schema;
    uint32_t size, zero;
};

struct spool_schema_payload {
    uint64_t id;
    uint32_t domain, type;
    uint64_t bytes;
    uint32_t entries, pack;
};

/* Most experts of a LOAD record, with its dropped routes. */
enum {
    SPOOL_EXPERTS = (SPOOL_RECORD_LIMIT - (int)sizeof(struct spool_head) -
                     (int)sizeof(struct spool_load_payload)) /
                    (2 * (int)sizeof(uint32_t))
};

_Static_assert(sizeof(struct spool_head) == 8, "head");
_Static_assert(sizeof(struct spool_header_payload) == 112, "HEADER");
_Static_assert(offsetof(struct spool_header_payload, version) == 8, "HEADER version");
_Static_assert(sizeof(struct spool_stream_payload) == 8, "STREAM");
_Static_assert(offsetof(struct mp_span, iteration) == 56, "SPAN iteration");
_Static_assert(offsetof(struct mp_span, phase) == 62, "SPAN phase");
_Static_assert(sizeof(struct spool_load_payload) == 24, "LOAD");
_Static_assert(sizeof(struct spool_choices_payload) == 32, "CHOICES");
_Static_assert(sizeof(struct spool_number_payload) == 24, "NUMBER");
_Static_assert(sizeof(struct spool_clock_payload) == 24, "CLOCK");
_Static_assert(sizeof(struct spool_end_payload) == 8, "END");
_Static_assert(sizeof(struct spool_name_payload) == 16, "NAME");
_Static_assert(sizeof(struct mp_range) == 56, "RANGE");
_Static_assert(sizeof(struct spool_blob_head) == 16, "RANGE payload");
_Static_assert(sizeof(struct spool_schema_payload) == 32, "SCHEMA");

/* Size of a record with so many bytes of payload. */
static inline size_t spool_record_size(size_t payload) {
    return (sizeof(struct spool_head) + payload + SPOOL_UNIT - 1) / SPOOL_UNIT * SPOOL_UNIT;
}

/* Writes a record's head and zeros its last unit; returns where its payload goes. */
static inline uint8_t *spool_begin(void *record, enum mp_spool_type type, size_t payload) {
    const size_t size = spool_record_size(payload);
    memset((uint8_t *)record + size - SPOOL_UNIT, 0, SPOOL_UNIT);
    *(struct spool_head *)record =
        (struct spool_head){.type = (uint16_t)type, .size = (uint16_t)(size / SPOOL_UNIT)};
    return (uint8_t *)record + sizeof(struct spool_head);
}

/* Writes a whole record that ends in a string, whose zero is the last unit's; returns its size. */
static inline size_t spool_put(void *record, enum mp_spool_type type, const void *payload,
                               size_t size, const char *text, size_t length) {
    uint8_t *at = spool_begin(record, type, size + length + 1);
    memcpy(at, payload, size);
    memcpy(at + size, text, length);
    return spool_record_size(size + length + 1);
}

/* The check of a complete record whose head already holds its size. */
static inline uint32_t spool_check(const void *record) {
    const struct spool_head *head = record;
    const uint8_t *covered = (const uint8_t *)record + sizeof head->check;
    return spool_crc32(covered, head->size * SPOOL_UNIT - sizeof head->check);
}

#endif
