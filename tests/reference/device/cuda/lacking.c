/* A library that needs one that is not there: see open_test.c. */
#include "reference/base/error.h"

int mp_cuda_open(struct mp_error *error);

int mp_cuda_open(struct mp_error *error) {
    return mp_fail(error, MP_EDEVICE, "nobody gets here");
}
