/* Numbers in order, and the one in the middle. */
#include "reference/base/median.h"

#include "tests/support.h"

TEST(the_middle_of_values) {
    double odd[] = {9, 1, 4}, even[] = {8, 1, 2, 4}, one[] = {7};
    assert_all_close(0, mp_median_of(odd, 3), 4, mp_median_of(even, 4), 3);
    assert_close(even[0], 1, 0); /* they are in order now */
    assert_close(even[3], 8, 0);
    assert_close(mp_median_of(one, 1), 7, 0);
    assert_true(isnan(mp_median_of(even, 0)));
}

/* As many are below as above. */
TEST_RANDOM(random_values) {
    for (int round = 0; round < 100; round++) {
        double value[50];
        int count = test_random_int(random, 1, 50), below = 0, above = 0;
        for (int i = 0; i < count; i++)
            value[i] = test_random_int(random, 0, 20);
        double median = mp_median_of(value, count);
        for (int i = 0; i < count; i++) {
            below += value[i] <= median;
            above += value[i] >= median;
            assert_true(i == 0 || value[i] >= value[i - 1]);
        }
        assert_true(2 * below >= count && 2 * above >= count);
    }
}
