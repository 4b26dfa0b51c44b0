/* CRC-32 as zlib has it (polynomial 0xedb88320, reflected), for records of some tens of bytes.
 *
 * zlib's own is made for long buffers: appending a span to its spool took 125 ns with it where it
 * takes 53 with this one, and every span is checked once when written and twice when read. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Thread-safe.  Equal to zlib's crc32(0, bytes, size), and to crc32(check, bytes, size). */
uint32_t spool_crc32_on(uint32_t check, const void *bytes, size_t size);
static inline uint32_t spool_crc32(const void *bytes, size_t size) {
    return spool_crc32_on(0, bytes, size);
}
