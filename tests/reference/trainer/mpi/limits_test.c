/* What a trainer can't carry out is refused with a sentence, on every rank. */
#include "tests/reference/trainer/mpi/trainers.h"

TEST(more_rows_than_an_int_counts_are_refused) {
    static const struct {
        const char *batch, *sequence, *validation, *message;
    } cases[] = {
        {"batch=16384", "sequence=65536", "validate-every=0",
         "16384 sequences of 65536 tokens make 2147483648 routes"},
        {"batch=16777216", "sequence=65536", "validate-every=0", "make 2199023255552 routes"},
        {"batch=4096", "sequence=8", "validate-every=1",
         "validation-batches: 1048576 of 4096 sequences"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const settings[] = {
            "system=ep",    "text=-",          "validation-batches=1048576",
            cases[i].batch, cases[i].sequence, cases[i].validation};
        struct mp_systems systems = {0};
        struct mp_job_file file;
        struct mp_error error = {0};
        struct mp_trainer *trainer = NULL;
        assert_int_equal(mp_systems_register_all(&systems, &error), MP_OK);
        assert_int_equal(mp_job_file_create(&file, &error), MP_OK);
        for (size_t s = 0; s < sizeof settings / sizeof *settings; s++)
            assert_int_equal(mp_job_set(&file, settings[s], &systems, &error), MP_OK);
        assert_int_equal(mp_trainer_create(&file, world, NULL, NULL, &trainer, &error), MP_ELIMIT);
        assert_non_null(strstr(error.text, cases[i].message));
        assert_null(trainer);
        mp_job_file_destroy(&file);
    }
}

int main(void) {
    return run_on_all_ranks();
}
