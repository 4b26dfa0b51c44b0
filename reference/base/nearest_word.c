/* The known word nearest to a misspelt one. */
#include <stdio.h>
#include <string.h>

#include "reference/base/option.h"

enum { LONGEST_WORD = 64 };

static int smaller(int a, int b) {
    return a < b ? a : b;
}

/* Edit distance with swapped neighbours counted once, by dynamic programming over three rows:
 * row[0] two letters ago, row[1] one letter ago, row[2] now. */
int mp_word_distance(const char *a, const char *b) {
    int a_length = (int)strlen(a), b_length = (int)strlen(b);
    int row[3][LONGEST_WORD + 1];

    if (a_length > LONGEST_WORD || b_length > LONGEST_WORD)
        return 2 * LONGEST_WORD;
    for (int j = 0; j <= b_length; j++)
        row[2][j] = j;
    for (int i = 1; i <= a_length; i++) {
        memcpy(row[0], row[1], sizeof row[0]);
        memcpy(row[1], row[2], sizeof row[1]);
        row[2][0] = i;
        for (int j = 1; j <= b_length; j++) {
            int best = row[1][j - 1] + (a[i - 1] != b[j - 1]);
            best = smaller(best, smaller(row[1][j], row[2][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = smaller(best, row[0][j - 2] + 1);
            row[2][j] = best;
        }
    }
    return row[2][b_length];
}

const char *mp_nearest_word(const char *word, const char *const words[]) {
    int third = (int)(strlen(word) / 3);
    int nearest = (third > 1 ? third : 1) + 1;
    const char *found = NULL;

    for (int index = 0; words[index]; index++) {
        int distance = mp_word_distance(word, words[index]);
        if (distance < nearest) {
            nearest = distance;
            found = words[index];
        }
    }
    return found;
}

struct mp_meant mp_meant(const char *word, const char *const words[]) {
    const char *nearest = mp_nearest_word(word, words);
    struct mp_meant meant = {""};
    if (nearest)
        snprintf(meant.text, sizeof meant.text, "; did you mean \"%.*s\"?", LONGEST_WORD, nearest);
    return meant;
}
