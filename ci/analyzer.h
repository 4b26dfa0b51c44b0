/* Included by ci/lint in front of every file.  The analyzer looks at one file at a time, so it has
 * to be told what error.h promises: mp_fail returns the code it was given, which is never MP_OK,
 * and mp_no_memory MP_ENOMEM. */
#include "reference/base/error.h"

#define mp_fail(error, code, ...) ((mp_fail)((error), (code), __VA_ARGS__), (code))
#define mp_no_memory(error) ((mp_no_memory)(error), MP_ENOMEM)
