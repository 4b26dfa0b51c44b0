#include "reference/trainer/version.h"

#include "reference/trainer/revision.h"

const char *mp_version(void) {
    return MP_VERSION " (" MP_REVISION ")";
}

const char *mp_revision(void) {
    return MP_REVISION;
}

const char *mp_compiler(void) {
    return MP_COMPILER;
}
