#include "reference/base/option_choice.h"

#include <string.h>

#include "reference/base/option.h"

bool mp_choice_word(const char *choices, int index, char word[MP_CHOICE_SIZE]) {
    for (; index > 0; index--) {
        choices = strchr(choices, ' ');
        if (!choices)
            return false;
        choices++;
    }
    size_t length = strcspn(choices, " ");
    if (length >= MP_CHOICE_SIZE)
        length = MP_CHOICE_SIZE - 1;
    memcpy(word, choices, length);
    word[length] = '\0';
    return true;
}

int mp_choice_index(const char *choices, const char *word) {
    char known[MP_CHOICE_SIZE];
    for (int index = 0; mp_choice_word(choices, index, known); index++)
        if (strcmp(known, word) == 0)
            return index;
    return -1;
}

bool mp_choice_nearest(const char *choices, const char *word, char nearest[MP_CHOICE_SIZE]) {
    char known[MP_CHOICE_WORDS][MP_CHOICE_SIZE];
    const char *list[MP_CHOICE_WORDS + 1];
    int count = 0;

    while (count < MP_CHOICE_WORDS && mp_choice_word(choices, count, known[count])) {
        list[count] = known[count];
        count++;
    }
    list[count] = NULL;
    const char *found = mp_nearest_word(word, list);
    if (found)
        strcpy(nearest, found);
    return found != NULL;
}

const char *mp_choice_fault(const char *choices) {
    char word[MP_CHOICE_SIZE];

    if (!choices || !choices[0])
        return "a choice needs choices";
    for (int index = 0; mp_choice_word(choices, index, word); index++) {
        if (!word[0])
            return "the choices are parted by more than one blank";
        if (strlen(word) == MP_CHOICE_SIZE - 1 || index == MP_CHOICE_WORDS)
            return "the choices are too long or too many";
        if (mp_choice_index(choices, word) != index)
            return "a choice is there twice";
    }
    return NULL;
}
