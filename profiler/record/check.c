/* Eight bytes at a time: table[k][b] is what byte b does to the check k bytes later, and as CRC is
 * linear the eight contributions are summed by XOR (Kounavis and Berry, 2005: slicing-by-8). */
#include "profiler/record/check.h"

#include <pthread.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the bytes of a word are taken in the order of a little-endian host"
#endif

enum { SLICES = 8 };

static uint32_t table[SLICES][256];
static pthread_once_t table_is_filled = PTHREAD_ONCE_INIT;

static void fill_table(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t check = b;
        for (int bit = 0; bit < 8; bit++)
            check = check >> 1 ^ (check & 1 ? 0xedb88320u : 0);
        table[0][b] = check;
    }
    for (int k = 1; k < SLICES; k++)
        for (int b = 0; b < 256; b++)
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 0xff];
}

uint32_t spool_crc32_on(uint32_t before, const void *bytes, size_t size) {
    const uint8_t *at = bytes;
    uint32_t check = ~before;
    pthread_once(&table_is_filled, fill_table);
    for (; size >= SLICES; size -= SLICES, at += SLICES) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        word ^= check;
        check = table[7][word & 0xff] ^ table[6][word >> 8 & 0xff] ^ table[5][word >> 16 & 0xff] ^
                table[4][word >> 24 & 0xff] ^ table[3][word >> 32 & 0xff] ^
                table[2][word >> 40 & 0xff] ^ table[1][word >> 48 & 0xff] ^ table[0][word >> 56];
    }
    for (; size > 0; size--, at++)
        check = check >> 8 ^ table[0][(check ^ *at) & 0xff];
    return ~check;
}
