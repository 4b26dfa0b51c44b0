#include "harness/record/rules.h"
#include "harness/suite/paths.h"

int mp_rules_load_ready(struct mp_rules *rules, struct mp_error *error) {
    char path[MP_PATH_SIZE], **names = NULL;
    int code = mp_path_names(MP_RULES, &names, error);
    for (int i = 0; !code && names[i]; i++) {
        code = mp_path_file(MP_RULES, names[i], path, error);
        if (!code)
            code = mp_rules_load(path, rules, error);
    }
    mp_path_names_destroy(names);
    return code;
}
