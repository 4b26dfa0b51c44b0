/* v_convergence: runs that had a target, and what became of it. */
#include "tests/results/targets.h"

TEST(the_view_has_runs_with_a_target_and_no_others) {
    struct runs_folder folder;
    struct mp_store_run ep = runs_description("ep", "text");
    struct mp_store_run fssdp = runs_description("fssdp", "text");
    const struct runs_standard three = {.count = 3, .ms = {40, 20, 28}, .loss = {5, 3, 2}};
    runs_create(&folder);
    runs_add(&folder, &ep, &runs_ep); /* none */
    targets_add(&folder, &ep, &runs_ep, 0);
    targets_add(&folder, &fssdp, &three, 3);
    /* 5 of 100 routes of every iteration dropped; 40 + 20 + 28 ms. */
    assert_rows(
        folder.store,
        "SELECT run_id, suite, job, round, system, workload, gate, executor, ranks, status, "
        "target_loss, target_window, iterations_to_target, round(seconds_to_target, 6), "
        "iterations, loss_final, routes, dropped, dropped_fraction FROM v_convergence ORDER BY "
        "run_id",
        "2|tiny|ep|0|ep|text|gshard|measured|2|complete|2.5|2|NULL|NULL|4|2.0|400|20|0.05\n"
        "3|tiny|fssdp|0|fssdp|text|gshard|measured|2|complete|2.5|2|3|0.088|3|2.0|300|15|0.05");
    runs_destroy(&folder);
}
