/* In place of yaml.c where the build found no libyaml. */
#include "reference/base/yaml.h"

int mp_yaml_parse(const char *name, const char *text, size_t size, struct mp_yaml **document,
                  struct mp_error *error) {
    (void)text;
    (void)size;
    *document = NULL;
    return mp_fail(error, MP_ENOTFOUND,
                   "%s: YAML files can't be read, since this was built without libyaml; install "
                   "libyaml-dev and build again, or give every option with --set KEY=VALUE",
                   name);
}
