/* How what several tests of results make is ended (AUTO of tests/support.h). */
#pragma once

#include "results/report/table.h"
#include "results/store/store.h"
#include "tests/support.h"

TEST_END(json, json_t *, json_decref(*it))
TEST_END(store, struct mp_store *, mp_store_close(*it))
TEST_END(table, struct table, table_free(it))
