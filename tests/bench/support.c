#include <math.h>
#include <stdlib.h>

#include "reference/plan/plan.h"
#include "tests/bench/bench.h"

int mp_bench_add(json_t *result, json_t *values, struct mp_error *error) {
    return json_object_update_new(result, values)
               ? mp_fail(error, MP_ENOMEM, "no memory for the result")
               : MP_OK;
}

int mp_bench_add_row(json_t *table, json_t *row, struct mp_error *error) {
    return json_array_append_new(table, row) ? mp_fail(error, MP_ENOMEM, "no memory for the result")
                                             : MP_OK;
}

int mp_bench_make_folder(char folder[MP_BENCH_FOLDER], struct mp_error *error) {
    const char *base = getenv("TMPDIR");
    snprintf(folder, MP_BENCH_FOLDER, "%.90s/moeperf-bench.XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(folder)
               ? MP_OK
               : mp_fail(error, MP_EIO, "%s: cannot create a temporary folder: %m", folder);
}

static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    return z ^ (z >> 29);
}

void mp_bench_fill_load(struct mp_load *load, int routes, double exponent, int shift,
                        uint64_t *random) {
    double sum = 0;
    for (int expert = 0; expert < load->experts; expert++)
        sum += pow(expert + 1, -exponent);
    for (int source = 0; source < load->ranks; source++) {
        uint32_t *row = load->count + (long)source * load->experts, left = (uint32_t)routes;
        for (int expert = 0; expert < load->experts; expert++) {
            int place = (expert * 7 + shift) % load->experts;
            double noise = 0.8 + 0.2 * (double)(next_random(random) % 1024) / 1024;
            row[expert] = (uint32_t)(noise * routes * pow(place + 1, -exponent) / sum);
            left -= row[expert];
        }
        for (int expert = 0; left > 0; expert = (expert + 1) % load->experts) {
            uint32_t more = left / (uint32_t)load->experts + 1;
            row[expert] += more;
            left -= more;
        }
    }
}
