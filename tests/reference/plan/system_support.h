/* What tests of any system need: its options as users write them, and its refusals. */
#pragma once

#include "reference/plan/system.h"
#include "tests/reference/plan/plan_support.h"

/* What a text like "slots=3 even=no" says of options, or of a setting. */
static inline void assign(const struct mp_option table[], void *fields, const char *of,
                          const char *text) {
    char name[64], value[64];
    for (int length; sscanf(text, " %63[^=]=%63s%n", name, value, &length) == 2; text += length)
        assert_works(mp_options_set(table, fields, of, name, value, NULL, &error));
    assert_true(!text[strspn(text, " ")]);
}

/* Defaults, then what the text says; it may be NULL. */
static inline void parse_options(const struct mp_system *system, void *options, const char *text) {
    assert_works(mp_options_set_defaults(system->options, options, &error));
    assign(system->options, options, system->name, text ? text : "");
}

/* Small experts, for systems to which it matters only how many there are. */
static inline struct mp_setting small_setting(int layers, int experts,
                                              struct mp_topology topology) {
    return (struct mp_setting){.layers = layers,
                               .experts = experts,
                               .top_k = 2,
                               .topology = topology,
                               .tokens_per_rank = 64,
                               .expert_bytes = 64,
                               .route_bytes = 8};
}

/* A setting by its text: "layers=2 experts=8 ranks=4".  What it does not say is as of one layer of
 * small experts on nodes of one rank, or nothing. */
static inline struct mp_setting setting_of(const char *text) {
#define FIELD(name, type, member)                                                                  \
    { name, type, offsetof(struct mp_setting, member), "", "0", -1, INT32_MAX, NULL, "a number" }
#define COUNT(name, member) FIELD(name, MP_OPTION_INT, member)
#define BYTES(name, member) FIELD(name, MP_OPTION_INT64, member)
#define FIGURE(name, member)                                                                       \
    { name, MP_OPTION_DOUBLE, offsetof(struct mp_setting, member), "", "0", -1, 1e15, NULL, "" }
    static const struct mp_option fields[] = {
        COUNT("layers", layers),
        COUNT("experts", experts),
        COUNT("top-k", top_k),
        COUNT("ranks", topology.ranks),
        COUNT("ranks-per-node", topology.ranks_per_node),
        COUNT("ranks-per-gate", ranks_per_gate),
        COUNT("shards", shards),
        COUNT("expert-width", expert_width),
        COUNT("exchange-degree", exchange_degree),
        BYTES("tokens", tokens_per_rank),
        BYTES("expert-bytes", expert_bytes),
        BYTES("gradient-bytes", gradient_bytes),
        BYTES("route-bytes", route_bytes),
        BYTES("attention-bytes", attention_bytes),
        FIGURE("bandwidth", bandwidth),
        FIGURE("bandwidth-in-node", bandwidth_in_node),
        FIGURE("seconds-per-route", seconds_per_route),
        FIGURE("seconds-per-expert", seconds_per_expert),
        FIGURE("non-moe-seconds", non_moe_seconds),
        FIGURE("copies-memory", copies_memory),
        {"exchange", MP_OPTION_CHOICE, offsetof(struct mp_setting, exchange), "", "flat", 0, 0,
         mp_exchange_choices, "how rows travel"},
        {0},
    };
#undef FIELD
#undef COUNT
#undef BYTES
#undef FIGURE
    struct mp_setting setting = small_setting(1, 8, (struct mp_topology){4, 1});
    assign(fields, &setting, "a setting", text);
    return setting;
}

/* Some blank-separated word. */
static inline void draw_word(uint64_t *random, const char *words, char *text, size_t size) {
    int count = 1;
    for (const char *c = words; *c; c++)
        count += *c == ' ';
    for (int skip = test_random_int(random, 0, count - 1); skip > 0; skip--)
        words = strchr(words, ' ') + 1;
    snprintf(text, size, "%.*s", (int)strcspn(words, " "), words);
}

/* A value near the lower end of what an option may be, where small runs feel it. */
static inline void draw_value(uint64_t *random, const struct mp_option *option, char *text,
                              size_t size) {
    double least = option->minimum, most = fmin(option->maximum, fmax(least, 0) + 4);
    if (option->type == MP_OPTION_TEXT) {
        snprintf(text, size, "%s", option->default_value);
    } else if (option->type == MP_OPTION_CHOICE) {
        draw_word(random, option->of, text, size);
    } else if (option->type == MP_OPTION_BOOL) {
        draw_word(random, "yes no", text, size);
    } else if (option->type == MP_OPTION_DOUBLE) {
        snprintf(text, size, "%.17g", least + test_random_double(random) * (most - least));
    } else {
        int value = test_random_int(random, (int)least, (int)most);
        bool all = option->type == MP_OPTION_COUNT && test_random_int(random, 0, 3) == 0;
        snprintf(text, size, all ? "all" : value < 0 ? "auto" : "%d", value);
    }
}

/* create says no, with a sentence in which the words are. */
static inline void assert_refused(const struct mp_system *system, const struct mp_setting *setting,
                                  const void *options, const char *words) {
    void *self = &words;
    assert_fails(mp_system_create(system, setting, options, &self, &error), MP_EREFUSED, words);
    assert_null(self);
}

/* A job that a system does not take, and the words that it has for it. */
struct refusal {
    const char *setting, *options, *words;
};

static inline void assert_refusal(const struct mp_system *system, const struct refusal *refusal) {
    const struct mp_setting setting = setting_of(refusal->setting);
    AUTO(allocated) void *options = malloc(system->options_size + 1);
    assert_non_null(options);
    parse_options(system, options, refusal->options);
    assert_refused(system, &setting, options, refusal->words);
}

static inline void assert_option_refused(const struct mp_system *system, const char *option,
                                         const char *value) {
    AUTO(allocated) void *options = calloc(1, system->options_size + 1);
    assert_fails(
        mp_options_set(system->options, options, system->name, option, value, NULL, &error),
        MP_EINVAL, option);
}

/* Bytes that a system did not save are refused, whatever is wrong with them, and leave what it
 * knows as it was.  `head` bytes at the beginning matter. */
static inline void assert_foreign_bytes_are_refused(const struct mp_system *system, void *self,
                                                    size_t head) {
    size_t size = system->save(self, NULL, 0);
    AUTO(allocated) char *state = malloc(size), *wrong = malloc(size), *after = malloc(size);
    assert_true(state && wrong && after);
    assert_int_equal(system->save(self, state, size), size);
    assert_int_equal(system->load(self, state, 3, NULL), MP_EFORMAT);
    assert_int_equal(system->load(self, state, size - 1, NULL), MP_EFORMAT);
    for (size_t at = 0; at < head; at++) {
        memcpy(wrong, state, size);
        wrong[at] ^= 0x40;
        assert_int_equal(system->load(self, wrong, size, NULL), MP_EFORMAT);
    }
    assert_int_equal(system->save(self, after, size), size);
    assert_memory_equal(after, state, size);
}
