#include "results/report/findings.h"

#include <stdlib.h>

#include "results/report/query.h"
#include "results/report/waiting_words.h"

static int add(json_t *findings, const char *title, const char *text, const char *advice,
               const char *command, bool warning, struct mp_error *error) {
    json_t *finding =
        json_pack("{so so so so sb}", "title", text_value(title), "text", text_value(text),
                  "advice", text_value(advice), "command", text_value(command), "warning", warning);
    return json_array_append_new(findings, finding) ? mp_no_memory(error) : MP_OK;
}

int finding_add(json_t *findings, const char *title, const char *text, bool warning,
                struct mp_error *error) {
    return add(findings, title, text, NULL, NULL, warning, error);
}

static char *capitalise(char *text) {
    if (text[0] >= 'a' && text[0] <= 'z')
        text[0] = (char)(text[0] - 'a' + 'A');
    return text;
}

int findings_busy(const struct report_runs *runs, json_t *findings, struct mp_error *error) {
    char text[REPORT_BUSY_TEXT];
    report_busy(runs, text);
    return *text ? finding_add(findings, "The machine was busy", capitalise(text), true, error)
                 : MP_OK;
}

/* Text that was printed for a terminal: its lines become one. */
static char *one_line(FILE *memory, char **text) {
    if (!memory || fclose(memory) || !*text)
        return NULL;
    for (char *at = *text; *at; at++)
        if (*at == '\n')
            *at = at[1] ? ' ' : '\0';
    return *text;
}

int findings_speed(const struct report_runs *runs, const struct speedup_row rows[], int count,
                   int table, json_t *findings, struct mp_error *error) {
    MP_AUTO(text) char *text = NULL;
    size_t size;
    bool shared = false;
    for (int i = 0; i < count; i++)
        shared = shared || rows[i].ranks_share_cores;
    FILE *memory = open_memstream(&text, &size);
    if (memory)
        speedup_print_words(runs, rows, count, table, memory);
    if (!one_line(memory, &text))
        return mp_no_memory(error);
    return *text ? finding_add(findings, shared ? "Ranks shared cores" : "Who is faster", text,
                               shared, error)
                 : MP_OK;
}

/* What to do, and if tokens are the cause and there is one, the system that was faster here. */
static int add_waiting(const struct straggler *straggler, int number, const char *label,
                       const char *faster, json_t *findings, struct mp_error *error) {
    const struct mp_straggler_finding *finding = &straggler->found.finding[number];
    char title[WAITING_TEXT + 160], text[WAITING_TEXT], words[WAITING_TEXT];
    char faster_words[160] = "";
    struct waiting_advice advice;
    snprintf(title, sizeof title, "%.120s%s%s", label ? label : "", label ? ": " : "",
             waiting_title(&straggler->found, finding, words, sizeof words));
    waiting_text(&straggler->found, finding, text, sizeof text);
    capitalise(text);
    waiting_advise(&straggler->found, finding, &straggler->context, &advice);
    if (finding->cause == MP_CAUSE_ROUTING && faster)
        snprintf(faster_words, sizeof faster_words, "Fastest on this setting: %.120s. ", faster);
    char to_do[sizeof faster_words + sizeof advice.words];
    snprintf(to_do, sizeof to_do, "%s%s", faster_words, advice.words);
    return add(findings, title, text, to_do, *advice.command ? advice.command : NULL, false, error);
}

/* A sentence that has no subject yet begins with the run's name. */
static int add_nothing(const struct straggler *straggler, const char *label, json_t *findings,
                       struct mp_error *error) {
    const unsigned unknown = MP_ABSTAINS_NO_SPANS | MP_ABSTAINS_MISSING | MP_ABSTAINS_NO_MEETINGS;
    const char *title =
        straggler->found.abstentions & unknown ? "Who waits can't be told" : "No straggler";
    char text[WAITING_TEXT];
    waiting_nothing(&straggler->found, text, sizeof text);
    capitalise(text);
    return finding_add(findings, label ? label : title, text, false, error);
}

/* What the analysis can't say of this run. */
static int add_abstentions(const struct straggler *straggler, const char *label, json_t *findings,
                           struct mp_error *error) {
    char text[WAITING_TEXT] = "", title[160];
    size_t length = 0;
    for (unsigned bit = MP_ABSTAINS_CLOCKS; bit < 1u << MP_ABSTENTIONS; bit *= 2)
        if (straggler->found.abstentions & bit && length < sizeof text)
            length +=
                (size_t)snprintf(text + length, sizeof text - length, "%s%s", length ? "; " : "",
                                 mp_abstention_text((enum mp_abstention)bit));
    capitalise(text);
    snprintf(title, sizeof title, "%.120s%sWhat can't be said", label ? label : "",
             label ? ": " : "");
    if (length + 1 < sizeof text)
        snprintf(text + length, sizeof text - length, ".");
    return length == 0 ? MP_OK : finding_add(findings, title, text, true, error);
}

int findings_stragglers(const struct straggler *straggler, const char *label, const char *faster,
                        int most, json_t *findings, struct mp_error *error) {
    const struct mp_straggler *found = &straggler->found;
    if (found->findings == 0)
        MP_TRY(add_nothing(straggler, label, findings, error));
    for (int f = 0; f < found->findings && f < most; f++)
        MP_TRY(add_waiting(straggler, f, label, faster, findings, error));
    return found->slowdowns.rank ? add_abstentions(straggler, label, findings, error) : MP_OK;
}
