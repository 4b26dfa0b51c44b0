#include "harness/suite/command.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/suite/paths.h"
#include "reference/base/arena.h"
#include "reference/base/shell.h"

void mp_command_destroy(struct mp_command *command) {
    if (!command)
        return;
    for (int i = 0; i < command->count; i++)
        free(command->word[i]);
    free(command->word);
    memset(command, 0, sizeof *command);
}

/* Takes `word`, also when it fails or is NULL for want of memory. */
static int add_word(struct mp_command *command, char *word, struct mp_error *error) {
    size_t size = (size_t)command->count + 2;
    char **grown = word ? realloc(command->word, size * sizeof *grown) : NULL;
    if (!grown) {
        free(word);
        return mp_fail(error, MP_ENOMEM, "no memory for a command line");
    }
    command->word = grown;
    grown[command->count++] = word;
    grown[command->count] = NULL;
    return MP_OK;
}

/* What the placeholders of a template stand for. */
struct filling {
    const char *whose, *known; /* for the sentence about an unknown one */
    struct {
        const char *name, *value;
    } placeholder[2];
};

/* What a placeholder "{...}" of `length` bytes stands for, or NULL. */
static const char *placeholder_value(const struct filling *filling, const char *placeholder,
                                     size_t length) {
    for (int i = 0; i < 2; i++)
        if (strlen(filling->placeholder[i].name) == length &&
            !strncmp(placeholder, filling->placeholder[i].name, length))
            return filling->placeholder[i].value;
    return NULL;
}

/* Adds the template's word [from, to) with its placeholders replaced. */
static int add_expanded(struct mp_command *command, const char *from, const char *to,
                        const struct filling *filling, struct mp_error *error) {
    char *word = NULL;
    size_t size;
    FILE *stream = open_memstream(&word, &size);
    if (!stream)
        return mp_fail(error, MP_ENOMEM, "no memory for a command line");
    int code = MP_OK;
    while (from < to && !code) {
        const char *close = *from == '{' ? memchr(from, '}', (size_t)(to - from)) : NULL;
        if (!close) {
            fputc(*from++, stream);
            continue;
        }
        size_t length = (size_t)(close - from) + 1;
        const char *value = placeholder_value(filling, from, length);
        if (value)
            fputs(value, stream);
        else
            code = mp_fail(error, MP_EINVAL, "%s: %.*s is not one of %s", filling->whose,
                           (int)length, from, filling->known);
        from += length;
    }
    fclose(stream);
    if (code) {
        free(word);
        return code;
    }
    return add_word(command, word, error);
}

static int add_arguments(struct mp_command *command, const char *const arguments[],
                         struct mp_error *error) {
    for (; *arguments; arguments++)
        MP_TRY(add_word(command, strdup(*arguments), error));
    return MP_OK;
}

/* Takes away what it made if it fails. */
static int expand(struct mp_command *command, const char *template, const struct filling *filling,
                  const char *const arguments[], struct mp_error *error) {
    int code = MP_OK;
    for (const char *from = template; *from && !code;) {
        size_t length = strcspn(from, " \t\n");
        if (arguments && length == 11 && !strncmp(from, "{arguments}", 11))
            code = add_arguments(command, arguments, error);
        else if (length > 0)
            code = add_expanded(command, from, from + length, filling, error);
        from += length + (from[length] != '\0');
    }
    if (code)
        mp_command_destroy(command);
    return code;
}

int mp_command_create(const char *template, int ranks, const char *program,
                      const char *const arguments[], struct mp_command *command,
                      struct mp_error *error) {
    char number[16];
    memset(command, 0, sizeof *command);
    if (template && (!strstr(template, "{program}") || !strstr(template, "{arguments}")))
        return mp_fail(error, MP_EINVAL,
                       "launcher: \"%.200s\" should contain {program} and {arguments}", template);
    command->has_launcher = template || ranks > 1;
    const char *chosen = template    ? template
                         : ranks > 1 ? MP_COMMAND_TEMPLATE
                                     : "{program} {arguments}";
    snprintf(number, sizeof number, "%d", ranks);
    const struct filling filling = {"launcher",
                                    "{ranks}, {program} and, as a word of its own, {arguments}",
                                    {{"{ranks}", number}, {"{program}", program}}};
    return expand(command, chosen, &filling, arguments, error);
}

/* The words that copy a folder, from a template with {from} and {to}: "scp -qr {from} {to}".
 * Errors: mp_command_create's. */
static int create_copy(const char *template, const char *from, const char *to,
                       struct mp_command *command, struct mp_error *error) {
    const struct filling filling = {"--copy", "{from} and {to}", {{"{from}", from}, {"{to}", to}}};
    memset(command, 0, sizeof *command);
    if (!strstr(template, "{from}") || !strstr(template, "{to}"))
        return mp_fail(error, MP_EINVAL, "--copy: \"%.200s\" should contain {from} and {to}",
                       template);
    return expand(command, template, &filling, NULL, error);
}

char *mp_command_text(const struct mp_command *command) {
    size_t size = 1, used = 0;
    for (int i = 0; i < command->count; i++)
        size += mp_shell_word(NULL, 0, command->word[i]) + 1;
    char *text = calloc(size, 1);
    for (int i = 0; text && i < command->count; i++) {
        if (i > 0)
            text[used++] = ' ';
        used += mp_shell_word(text + used, size - used, command->word[i]);
    }
    return text;
}

/* ---- hosts ---- */

void mp_hosts_destroy(struct mp_hosts *hosts) {
    free(hosts->name);
    *hosts = (struct mp_hosts){0};
}

/* A name may have its domain or not. */
static bool is_this_host(const char *name) {
    char own[MP_HOST_SIZE] = "";
    gethostname(own, sizeof own - 1);
    const size_t length = strcspn(own, ".");
    return !strcmp(name, own) || !strcmp(name, "localhost") ||
           (strcspn(name, ".") == length && !strncmp(name, own, length) &&
            (!name[length] || !own[length]));
}

static int add_host(struct mp_hosts *hosts, const char *name, struct mp_error *error) {
    if (strlen(name) >= MP_HOST_SIZE)
        return mp_fail(error, MP_ELIMIT, "%s: %.40s...: a host's name has at most %d bytes",
                       hosts->file, name, MP_HOST_SIZE - 1);
    for (int i = 0; i < hosts->count; i++)
        if (!strcmp(hosts->name[i], name))
            return MP_OK;
    MP_TRY(MP_GROW(hosts->name, hosts->count, error));
    strcpy(hosts->name[hosts->count++], name);
    return MP_OK;
}

static int read_lines(struct mp_hosts *hosts, FILE *stream, struct mp_error *error) {
    MP_AUTO(text) char *line = NULL;
    size_t size = 0;
    int named = 0;
    while (getline(&line, &size, stream) >= 0) {
        char *name = line + strspn(line, " \t");
        name[strcspn(name, " \t\r\n#")] = '\0';
        named += *name != '\0';
        if (*name && !is_this_host(name))
            MP_TRY(add_host(hosts, name, error));
    }
    return named > 0
               ? MP_OK
               : mp_fail(error, MP_EINVAL, "%s: no host is in it; each is the first word of a line",
                         hosts->file);
}

int mp_hosts_read(const char *file, const char *copy, struct mp_hosts *hosts,
                  struct mp_error *error) {
    struct mp_command unused;
    *hosts = (struct mp_hosts){.file = file, .copy = copy};
    if (copy && !file)
        return mp_fail(error, MP_EINVAL, "--copy takes --hosts FILE: which hosts to copy from");
    if (copy) {
        MP_TRY(create_copy(copy, "", "", &unused, error));
        mp_command_destroy(&unused);
    }
    if (!file)
        return MP_OK;
    MP_AUTO(file) FILE *stream = fopen(file, "re");
    return stream ? read_lines(hosts, stream, error) : mp_fail_errno(error, "%s", file);
}

/* ---- copies ---- */

struct copy {
    struct mp_command command;
    pid_t pid; /* 0: not started */
};

static int start(const struct mp_hosts *hosts, const char *host, const char *folder, bool is_spread,
                 struct copy *copy, struct mp_error *error) {
    char parent[MP_PATH_SIZE], there[MP_PATH_SIZE + MP_HOST_SIZE];
    snprintf(parent, sizeof parent, "%s", folder);
    char *slash = strrchr(parent, '/');
    slash[slash == parent] = '\0'; /* that of "/a" is "/" */
    snprintf(there, sizeof there, "%s:%s", host, is_spread ? parent : folder);
    MP_TRY(create_copy(hosts->copy, is_spread ? folder : there, is_spread ? there : parent,
                       &copy->command, error));
    int failed =
        posix_spawnp(&copy->pid, copy->command.word[0], NULL, NULL, copy->command.word, environ);
    if (failed) {
        copy->pid = 0;
        return mp_fail(error, MP_EIO, "can't start %s: %s", copy->command.word[0],
                       strerror(failed));
    }
    return MP_OK;
}

static int finish(struct copy *copy, struct mp_error *error) {
    int status = 0, code = MP_OK;
    while (copy->pid > 0 && waitpid(copy->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (copy->pid > 0 && status != 0) {
        char *text = mp_command_text(&copy->command);
        code = mp_fail(error, MP_EIO, "%s: ended with %s %d", text ? text : copy->command.word[0],
                       WIFSIGNALED(status) ? "signal" : "status",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        free(text);
    }
    mp_command_destroy(&copy->command);
    return code;
}

static int copy_all(const struct mp_hosts *hosts, const char *folder, bool is_spread,
                    struct mp_error *error) {
    if (!hosts || !hosts->copy || hosts->count == 0)
        return MP_OK;
    if (*folder != '/' || strlen(folder) >= MP_PATH_SIZE)
        return mp_fail(
            error, MP_EINVAL,
            "%.200s: a folder on the hosts' own disks is to be named from / on, as it is "
            "the same on all of them",
            folder);
    struct copy *copy = calloc((size_t)hosts->count, sizeof *copy);
    int code = copy ? MP_OK : mp_fail(error, MP_ENOMEM, "no memory for %d hosts", hosts->count);
    for (int i = 0; i < hosts->count && !code; i++)
        code = start(hosts, hosts->name[i], folder, is_spread, &copy[i], error);
    for (int i = 0; copy && i < hosts->count; i++) {
        int ended = finish(&copy[i], code ? NULL : error);
        code = code ? code : ended;
    }
    free(copy);
    return code;
}

int mp_hosts_spread(const struct mp_hosts *hosts, const char *folder, struct mp_error *error) {
    return copy_all(hosts, folder, true, error);
}

int mp_hosts_gather(const struct mp_hosts *hosts, const char *folder, struct mp_error *error) {
    return copy_all(hosts, folder, false, error);
}
