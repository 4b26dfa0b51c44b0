/* The main of test programs that have none of their own: all cases, or those whose names match a
 * pattern that is given, as "bad_*". */
#include "tests/cases.h"

int main(int words, char **word) {
    if (words > 1)
        cmocka_set_test_filter(word[1]);
    return test_run();
}
