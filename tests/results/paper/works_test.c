/* Works that sources name: entries that BibTeX reads, found by names that stand alone. */
#include "results/paper/paper.h"
#include "tests/support.h"

static char *keys_of(uint64_t works) {
    static char text[4096];
    *text = '\0';
    FILE *file = fmemopen(text, sizeof text, "w");
    mp_works_print_keys(works, file);
    fclose(file);
    return text;
}

TEST(a_work_is_found_by_names_that_stand_alone) {
    static const struct {
        const char *source, *keys;
    } sources[] = {
        {"FasterMoE, PPoPP 2022; laekov/fastmoe", "he2022fastermoe"},
        {"FastMoE, arXiv 2103.13262", "he2021fastmoe"},
        {"by FastMoE", "he2021fastmoe"},
        {"xFastMoE, FastMoE2", ""},
        {"FastMoE2 beside FastMoE", "he2021fastmoe"},
        {"SYMI (v1: SwiftMoE)", "skiadopoulos2025symi"},
        {"SwiftMoE", "skiadopoulos2025symi"},
        {"NVIDIA's data sheet of the DGX H200: 400 Gb/s per card, 4 times", "nvidia-h200"},
        {"LAER-MoE's code; TA-MoE", "liu2026laer, chen2022tamoe"},
        {"", ""},
        {"moeperf's own", ""},
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        if (strcmp(keys_of(mp_works_named(sources[i].source)), sources[i].keys) != 0)
            fail_msg("%s: %s", sources[i].source, keys_of(mp_works_named(sources[i].source)));
}

/* What is printed of one work: balanced braces, a title, somewhere to find it, and no names. */
static void check_entry(uint64_t work) {
    char text[4096];
    FILE *file = fmemopen(text, sizeof text, "w");
    int depth = 0;
    mp_works_print(work, file);
    fclose(file);
    for (const char *at = text; *at; at++) {
        depth += (*at == '{') - (*at == '}');
        assert_true(depth > 0 || *at == '}' || at < strchr(text, '{') || at[1] == '\0');
    }
    if (depth != 0 || strncmp(text, "\n@", 2) != 0 || strstr(text, "  names =") ||
        !strstr(text, "\n  title = {") || !strstr(text, "\n  author = {") ||
        !(strstr(text, "\n  eprint = {") || strstr(text, "\n  url = {") ||
          strstr(text, "\n  doi = {") || strstr(text, "\n  institution = {")) ||
        strstr(text, ",\n}") || strcmp(text + strlen(text) - 4, "}\n}\n") != 0 ||
        (strstr(text, "\n  eprint = {") && !strstr(text, "\n  archiveprefix = {arXiv}")))
        fail_msg("%s", text);
}

TEST(every_entry_is_whole) {
    int count = 1;
    for (const char *at = mp_works_bibliography; (at = strstr(at, "\n@")); at++)
        count++;
    assert_true(count <= MP_WORKS_MOST);
    for (int i = 0; i < count; i++) {
        char key[128];
        check_entry(UINT64_C(1) << i);
        snprintf(key, sizeof key, "{%.100s,", keys_of(UINT64_C(1) << i));
        const char *first = strstr(mp_works_bibliography, key);
        assert_non_null(first);
        assert_null(strstr(first + 1, key)); /* no two with one key */
    }
    assert_string_equal(keys_of(UINT64_C(1) << (count % 64)), "");
}
