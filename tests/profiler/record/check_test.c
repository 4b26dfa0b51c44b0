/* The check of records is zlib's CRC-32. */
#include "profiler/record/check.h"

#include <zlib.h>

#include "tests/support.h"

TEST(the_standard_text_has_its_check) {
    assert_int_equal(spool_crc32("123456789", 9), 0xcbf43926u);
    assert_int_equal(spool_crc32("", 0), 0);
}

TEST_RANDOM(every_length_and_place_is_as_with_zlib) {
    uint8_t bytes[600];
    for (int round = 0; round < 4000; round++) {
        for (size_t i = 0; i < sizeof bytes; i += 8) {
            uint64_t word = test_random(random);
            memcpy(bytes + i, &word, 8);
        }
        size_t place = (size_t)test_random_int(random, 0, 17);
        size_t size = (size_t)test_random_int(random, 0, round % 2 ? 80 : 580);
        uint32_t check = (uint32_t)crc32(0, bytes + place, (uInt)size);
        assert_int_equal(spool_crc32(bytes + place, size), check);
        size_t first = (size_t)test_random_int(random, 0, (int)size);
        assert_int_equal(
            spool_crc32_on(spool_crc32(bytes + place, first), bytes + place + first, size - first),
            check);
    }
}
