#include "results/export/lanes.h"

int lanes_take(struct lanes *lanes, int64_t start_ns, int64_t end_ns) {
    for (int l = 0; l < LANES; l++) {
        int64_t *open = lanes->lane[l].end_ns;
        int *depth = &lanes->lane[l].depth;
        while (*depth > 0 && open[*depth - 1] <= start_ns)
            --*depth;
        if (*depth == LANE_DEPTH || (*depth > 0 && open[*depth - 1] < end_ns))
            continue;
        open[(*depth)++] = end_ns;
        lanes->used = l + 1 > lanes->used ? l + 1 : lanes->used;
        return l;
    }
    return LANES;
}
