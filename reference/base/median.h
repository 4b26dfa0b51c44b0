/* Numbers in ascending order, and their median. */
#pragma once

#include <stdint.h>

void mp_sort_numbers(double value[], int64_t count);
void mp_sort_integers(int64_t value[], int64_t count);

/* Sorts them; of an even count the mean of the two in the middle, of none NAN. */
double mp_median_of(double value[], int64_t count);
