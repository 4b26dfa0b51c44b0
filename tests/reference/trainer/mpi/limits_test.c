/* What a trainer can't carry out is refused with a sentence, on every rank. */
#include "tests/reference/trainer/mpi/trainers.h"

static const struct {
    const char *name, *settings, *message;
} too_many[] = {
    {"rows than an int counts", "batch=16384 sequence=65536",
     "16384 sequences of 65536 tokens make 2147483648 routes"},
    {"rows than they are in memory", "batch=16777216 sequence=65536", "make 2199023255552 routes"},
    {"rows of validation", "batch=4096 sequence=8 validate-every=1 validation-batches=1048576",
     "validation-batches: 1048576 of 4096 sequences"},
};

TEST_EACH(more_are_refused, too_many, c) {
    struct mp_error error;
    assert_null(try_trainer(world, NULL, formatted("system=ep %s", c->settings), &error));
    assert_int_equal(error.code, MP_ELIMIT);
    assert_contains(error.text, c->message);
}
