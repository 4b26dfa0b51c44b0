/* The bytes of a spool, shared by its writers and its reader; layout.c has them as a table.
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
#pragma once

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

/* In front of each payload of a range. */
struct spool_blob_head {
    uint64_t schema;
    uint32_t size, zero;
};

enum {
    SPOOL_LOAD_FIXED = 24,
    SPOOL_CHOICES_FIXED = 32,
    /* Most experts of a LOAD record, with its dropped routes. */
    SPOOL_EXPERTS = (SPOOL_RECORD_LIMIT - (int)sizeof(struct spool_head) - SPOOL_LOAD_FIXED) /
                    (2 * (int)sizeof(uint32_t))
};

_Static_assert(sizeof(struct spool_head) == 8, "head");
_Static_assert(sizeof(struct spool_blob_head) == 16, "RANGE payload");

/* layout.c.  Bytes of a text to keep under a limit, without cutting a UTF-8 character in two. */
size_t spool_cut(const char *text, size_t limit);

/* Writes a record without its check, texts cut at their limits, to memory that is aligned like one;
 * an array whose pointer is NULL is the caller's to fill in.  Both return its size, which has to be
 * at most SPOOL_RECORD_LIMIT. */
size_t spool_encoded_size(const struct mp_spool_record *record);
size_t spool_encode(const struct mp_spool_record *record, void *to);

/* Fills in the record whose type is set from its payload, which it borrows; false: that can't be.
 * spool_knows: whether this build has the type. */
bool spool_knows(unsigned type);
bool spool_decode(const uint8_t *payload, size_t size, struct mp_spool_record *record);

/* The check of a complete record whose head already holds its size. */
static inline uint32_t spool_check(const void *record) {
    const struct spool_head *head = record;
    const uint8_t *covered = (const uint8_t *)record + sizeof head->check;
    return spool_crc32(covered, head->size * SPOOL_UNIT - sizeof head->check);
}
