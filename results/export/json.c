
#include "results/export/output.h"

static const char run_sql[] =
    "SELECT v_run.*, ms_per_iteration, tokens_per_s, speedup_vs_ep, speed_vs_balanced, loss_final, "
    "max_loss_difference, iterations_agreed, steady_iterations, dropped_fraction, origin_ns, "
    "suite_text, job_text FROM v_run JOIN v_speedup USING (run_id) JOIN run USING (run_id) "
    "WHERE run_id = ?1";

/* What belongs to an iteration is chosen by it; what belongs to none always comes along. */
#define CHOSEN "WHERE run_id = ?1 AND (iteration BETWEEN ?2 AND ?3 OR iteration < 0) "

static const struct section {
    const char *name, *sql;
    unsigned arrays; /* columns that hold JSON, as bits */
} sections[] = {
    {"ranks", "SELECT * FROM v_rank WHERE run_id = ?1 ORDER BY rank", 0},
    {"facts", "SELECT rank, name, value FROM fact WHERE run_id = ?1 ORDER BY name, rank", 0},
    {"clocks", "SELECT rank, at_ns, offset_ns, error_ns FROM clock WHERE run_id = ?1", 0},
    {"numbers", "SELECT rank, iteration, layer, name, value FROM v_number " CHOSEN, 0},
    {"iterations", "SELECT * FROM v_iteration " CHOSEN "ORDER BY iteration", 0},
    {"stragglers", "SELECT * FROM v_straggler " CHOSEN "ORDER BY iteration, layer, phase", 0},
    {"imbalance", "SELECT * FROM v_imbalance " CHOSEN "ORDER BY iteration, layer", 0},
    {"phases", "SELECT * FROM v_phase WHERE run_id = ?1 ORDER BY phase", 0},
    {"loads", "SELECT rank, iteration, layer, routes, dropped FROM load " CHOSEN, 3u << 3},
    {"spans", "SELECT * FROM v_span " CHOSEN, 0},
    {"ranges",
     "SELECT rank, domain, name, kind, start_ns, end_ns, pid, tid, level, category, payload, value "
     "FROM v_nvtx WHERE run_id = ?1",
     1u << 10},
    {"gpu",
     "SELECT * FROM v_gpu WHERE run_id = ?1 AND (iteration BETWEEN ?2 AND ?3 OR "
     "coalesce(iteration, -1) < 0)",
     0},
    {"collectives", "SELECT * FROM v_collective WHERE run_id = ?1", 0},
};
enum { SECTIONS = MP_LENGTH(sections) };

static int write_run(struct output *output, const struct mp_results_selection *selection,
                     struct mp_error *error) {
    MP_AUTO(statement) sqlite3_stmt *row = NULL;
    MP_TRY(output_query(output->store, run_sql, selection, &row, error));
    const int got = mp_store_next(output->store, row, error);
    if (got < 0)
        return got;
    if (got == 0)
        return mp_fail(error, MP_EFORMAT, "%s: run %lld lacks its summary",
                       mp_store_path(output->store), (long long)selection->run_id);
    fputs("{\"format\":\"moeperf run\",\"version\":1,\"run\":", output->file);
    return output_json(output, output_row(row, 0), error);
}

int mp_results_json(struct mp_store *store, const struct mp_results_selection *selection,
                    const char *path, struct mp_results_exported *exported,
                    struct mp_error *error) {
    struct mp_results_selection chosen;
    MP_AUTO(output) struct output output = {0};
    *exported = (struct mp_results_exported){0};
    MP_TRY(output_choose(store, selection, &chosen, error));
    MP_TRY(output_open(&output, store, path, error));
    MP_TRY(write_run(&output, &chosen, error));
    for (int i = 0; i < SECTIONS; i++) {
        fputs(",\n", output.file);
        MP_TRY(output_rows(&output, sections[i].name, sections[i].sql, sections[i].arrays, &chosen,
                           &exported->rows, error));
    }
    fputs("}\n", output.file);
    return output_close(&output, error);
}
