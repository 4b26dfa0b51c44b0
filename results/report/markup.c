#include "results/report/markup.h"

#include "reference/base/characters.h"

/* What stands for the character, or NULL if it stands for itself. */
static const char *escape(uint32_t character) {
    switch (character) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    case '\n':
    case '\t':
    case '\r':
        return " ";
    default:
        return mp_character_is_shown(character) ? NULL : "?";
    }
}

void markup_text(FILE *out, const char *text) {
    while (*text) {
        uint32_t character;
        int length = mp_character_decode(text, &character);
        const char *instead = length ? escape(character) : "?";
        if (instead)
            fputs(instead, out);
        else
            fwrite(text, 1, (size_t)length, out);
        text += length ? length : 1;
    }
}
