/* Included by ci/lint in front of every file.  The analyzer looks at one file at a time, so it has
 * to be told what error.h promises: mp_fail returns the code it was given, which is never MP_OK,
 * mp_no_memory MP_ENOMEM, and mp_fail_errno one of its codes. */
#include "reference/base/error.h"

#define mp_fail(error, code, ...) ((mp_fail)((error), (code), __VA_ARGS__), (code))
#define mp_no_memory(error) ((mp_no_memory)(error), MP_ENOMEM)
#define mp_fail_errno(error, ...) ((mp_fail_errno)((error), __VA_ARGS__), MP_EIO)
