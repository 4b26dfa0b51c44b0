#include "reference/base/shell.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                            "_-+=./,:@%";

/* Behind `used` bytes, as far as there is room; how many there would be. */
static size_t add(char *text, size_t size, size_t used, const char *bytes, size_t count) {
    if (used < size)
        memcpy(text + used, bytes, count < size - used ? count : size - used);
    return used + count;
}

size_t mp_shell_word(char *text, size_t size, const char *word) {
    size_t used = 0, length = strspn(word, plain);
    if (length > 0 && !word[length]) {
        used = add(text, size, used, word, length);
    } else {
        used = add(text, size, used, "'", 1);
        for (; *word; word++)
            used = add(text, size, used, *word == '\'' ? "'\\''" : word, *word == '\'' ? 4 : 1);
        used = add(text, size, used, "'", 1);
    }
    if (size > 0)
        text[used < size ? used : size - 1] = '\0';
    return used;
}

static bool is_program(const char *path) {
    struct stat status;
    if (stat(path, &status) || access(path, X_OK))
        return false;
    if (S_ISDIR(status.st_mode))
        errno = EISDIR;
    return !S_ISDIR(status.st_mode);
}

bool mp_shell_search(const char *name, char path[], size_t size) {
    int reason = ENOENT;
    if (strchr(name, '/')) {
        snprintf(path, size, "%s", name);
        return is_program(path);
    }
    for (const char *folder = getenv("PATH"), *end; folder; folder = *end ? end + 1 : NULL) {
        end = folder + strcspn(folder, ":");
        const int written = snprintf(path, size, "%.*s%s%s", (int)(end - folder), folder,
                                     end > folder ? "/" : "./", name);
        if (written < (int)size && is_program(path))
            return true;
        if (written < (int)size && errno == EACCES)
            reason = errno;
    }
    errno = reason;
    return false;
}
