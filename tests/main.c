/* The main of test programs that have none of their own. */
#include "tests/cases.h"

int main(void) {
    return test_run();
}
