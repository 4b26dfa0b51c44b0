#include "baselines/hiermoe/depth.h"

#include <stdlib.h>
#include <string.h>

/* A size in the list, and what is behind it; false: it is none. */
static bool read_size(const struct mp_topology *topology, const char **text, int *size) {
    char *end = NULL;
    if (strncmp(*text, "node", 4) == 0) {
        *size = mp_topology_node_end(topology, 0);
        *text += 4;
        return **text == ':' || **text == '\0';
    }
    long value = strtol(*text, &end, 10);
    bool read = end != *text && value >= 1 && value <= topology->ranks;
    *size = read ? (int)value : 0;
    *text = end;
    return read && (*end == ':' || *end == '\0');
}

static int read_hierarchy(const struct mp_topology *topology, const char *hierarchy,
                          struct mp_levels *levels, struct mp_error *error) {
    const char *text = hierarchy;
    int size, before = 0;
    do {
        if (!read_size(topology, &text, &size))
            return mp_fail(error, MP_EINVAL,
                           "hiermoe hierarchy: \"%s\" is no list of group sizes, \"node\" or 1 .. "
                           "%d ranks, such as node:4:2",
                           hierarchy, topology->ranks);
        if (levels->count == MP_MOST_LEVELS)
            return mp_fail(error, MP_EINVAL, "hiermoe hierarchy: %s has more than %d levels",
                           hierarchy, MP_MOST_LEVELS - 1);
        if (before && (size < 2 || size >= before || before % size != 0))
            return mp_fail(error, MP_EINVAL,
                           "hiermoe hierarchy: groups of %d ranks can't be divided into groups of "
                           "%d; a level needs smaller ones, of 2 or more, that divide those around "
                           "them",
                           before, size);
        mp_levels_add(levels, size);
        before = size;
    } while (*text++ == ':');
    return MP_OK;
}

/* Of a list of exactly so many; false: it is none. */
static bool read_lines(const char *text, int count, struct mp_depth_line line[]) {
    for (int i = 0; i < count; i++) {
        char *end;
        line[i].alpha = strtod(text, &end);
        if (end == text || *end != '/')
            return false;
        text = end + 1;
        line[i].beta = strtod(text, &end);
        if (end == text || *end != (i + 1 < count ? ':' : '\0'))
            return false;
        text = end + 1;
        if (!(line[i].alpha >= 0 && line[i].alpha < 1 && line[i].beta >= 0 && line[i].beta < 1))
            return false;
    }
    return true;
}

/* Ranks of a group side by side: the bytes of all go with this many times a rank's bandwidth. */
static struct mp_depth_line usual_line(const struct mp_setting *setting,
                                       const struct mp_depth_texts *texts, int ranks) {
    bool crosses = ranks > setting->topology.ranks_per_node;
    double of_rank = crosses ? setting->bandwidth / setting->topology.ranks_per_node
                             : setting->bandwidth_in_node;
    return (struct mp_depth_line){crosses ? texts->latency : texts->latency_in_node,
                                  1 / (ranks * of_rank)};
}

/* All lines of a kind: between groups of each level, or straight to ranks. */
static int find_lines(const struct mp_setting *setting, const struct mp_depth_texts *texts,
                      bool straight, const struct mp_levels *levels, struct mp_depth_line line[],
                      struct mp_error *error) {
    const char *text = straight ? texts->intra : texts->inter;
    const int count = straight ? levels->count : levels->count - 1;
    const int ranks = setting->topology.ranks;
    for (int i = 0; i < count; i++)
        line[i] = usual_line(setting, texts, i > 0 ? levels->groups[i - 1].ranks_per_node : ranks);
    if (*text && !read_lines(text, count, line))
        return mp_fail(error, MP_EINVAL,
                       "hiermoe %s: \"%s\" is no list of %d alpha/beta, s and s/B, 0 .. 1, such as "
                       "5e-4/5e-10%s",
                       straight ? "intra" : "inter", text, count, count > 1 ? ":3e-4/1e-10" : "");
    for (int i = 0; i < count; i++) {
        line[i].beta *= straight ? ranks : mp_topology_nodes(&levels->groups[i]);
        line[i].beta /= i > 0 ? mp_topology_nodes(&levels->groups[i - 1]) : 1;
    }
    return MP_OK;
}

int mp_depths_create(const struct mp_setting *setting, const struct mp_depth_texts *texts,
                     struct mp_depths *depths, struct mp_error *error) {
    *depths = (struct mp_depths){.levels = mp_levels_of_ranks(setting->topology.ranks)};
    struct mp_levels *levels = &depths->levels;
    MP_TRY(read_hierarchy(&setting->topology, texts->hierarchy, levels, error));
    MP_TRY(find_lines(setting, texts, false, levels, depths->inter, error));
    return find_lines(setting, texts, true, levels, depths->intra, error);
}

double mp_depths_seconds(const struct mp_depths *depths, int depth, const double tokens[],
                         double row_bytes) {
    const struct mp_depth_line *last = &depths->intra[depth - 1];
    double seconds = last->alpha + last->beta * tokens[depths->levels.count - 1] * row_bytes;
    for (int i = 0; i + 1 < depth; i++)
        seconds += depths->inter[i].alpha + depths->inter[i].beta * tokens[i] * row_bytes;
    return seconds;
}

int mp_depths_best(const struct mp_depths *depths, const double tokens[], double row_bytes) {
    int best = 1;
    double least = mp_depths_seconds(depths, 1, tokens, row_bytes);
    for (int depth = 2; depth <= depths->levels.count; depth++) {
        double seconds = mp_depths_seconds(depths, depth, tokens, row_bytes);
        best = seconds < least ? depth : best;
        least = seconds < least ? seconds : least;
    }
    return best;
}
