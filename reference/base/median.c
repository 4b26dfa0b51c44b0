#include "reference/base/median.h"
#include "reference/base/order.h"

#include <math.h>

static int compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return MP_ORDER(a, b);
}

void mp_sort_numbers(double value[], int64_t count) {
    MP_SORT(value, count, compare);
}

static int compare_integers(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return MP_ORDER(a, b);
}

void mp_sort_integers(int64_t value[], int64_t count) {
    MP_SORT(value, count, compare_integers);
}

double mp_median_of(double value[], int64_t count) {
    int64_t half = count / 2;
    if (count == 0)
        return NAN;
    mp_sort_numbers(value, count);
    return count % 2 ? value[half] : (value[half - 1] + value[half]) / 2;
}
