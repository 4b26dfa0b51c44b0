/* Launch: see launch.h. */
#include "harness/suite/launch.h"

#include "harness/suite/child.h"

const char *mp_launch_end_name(enum mp_launch_end end) {
    static const char *const names[] = {"complete", "failed", "interrupted", "timeout", "refused"};
    return names[end];
}

int mp_launch_run(const struct mp_launch *launch, struct mp_launch_result *result,
                  struct mp_error *error) {
    struct mp_child child;
    *result = (struct mp_launch_result){.seconds = 0};
    int code = mp_child_start(launch, &child, error);
    if (code)
        return code;
    mp_child_wait(&child);
    mp_child_finish(&child, result);
    return MP_OK;
}
