#include "reference/base/characters.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int mp_character_decode(const char *text, uint32_t *character) {
    const unsigned char *bytes = (const unsigned char *)text;
    int length = *bytes < 0x80 ? 1 : *bytes >> 5 == 6 ? 2 : *bytes >> 4 == 14 ? 3 : 4;
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (length == 4 && *bytes >> 3 != 30)
        return 0;
    *character = length == 1 ? *bytes : *bytes & (0x7fu >> length);
    for (int i = 1; i < length; i++) {
        if (bytes[i] >> 6 != 2)
            return 0;
        *character = *character << 6 | (bytes[i] & 0x3f);
    }
    bool surrogate = *character >= 0xd800 && *character <= 0xdfff;
    return *character < smallest[length] || *character > 0x10ffff || surrogate ? 0 : length;
}

/* Unicode's categories Cc, Cf, Zl and Zp, as far as terminals act on them, and what XML can't hold.
 */
bool mp_character_is_shown(uint32_t character) {
    static const uint32_t hidden[][2] = {{0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},
                                         {0x61c, 0x61c},   {0x180e, 0x180e}, {0x200b, 0x200f},
                                         {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff},
                                         {0xfff9, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0xe007f}};
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (character >= hidden[i][0] && character <= hidden[i][1])
            return false;
    return true;
}

char *mp_clean_text(char *to, size_t size, const char *text) {
    size_t used = 0;
    while (*text) {
        uint32_t character;
        int length = mp_character_decode(text, &character);
        bool is_good = length > 0 && mp_character_is_shown(character);
        size_t wanted = is_good ? (size_t)length : 1;
        if (used + wanted >= size)
            break;
        if (is_good)
            memmove(to + used, text, wanted);
        else
            to[used] = '?';
        used += wanted;
        text += length ? length : 1;
    }
    to[used] = '\0';
    return to;
}

bool mp_whole_number(const char *text, int64_t least, int64_t most, int64_t *value) {
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    const bool is_one = end != text && !*end && !errno && number >= least && number <= most;
    *value = is_one ? number : *value;
    return is_one;
}

bool mp_real_number(const char *text, const char *unit, double least, double most, double *value) {
    char *end;
    const double number = strtod(text, &end);
    const bool is_one =
        end != text && (!*end || !strcmp(end, unit)) && number >= least && number <= most;
    *value = is_one ? number : *value;
    return is_one;
}

char *mp_text_add(char *text, size_t size, const char *between, const char *format, ...) {
    const size_t length = strlen(text);
    int added = length ? snprintf(text + length, size - length, "%s", between) : 0;
    va_list arguments;
    va_start(arguments, format);
    if (length + (size_t)added < size)
        vsnprintf(text + length + added, size - length - (size_t)added, format, arguments);
    va_end(arguments);
    return text;
}
