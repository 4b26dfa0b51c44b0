/* The exact measures of the standard run: name, total, rows and a hash.  Histories that others keep
 * have the hashes, so that they stay as they were. */
#include "results/compare/counts.h"

#include "tests/results/runs.h"

static const char expected[] = "loss 2 4 5c06d8151764e899\n"
                               "ranks-share-cores 0 2 d55251ffe6e27804\n"
                               "routes 400 16 77677ba9de049d0d\n"
                               "drops 20 4 9c9499ec7a883775\n"
                               "attention operations 8 4 9a6213e49df1ddc5\n"
                               "attention bytes 800 4 3db1bfbd6fab4e45\n"
                               "attention tokens 800 4 3db1bfbd6fab4e45\n"
                               "combine operations 8 2 89e1dee2e7a6a514\n"
                               "expert operations 16 4 a7d00ac7932a5a05\n"
                               "expert tokens 640 4 975163479300ff45\n"
                               "expert flops 6000 2 b28f8c6f0bab8c34\n"
                               "fetch operations in flight 8 2 fa7e42814fcc7e14\n"
                               "fetch operations 8 2 89e1dee2e7a6a514\n"
                               "iteration operations 8 2 56756b0f7cf00b84\n"
                               "iteration tokens 400 2 08e4fbb7ff6ce4e4\n"
                               "validate operations 2 2 c701a525090761c4\n"
                               "validate tokens 800 2 db20a42c0a5a54e4\n";

RUNS_TEST(a_run_has_these_measures) {
    struct counts counts = {0};
    char text[4096];
    size_t length = 0;
    runs_add_usual(folder, "ep", &runs_ep);
    runs_add_usual(folder, "fssdp", &runs_fssdp);
    runs_execute(folder->store,
                 "UPDATE span SET bytes = 100, layer = iteration % 2 WHERE tokens = 100");
    assert_works(counts_load(folder->store, 1, false, &counts, &error));
    for (int i = 0; i < counts.count; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s %g %lld %016llx\n",
                                   counts.item[i].name, counts.item[i].total,
                                   (long long)counts.item[i].rows,
                                   (unsigned long long)counts.item[i].hash);
    assert_string_equal(text, expected);
    counts_free(&counts);
}
