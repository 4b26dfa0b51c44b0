#include "reference/base/imbalance.h"

#include <math.h>

struct mp_imbalance mp_imbalance_of(const int64_t counts[], int count) {
    int64_t largest = 0;
    double total = 0;
    int dead = 0;
    for (int i = 0; i < count; i++) {
        total += (double)counts[i];
        largest = counts[i] > largest ? counts[i] : largest;
        dead += counts[i] == 0;
    }
    if (!(total > 0))
        return (struct mp_imbalance){NAN, NAN, NAN};
    double entropy = 0;
    for (int i = 0; i < count; i++) {
        double share = (double)counts[i] / total;
        entropy -= share > 0 ? share * log(share) : 0;
    }
    return (struct mp_imbalance){(double)largest * count / total, exp(entropy),
                                 (double)dead / count};
}
