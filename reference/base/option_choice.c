#include "reference/base/option_choice.h"

#include <string.h>

static bool copy(const char *from, size_t length, char word[MP_CHOICE_SIZE]) {
    if (length >= MP_CHOICE_SIZE)
        length = MP_CHOICE_SIZE - 1;
    memcpy(word, from, length);
    word[length] = '\0';
    return true;
}

bool option_word(const struct mp_option *row, int index, char word[MP_CHOICE_SIZE]) {
    const char *choices = row->of;
    if (mp_option_kind(row) == MP_OPTION_WORD) {
        const char *const *words = row->of;
        for (; index > 0 && *words; index--)
            words++;
        return *words && copy(*words, strlen(*words), word);
    }
    for (; index > 0; index--) {
        choices = strchr(choices, ' ');
        if (!choices)
            return false;
        choices++;
    }
    return copy(choices, strcspn(choices, " "), word);
}

int option_word_index(const struct mp_option *row, const char *word) {
    char known[MP_CHOICE_SIZE];
    for (int index = 0; option_word(row, index, known); index++)
        if (strcmp(known, word) == 0)
            return index;
    return -1;
}

const char *option_word_fault(const struct mp_option *row) {
    char word[MP_CHOICE_SIZE];

    if (!row->of || (mp_option_kind(row) == MP_OPTION_CHOICE && !*(const char *)row->of))
        return "a choice needs choices";
    for (int index = 0; option_word(row, index, word); index++) {
        if (!word[0])
            return "the choices are parted by more than one blank";
        if (strlen(word) == MP_CHOICE_SIZE - 1 || index == MP_CHOICE_WORDS)
            return "the choices are too long or too many";
        if (option_word_index(row, word) != index)
            return "a choice is there twice";
    }
    return NULL;
}
