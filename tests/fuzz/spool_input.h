/* What the fuzzers of spools share: checks that are right whatever the bytes say, and spools put
 * together from the input's choices, so that a byte more or less does not tear all that follows. */
#pragma once

#include <string.h>
#include <zlib.h>

#include "profiler/record/format.h"

/* Random bytes never have a right check: fills in those of all records that are whole. */
static inline void spool_fill_in_checks(uint8_t *bytes, size_t size) {
    size_t at = 0;
    while (at + sizeof(struct spool_head) <= size) {
        struct spool_head head;
        memcpy(&head, bytes + at, sizeof head);
        size_t record = (size_t)head.size * SPOOL_UNIT;
        if (record < sizeof head || at + record > size)
            break;
        head.check =
            (uint32_t)crc32(0, bytes + at + sizeof head.check, (uInt)(record - sizeof head.check));
        memcpy(bytes + at, &head, sizeof head);
        at += record;
    }
}

/* ---- choices; behind the input's end all are zeros ---- */

struct choices {
    const uint8_t *at;
    size_t left;
};

static inline void choose_bytes(struct choices *choices, void *bytes, size_t size) {
    size_t taken = size < choices->left ? size : choices->left;
    memset(bytes, 0, size);
    if (taken)
        memcpy(bytes, choices->at, taken);
    choices->at += taken;
    choices->left -= taken;
}

static inline uint8_t choose_byte(struct choices *choices) {
    uint8_t byte;
    choose_bytes(choices, &byte, sizeof byte);
    return byte;
}

/* Mostly small, of either sign; sometimes one of the ends of 64 bits, or anything. */
static inline int64_t choose_number(struct choices *choices) {
    uint8_t how = choose_byte(choices);
    int16_t small;
    int64_t any;
    if (how < 0xF0) {
        choose_bytes(choices, &small, how < 0x80 ? 1 : 2);
        return how < 0x80 ? small & 0xFF : small;
    }
    if (how < 0xF8)
        return how % 2 ? INT64_MAX - how % 4 : INT64_MIN + how % 4;
    choose_bytes(choices, &any, sizeof any);
    return any;
}

/* Up to 255 bytes; a zero among them ends it. */
static inline const char *choose_text(struct choices *choices, char text[256]) {
    size_t length = choose_byte(choices);
    length = length < choices->left ? length : choices->left;
    choose_bytes(choices, text, length);
    text[length] = '\0';
    return text;
}

/* ---- spools ---- */

struct spool_bytes {
    _Alignas(SPOOL_UNIT) uint8_t bytes[1 << 20];
    size_t size;
};

/* Adds a record.  Returns whether it had room. */
static inline bool spool_add(struct spool_bytes *spool, const struct mp_spool_record *record) {
    const size_t size = spool_encoded_size(record);
    if (size > SPOOL_RECORD_LIMIT || spool->size + size > sizeof spool->bytes)
        return false;
    spool_encode(record, spool->bytes + spool->size);
    spool_fill_in_checks(spool->bytes + spool->size, size);
    spool->size += size;
    return true;
}

/* Begins a spool. */
static inline void spool_start(struct spool_bytes *spool, int rank, int pid, int64_t clock_ns,
                               const char *host) {
    struct mp_spool_record header = {.type = MP_SPOOL_HEADER,
                                     .as.header = {.magic = SPOOL_MAGIC,
                                                   .version = MP_SPOOL_VERSION,
                                                   .rank = rank,
                                                   .ranks = 2,
                                                   .pid = pid,
                                                   .realtime_ns = clock_ns,
                                                   .monotonic_ns = clock_ns}};
    strncpy(header.as.header.host, host, sizeof header.as.header.host - 1);
    spool->size = 0;
    spool_add(spool, &header);
}
