/* What SQLite makes, ended with its block. */
#pragma once

#include <sqlite3.h>

#include "reference/base/error.h"

MP_END(connection, sqlite3 *, sqlite3_close(*it))
MP_END(statement, sqlite3_stmt *, sqlite3_finalize(*it))
MP_END(sqlite_text, char *, sqlite3_free(*it))
