#include "harness/workload/run_trace.h"

#include <jansson.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "reference/gate/gate.h"
#include "reference/plan/routes.h"

struct run_trace {
    struct mp_store *store;
    int64_t run_id;
    struct mp_trace_shape shape;
    sqlite3_stmt *iterations; /* that are whole */
    sqlite3_stmt *routes;     /* of a rank, iteration and layer */
    sqlite3_stmt *choices;    /* likewise, of its tokens; NULL: they were not recorded */
    int32_t *tokens;          /* [ranks] of the layer at hand */
    int64_t iteration;
    int layer;
};

static void destroy(void *self) {
    struct run_trace *run = self;
    sqlite3_finalize(run->iterations);
    sqlite3_finalize(run->routes);
    sqlite3_finalize(run->choices);
    free(run->tokens);
    free(run);
}

/* ---- blocks ---- */

static int fail_row(const struct run_trace *run, int rank, const char *what,
                    struct mp_error *error) {
    return mp_fail(error, MP_EFORMAT, "%s: run %lld, iteration %lld, layer %d, rank %d: %s",
                   mp_store_path(run->store), (long long)run->run_id, (long long)run->iteration,
                   run->layer, rank, what);
}

MP_END(json, json_t *, json_decref(*it))

/* JSON text of one number per expert. */
static int parse_routes(const struct run_trace *run, const char *text, int rank, uint32_t row[],
                        struct mp_error *error) {
    MP_AUTO(json) json_t *array = json_loads(text ? text : "", 0, NULL);
    if (!json_is_array(array) || json_array_size(array) != (size_t)run->shape.experts)
        return fail_row(run, rank, "its loads should be an array with a number for every expert",
                        error);
    for (int expert = 0; expert < run->shape.experts; expert++) {
        json_t *value = json_array_get(array, (size_t)expert);
        json_int_t routes = json_integer_value(value);
        if (!json_is_integer(value) || routes < 0 || routes > UINT32_MAX)
            return fail_row(run, rank, "a load should be a whole number that is not negative",
                            error);
        row[expert] = (uint32_t)routes;
    }
    return MP_OK;
}

/* Asks for a rank's rows of the layer at hand. */
static int bind_rank(const struct run_trace *run, sqlite3_stmt *statement, int rank,
                     struct mp_error *error) {
    const int64_t key[] = {run->run_id, rank, run->iteration, run->layer};
    sqlite3_reset(statement);
    for (int i = 0; i < 4; i++)
        if (sqlite3_bind_int64(statement, i + 1, key[i]) != SQLITE_OK)
            return mp_store_fail(run->store, "cannot read the loads", error);
    return MP_OK;
}

static int read_row(const struct run_trace *run, int rank, uint32_t row[], struct mp_error *error) {
    MP_TRY(bind_rank(run, run->routes, rank, error));
    int code = mp_store_next(run->store, run->routes, error);
    if (code == 0)
        code = fail_row(run, rank, "has no loads", error);
    else if (code == 1)
        code =
            parse_routes(run, (const char *)sqlite3_column_text(run->routes, 0), rank, row, error);
    sqlite3_reset(run->routes);
    return code;
}

/* Takes what there is of a rank's choices in the layer into `expert`, or with NULL counts them. */
static int read_choices(struct run_trace *run, int rank, int32_t expert[], int64_t *choices,
                        struct mp_error *error) {
    int code = bind_rank(run, run->choices, rank, error);
    *choices = 0;
    while (!code && (code = mp_store_next(run->store, run->choices, error)) == 1) {
        const unsigned char *at = sqlite3_column_blob(run->choices, 3);
        int width = sqlite3_column_int(run->choices, 2);
        int bytes = sqlite3_column_bytes(run->choices, 3);
        bool possible = (width == 2 || width == 4) && bytes % width == 0 &&
                        sqlite3_column_int64(run->choices, 0) == *choices &&
                        sqlite3_column_int(run->choices, 1) == run->shape.top_k;
        code = possible ? MP_OK
                        : fail_row(run, rank, "a part of its tokens' experts is missing or damaged",
                                   error);
        for (int i = 0; !code && expert && i < bytes / width; i++, at += width) {
            int16_t narrow;
            memcpy(width == 2 ? (void *)&narrow : (void *)&expert[*choices + i], at, (size_t)width);
            if (width == 2)
                expert[*choices + i] = narrow;
        }
        *choices += possible ? bytes / width : 0;
    }
    if (!code && (*choices % run->shape.top_k || *choices > INT32_MAX))
        code = fail_row(run, rank, "its tokens' experts are cut off", error);
    return code;
}

/* The experts of a layer's tokens. */
static int read_tokens(struct run_trace *run, struct mp_load *load, struct mp_error *error) {
    const int top_k = run->shape.top_k;
    int64_t choices;
    for (int rank = 0; rank < run->shape.ranks; rank++) {
        MP_TRY(read_choices(run, rank, NULL, &choices, error));
        run->tokens[rank] = (int32_t)(choices / top_k);
    }
    MP_TRY(mp_load_give_routes(load, top_k, run->tokens, error));
    for (int rank = 0; rank < run->shape.ranks; rank++) {
        const size_t first = (size_t)load->routes->begin[rank] * (size_t)top_k;
        MP_TRY(read_choices(run, rank, load->routes->expert + first, &choices, error));
    }
    return MP_OK;
}

static int next(void *self, struct mp_trace_block *block, bool *end, struct mp_error *error) {
    struct run_trace *run = self;
    if (block->layer == 0) {
        int code = mp_store_next(run->store, run->iterations, error);
        *end = code == 0;
        if (code != 1)
            return code;
        run->iteration = sqlite3_column_int64(run->iterations, 0);
    }
    block->iteration = run->iteration;
    run->layer = block->layer;
    for (int rank = 0; rank < run->shape.ranks; rank++)
        MP_TRY(read_row(run, rank, block->load.count + (long)rank * run->shape.experts, error));
    return run->choices ? read_tokens(run, &block->load, error) : MP_OK;
}

/* ---- opening ---- */

/* Ranks, experts per token and words from the run's row. */
static int describe_run(struct run_trace *run, struct mp_trace_info *info, struct mp_error *error) {
    sqlite3_stmt *row = NULL;
    int code =
        mp_store_query(run->store,
                       "SELECT ranks, ifnull(gate, ''), suite, job, system, workload, started_at "
                       "FROM run WHERE run_id = ?1",
                       &run->run_id, 1, &row, error);
    if (!code)
        code = mp_store_next(run->store, row, error);
    if (code == 1) {
        const char *text[5];
        for (int i = 0; i < 5; i++) {
            text[i] = (const char *)sqlite3_column_text(row, i + 2);
            text[i] = text[i] ? text[i] : "";
        }
        info->shape.ranks = sqlite3_column_int(row, 0);
        info->shape.top_k = mp_gate_words_top_k((const char *)sqlite3_column_text(row, 1));
        info->shape.micro_batches = 1;
        code = MP_OK;
        if (asprintf(&info->source, "run %lld of %s: suite %s, job %s, system %s, workload %s, %s",
                     (long long)run->run_id, mp_store_path(run->store), text[0], text[1], text[2],
                     text[3], text[4]) < 0) {
            info->source = NULL;
            code = mp_no_memory(error);
        }
    }
    sqlite3_finalize(row);
    return code;
}

/* Layers and experts from its first load. */
static int find_shape(struct run_trace *run, struct mp_trace_info *info, struct mp_error *error) {
    int64_t most[2];
    MP_TRY(mp_store_numbers(run->store,
                            "SELECT max(layer) + 1, (SELECT json_array_length(routes) FROM load "
                            "WHERE run_id = ?1 AND iteration >= 0 LIMIT 1) "
                            "FROM load WHERE run_id = ?1 AND iteration >= 0",
                            &run->run_id, 1, most, 2, error));
    info->shape.layers = (int)most[0];
    info->shape.experts = (int)most[1];
    return info->shape.layers >= 1
               ? MP_OK
               : mp_fail(error, MP_ENOTFOUND, "run %lld of %s recorded no loads",
                         (long long)run->run_id, mp_store_path(run->store));
}

/* Whether the run has experts of tokens, which databases of before have no table for. */
static int find_choices(struct run_trace *run, struct mp_trace_info *info, struct mp_error *error) {
    const char *const asked[] = {
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'choice' AND ?1 = ?1",
        "SELECT 1 FROM choice WHERE run_id = ?1 AND iteration >= 0 LIMIT 1"};
    int64_t there = 1;
    for (int i = 0; i < 2 && there; i++)
        MP_TRY(mp_store_numbers(run->store, asked[i], &run->run_id, 1, &there, 1, error));
    if (!there || info->shape.top_k == 0)
        return MP_OK;
    info->routes = true;
    MP_TRY(MP_NEW(run->tokens, info->shape.ranks, error));
    return mp_store_query(run->store,
                          "SELECT first, top_k, width, experts FROM choice WHERE run_id = ?1 AND "
                          "rank = ?2 AND iteration = ?3 AND layer = ?4 ORDER BY first",
                          NULL, 0, &run->choices, error);
}

static int open_run(struct run_trace *run, struct mp_trace_info *info, struct mp_error *error) {
    MP_TRY(mp_store_choose_run(run->store, &run->run_id, error));
    MP_TRY(describe_run(run, info, error));
    MP_TRY(find_shape(run, info, error));
    /* Says in the notes how many iterations are left out because some rank did not finish them. */
    const int64_t values[] = {run->run_id, (int64_t)info->shape.ranks * info->shape.layers};
    int64_t left_out;
    MP_TRY(mp_store_numbers(run->store,
                            "SELECT count(*) FROM (SELECT 1 FROM load WHERE run_id = ?1 AND "
                            "iteration >= 0 GROUP BY iteration HAVING count(*) <> ?2)",
                            values, 2, &left_out, 1, error));
    if (left_out == 0)
        info->notes = strdup("");
    else if (asprintf(&info->notes, "iterations left out that not every rank finished: %lld",
                      (long long)left_out) < 0)
        info->notes = NULL;
    MP_TRY(info->notes ? MP_OK : mp_no_memory(error));
    MP_TRY(find_choices(run, info, error));
    run->shape = info->shape;
    MP_TRY(mp_store_query(run->store,
                          "SELECT iteration FROM load WHERE run_id = ?1 AND iteration >= 0 "
                          "GROUP BY iteration HAVING count(*) = ?2 ORDER BY iteration",
                          values, 2, &run->iterations, error));
    return mp_store_query(run->store,
                          "SELECT routes FROM load WHERE run_id = ?1 AND rank = ?2 AND "
                          "iteration = ?3 AND layer = ?4",
                          NULL, 0, &run->routes, error);
}

int mp_trace_open_run(struct mp_store *store, int64_t run_id, struct mp_trace_stream **stream,
                      struct mp_error *error) {
    static const struct mp_trace_stream_operations operations = {next, destroy};
    struct mp_trace_info info = {.ragged = true}; /* as far as what was recorded is */
    *stream = NULL;
    struct run_trace *run;
    MP_TRY(MP_NEW(run, 1, error));
    *run = (struct run_trace){.store = store, .run_id = run_id};
    int code = open_run(run, &info, error);
    return mp_trace_stream_create(code, &operations, run, &info, stream, error);
}
