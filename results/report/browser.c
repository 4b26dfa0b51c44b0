#include "results/report/browser.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reference/base/shell.h"
#include "reference/base/whole_file.h"
#include "results/report/query.h"

enum { ANSWER_MS = 60000, FOLDER = 256, FOLDERS_OPEN = 16, REMOVALS = 200, REMOVAL_US = 10000 };

struct mp_browser {
    char path[MP_BROWSER_PATH];
    char folder[FOLDER]; /* its profile */
    pid_t pid;
    int channel; /* both ways; messages end with a zero byte */
    char *got;   /* what came and was not read yet */
    size_t got_size;
    int calls;
    char *session; /* of the page, in its messages; NULL: not yet */
};

/* ---- the program ---- */

int mp_browser_find(char path[MP_BROWSER_PATH], struct mp_error *error) {
    static const char *const names[] = {"chromium", "chromium-browser", "google-chrome", "chrome"};
    const char *wanted = getenv("MOEPERF_BROWSER");
    if (wanted && *wanted) {
        snprintf(path, MP_BROWSER_PATH, "%s", wanted);
        return access(path, X_OK) ? mp_fail(error, MP_ENOTFOUND, "MOEPERF_BROWSER=%.400s: %s", path,
                                            strerror(errno))
                                  : MP_OK;
    }
    for (size_t i = 0; i < MP_LENGTH(names); i++)
        if (mp_shell_search(names[i], path, MP_BROWSER_PATH))
            return MP_OK;
    return mp_fail(
        error, MP_ENOTFOUND,
        "neither chromium nor google-chrome is in PATH, in which Vega draws SVG and PDF: install "
        "chromium (apt-get install chromium), or let MOEPERF_BROWSER name a program like it");
}

/* In the child: the channel is 3 to read from and 4 to write to, where such a browser looks. */
static void become(const struct mp_browser *browser, int channel) {
    char profile[FOLDER + 32];
    const char *arguments[] = {browser->path,
                               "--headless",
                               "--disable-gpu",
                               "--remote-debugging-pipe",
                               profile,
                               "--no-first-run",
                               "--hide-scrollbars",
                               "--disable-dev-shm-usage",
                               "about:blank",
                               geteuid() ? NULL : "--no-sandbox", /* which root can't have */
                               NULL};
    snprintf(profile, sizeof profile, "--user-data-dir=%s", browser->folder);
    setpgid(0, 0); /* its own processes end with it, see mp_browser_close */
    /* Streams hold what the parent has still to write. */
    const int nowhere = open("/dev/null", O_WRONLY);
    if (dup2(nowhere, STDOUT_FILENO) < 0 || dup2(nowhere, STDERR_FILENO) < 0 ||
        dup2(channel, 3) < 0 || dup2(channel, 4) < 0 || fcntl(3, F_SETFD, 0) ||
        fcntl(4, F_SETFD, 0)) /* where the channel was 4 already, it would be closed */
        _exit(127);
    execv(browser->path, (char *const *)arguments);
    _exit(127);
}

static int start(struct mp_browser *browser, struct mp_error *error) {
    int ends[2];
    const char *temporary = getenv("TMPDIR");
    MP_TRY(mp_browser_find(browser->path, error));
    snprintf(browser->folder, sizeof browser->folder, "%.200s/moeperf-browser-XXXXXX",
             temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(browser->folder)) {
        mp_fail(error, MP_EIO, "%s: %s", browser->folder, strerror(errno));
        *browser->folder = '\0';
        return MP_EIO;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return mp_fail(error, MP_EIO, "%s: %s", browser->path, strerror(errno));
    browser->channel = ends[0];
    browser->pid = fork();
    if (browser->pid == 0)
        become(browser, ends[1]);
    close(ends[1]);
    return browser->pid > 0 ? MP_OK
                            : mp_fail(error, MP_EIO, "%s: %s", browser->path, strerror(errno));
}

/* ---- messages ---- */

static int send_all(const struct mp_browser *browser, const char *text, struct mp_error *error) {
    for (size_t rest = strlen(text) + 1; rest > 0;) {
        ssize_t sent = send(browser->channel, text, rest, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return mp_fail(error, MP_EIO, "%s, which draws charts, ended: %s", browser->path,
                           strerror(errno));
        text += sent > 0 ? sent : 0;
        rest -= sent > 0 ? (size_t)sent : 0;
    }
    return MP_OK;
}

/* More of what it says, behind what is there. */
static int receive(struct mp_browser *browser, struct mp_error *error) {
    enum { PART = 1 << 16 };
    struct pollfd wait = {.fd = browser->channel, .events = POLLIN};
    char *more = realloc(browser->got, browser->got_size + PART);
    if (!more)
        return mp_no_memory(error);
    browser->got = more;
    const int ready = poll(&wait, 1, ANSWER_MS);
    if (ready == 0)
        return mp_fail(error, MP_EIO, "%s, which draws charts, does not answer", browser->path);
    if (ready < 0)
        return MP_OK; /* a signal came */
    ssize_t size = recv(browser->channel, more + browser->got_size, PART, 0);
    if (size <= 0)
        return mp_fail(error, MP_EIO,
                       "%.200s, which draws charts, ended; %.200s --headless --dump-dom "
                       "about:blank says why",
                       browser->path, browser->path);
    browser->got_size += (size_t)size;
    return MP_OK;
}

/* The next message. */
static int next(struct mp_browser *browser, json_t **message, struct mp_error *error) {
    const char *end;
    json_error_t fault;
    size_t looked = 0;
    while (!(end = browser->got_size > looked
                       ? memchr(browser->got + looked, 0, browser->got_size - looked)
                       : NULL)) {
        looked = browser->got_size;
        MP_TRY(receive(browser, error));
    }
    const size_t length = (size_t)(end - browser->got);
    *message = json_loadb(browser->got, length, 0, &fault);
    browser->got_size -= length + 1;
    memmove(browser->got, end + 1, browser->got_size);
    return *message ? MP_OK : mp_fail(error, MP_EIO, "the browser says: %s", fault.text);
}

static const char *text_at(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* Calls a method; consumes `parameters`.  What it returns, to be given up. */
static int call(struct mp_browser *browser, const char *method, json_t *parameters, json_t **result,
                struct mp_error *error) {
    MP_AUTO(json)
    json_t *asked = json_pack("{s:i, s:s, s:o, s:s*}", "id", ++browser->calls, "method", method,
                              "params", parameters, "sessionId", browser->session);
    MP_AUTO(text) char *text = asked ? json_dumps(asked, JSON_COMPACT) : NULL;
    *result = NULL;
    MP_TRY(text ? send_all(browser, text, error) : mp_no_memory(error));
    while (!*result) {
        MP_AUTO(json) json_t *message = NULL;
        MP_TRY(next(browser, &message, error));
        if (json_integer_value(json_object_get(message, "id")) != browser->calls)
            continue;
        const char *why = text_at(json_object_get(message, "error"), "message");
        *result = json_incref(json_object_get(message, "result"));
        if (!*result)
            return mp_fail(error, MP_EIO, "the browser refuses %s: %.300s", method,
                           *why ? why : "it does not say why");
    }
    return MP_OK;
}

/* ---- the page ---- */

/* Finds the page that it opened, and speaks with that from here on. */
static int attach(struct mp_browser *browser, struct mp_error *error) {
    MP_AUTO(json) json_t *result = NULL, *attached = NULL;
    json_t *target;
    const char *page = NULL;
    size_t i;
    MP_TRY(call(browser, "Target.getTargets", json_object(), &result, error));
    json_array_foreach(json_object_get(result, "targetInfos"), i, target) {
        if (!strcmp(text_at(target, "type"), "page"))
            page = text_at(target, "targetId");
    }
    if (!page)
        return mp_fail(error, MP_EIO, "the browser opened no page");
    MP_TRY(call(browser, "Target.attachToTarget",
                json_pack("{s:s, s:b}", "targetId", page, "flatten", 1), &attached, error));
    browser->session = strdup(text_at(attached, "sessionId"));
    return browser->session ? MP_OK : mp_no_memory(error);
}

int mp_browser_open(struct mp_browser **opened, const char *html, struct mp_error *error) {
    MP_AUTO(browser) struct mp_browser *browser = mp_new(1, sizeof *browser);
    *opened = NULL;
    if (!browser)
        return mp_no_memory(error);
    browser->channel = -1;
    MP_TRY(start(browser, error));
    MP_TRY(attach(browser, error));
    MP_AUTO(json) json_t *tree = NULL, *result = NULL;
    MP_TRY(call(browser, "Page.getFrameTree", json_object(), &tree, error));
    const json_t *frame = json_object_get(json_object_get(tree, "frameTree"), "frame");
    MP_TRY(call(browser, "Page.setDocumentContent",
                json_pack("{s:s, s:s}", "frameId", text_at(frame, "id"), "html", html), &result,
                error));
    *opened = browser;
    browser = NULL;
    return MP_OK;
}

int mp_browser_evaluate(struct mp_browser *browser, const char *expression, json_t **value,
                        struct mp_error *error) {
    MP_AUTO(json) json_t *result = NULL;
    *value = NULL;
    MP_TRY(call(browser, "Runtime.evaluate",
                json_pack("{s:s, s:b, s:b}", "expression", expression, "awaitPromise", 1,
                          "returnByValue", 1),
                &result, error));
    const json_t *thrown = json_object_get(result, "exceptionDetails");
    const char *why = text_at(json_object_get(thrown, "exception"), "description");
    if (thrown)
        return mp_fail(error, MP_EIO, "the page's script fails: %.*s", (int)strcspn(why, "\n"),
                       why);
    *value = json_incref(json_object_get(json_object_get(result, "result"), "value"));
    return MP_OK;
}

/* Base 64 (RFC 4648) without line breaks. */
static void decode(const char *text, FILE *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    int count = 0;
    for (const char *digit; *text && (digit = strchr(digits, *text)); text++) {
        bits = bits << 6 | (uint32_t)(digit - digits);
        count += 6;
        if (count < 8)
            continue;
        count -= 8;
        fputc((int)(bits >> count & 0xff), out);
    }
}

int mp_browser_print(struct mp_browser *browser, double width, double height, const char *path,
                     struct mp_error *error) {
    MP_AUTO(json) json_t *result = NULL;
    struct mp_whole_file file;
    MP_TRY(call(browser, "Page.printToPDF",
                json_pack("{s:f, s:f, s:i, s:i, s:i, s:i, s:s}", "paperWidth", width, "paperHeight",
                          height, "marginTop", 0, "marginBottom", 0, "marginLeft", 0, "marginRight",
                          0, "pageRanges", "1"),
                &result, error));
    MP_TRY(mp_whole_file_open(&file, path, error));
    decode(text_at(result, "data"), file.stream);
    return mp_whole_file_close(&file, MP_OK, error);
}

/* ---- its end ---- */

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place) {
    (void)status, (void)type, (void)place;
    remove(path);
    return 0;
}

void mp_browser_close(struct mp_browser *browser) {
    if (!browser)
        return;
    if (browser->channel >= 0)
        close(browser->channel); /* at which it ends, as do its own processes */
    if (browser->pid > 0) {
        kill(browser->pid, SIGTERM);
        waitpid(browser->pid, NULL, 0);
        kill(-browser->pid, SIGKILL); /* those that it left behind */
    }
    /* As often as it takes: what ends just now can still write there, which keeps a folder. */
    for (int i = 0; *browser->folder && i < REMOVALS && !access(browser->folder, F_OK); i++) {
        if (i > 0)
            usleep(REMOVAL_US);
        nftw(browser->folder, remove_entry, FOLDERS_OPEN, FTW_DEPTH | FTW_PHYS);
    }
    free(browser->session);
    free(browser->got);
    free(browser);
}
