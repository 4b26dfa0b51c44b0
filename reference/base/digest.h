/* Digests of texts, to tell them apart: FNV-1a, 64 bits.  Nobody is kept from making two alike. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MP_DIGEST UINT64_C(14695981039346656037) /* of nothing */

static inline uint64_t mp_digest_byte(uint64_t digest, unsigned char byte) {
    return (digest ^ byte) * UINT64_C(1099511628211);
}

/* Of numbers without padding between them. */
static inline uint64_t mp_digest_bytes(uint64_t digest, const void *bytes, size_t size) {
    for (const unsigned char *byte = bytes; size > 0; byte++, size--)
        digest = mp_digest_byte(digest, *byte); /* NOLINT(clang-analyzer-core.CallAndMessage): it
                                                   takes the bytes of numbers for unwritten ones */
    return digest;
}

static inline uint64_t mp_digest_text(uint64_t digest, const char *text) {
    for (; *text; text++)
        digest = mp_digest_byte(digest, (unsigned char)*text);
    return digest;
}

/* With a text and its end behind what `digest` is of. */
static inline uint64_t mp_digest(uint64_t digest, const char *text) {
    return mp_digest_byte(mp_digest_text(digest, text), 0xff); /* no byte of UTF-8 */
}
