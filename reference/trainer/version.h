/* Version: which release a program is, and which build of it. */
#pragma once

/* Release and revision, as every program of moeperf says it: "0.1.0 (1a2b3c4d5e6f)". */
const char *mp_version(void);

/* Revision of the source this was built from, with "-dirty" if it was changed; "unknown" outside a
 * repository. */
const char *mp_revision(void);

/* Compiler, its version and the kind of build. */
const char *mp_compiler(void);
