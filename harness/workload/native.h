/* Numbers of the native format that its reader and its writer share; trace.h describes it. */
#pragma once

#include <endian.h>
#include <stddef.h>
#include <string.h>

#include "harness/workload/trace.h"

enum {
    NATIVE_VERSION = 1,
    NATIVE_VERSION_WITH_ROUTES = 2,
    NATIVE_MAGIC_BYTES = 8,
    NATIVE_HEADER_LIMIT = 1 << 20, /* bytes of the JSON object */
    NATIVE_FRAME_BYTES = 1 << 18,  /* what a writer gathers, raw: a damaged place loses that much */
    NATIVE_FRAME_LIMIT = 1 << 24,  /* what a reader accepts, raw, unless one block is larger */
    NATIVE_ROUTES_BYTES = 1 << 22, /* of tokens' experts that a writer gathers, raw */
    NATIVE_ROUTES_LIMIT = 1 << 30, /* of one block */
    NATIVE_BLOCK_HEAD = 16,
    NATIVE_FRAME_WORDS = 5,
    NATIVE_FRAME_HEAD = NATIVE_FRAME_WORDS * 4
};
#define NATIVE_MAGIC "MPTRACE1"
#define NATIVE_FRAME_MAGIC 0x4d415246u  /* "FRAM" in the file */
#define NATIVE_ROUTES_MAGIC 0x54554f52u /* "ROUT" in the file */

static inline size_t native_block_bytes(const struct mp_trace_shape *shape) {
    return NATIVE_BLOCK_HEAD + (size_t)shape->ranks * (size_t)shape->experts * sizeof(uint32_t);
}

/* Experts of a block's tokens: their bytes, and they themselves.  The second takes them from the
 * first of `left` bytes; *used is 0 if there can't be any.  MP_ENOMEM. */
size_t native_routes_bytes(const struct mp_load *load);
void native_put_routes(unsigned char *at, const struct mp_load *load);
int native_get_routes(const unsigned char *at, size_t left, struct mp_load *load, size_t *used,
                      struct mp_error *error);

static inline void native_put32(unsigned char *at, uint32_t value) {
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}
static inline uint32_t native_get32(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}
static inline void native_put64(unsigned char *at, uint64_t value) {
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}
static inline uint64_t native_get64(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}
