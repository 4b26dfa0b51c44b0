#include "harness/predict/ports.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

void mp_traffic_destroy(struct mp_traffic *traffic) {
    if (!traffic)
        return;
    if (traffic->bytes) {
        free(traffic->bytes->rows);
        free(traffic->bytes->columns);
        free(traffic->bytes->curve[MP_SENDING].total);
        free(traffic->bytes->self);
    }
    free(traffic->bytes);
    free(traffic);
}

/* Eight figures per lane in one piece. */
static bool create_curves(struct mp_port_bytes *bytes, size_t lanes) {
    float *memory = calloc(8 * lanes + 1, sizeof *memory);
    if (!memory)
        return false;
    for (int way = MP_SENDING; way <= MP_RECEIVING; way++) {
        struct mp_port_curve *curve = &bytes->curve[way];
        curve->total = memory + (size_t)way * 4 * lanes;
        curve->count = curve->total + lanes;
        curve->slope = curve->count + lanes;
        curve->rest = curve->slope + lanes;
    }
    return true;
}

int mp_traffic_create(const struct mp_network *network, struct mp_traffic **traffic,
                      struct mp_error *error) {
    struct mp_traffic *new = calloc(1, sizeof *new);
    struct mp_port_bytes *bytes = new ? calloc(1, sizeof *bytes) : NULL;
    if (!bytes)
        goto no_memory;
    new->bytes = bytes;
    bytes->rows = calloc(network->floats + 1, sizeof *bytes->rows);
    bytes->columns = calloc(network->floats + 1, sizeof *bytes->columns);
    bytes->self = calloc((size_t)network->ranks, sizeof *bytes->self);
    if (!bytes->rows || !bytes->columns || !bytes->self || !create_curves(bytes, network->lanes))
        goto no_memory;
    new->network = network;
    new->all = bytes->rows;
    if (network->levels > 0) { /* else there is one rank, and nothing but its copies */
        new->all += network->level[network->levels - 1].matrix;
        new->stride = (size_t)network->level[network->levels - 1].stride;
    }
    *traffic = new;
    return MP_OK;

no_memory:
    mp_traffic_destroy(new);
    return mp_fail(error, MP_ENOMEM, "network: no memory for the bytes between %d ranks",
                   network->ranks);
}

/* ---- filling ---- */

void mp_traffic_clear(struct mp_traffic *traffic) {
    const struct mp_network *network = traffic->network;
    memset(traffic->all, 0,
           sizeof *traffic->all * (traffic->stride ? (size_t)network->ranks * traffic->stride : 1));
    traffic->bytes->arranged = false;
}

/* Copies the squares of a level's groups from the rows of all levels, or back there. */
static void move_squares(const struct mp_traffic *traffic, const struct mp_port_level *level,
                         bool back) {
    size_t bytes = (size_t)level->span * sizeof(float);
    for (int rank = 0; rank < traffic->network->ranks; rank++) {
        float *square = traffic->bytes->rows + level->matrix + (size_t)rank * (size_t)level->stride;
        float *all =
            traffic->all + (size_t)rank * traffic->stride + rank / level->span * level->span;
        memcpy(back ? all : square, back ? square : all, bytes);
    }
}

/* Empties the squares of the nearer groups, whose bytes are theirs. */
static void clear_squares(float *rows, int ranks, int span, int stride, int near) {
    for (int rank = 0; rank < ranks; rank++)
        memset(rows + (size_t)rank * (size_t)stride + rank % span / near * near, 0,
               (size_t)near * sizeof *rows);
}

/* Puts every level's bytes back where they are added.  Rare, and kept out of the way of adding. */
static void __attribute__((noinline, cold)) gather(const struct mp_traffic *traffic) {
    const struct mp_network *network = traffic->network;
    const struct mp_port_bytes *bytes = traffic->bytes;
    /* From far to near: the square of a level has holes that the nearer ones fill. */
    for (int l = network->levels - 2; l >= 0; l--)
        move_squares(traffic, &network->level[l], true);
    for (int rank = 0; rank < network->ranks; rank++)
        traffic->all[(size_t)rank * (traffic->stride + 1)] = (float)bytes->self[rank];
    traffic->bytes->arranged = false;
}

void mp_traffic_add(struct mp_traffic *traffic, int from, int to, double bytes) {
    if (traffic->bytes->arranged)
        gather(traffic);
    traffic->all[(size_t)from * traffic->stride + (size_t)to] += (float)bytes;
}

/* ---- arranging ---- */

/* In blocks, so that both sides stay in the cache. */
static void transpose(const float *rows, int span, int stride, float *columns) {
    size_t row = (size_t)stride;
    for (int top = 0; top < span; top += MP_LANES)
        for (int left = 0; left < span; left += MP_LANES) {
            const float *from = rows + (size_t)top * row + left;
            float *to = columns + (size_t)left * row + top;
            int height = span - top, width = span - left;
            if (height >= MP_LANES && width >= MP_LANES)
                for (int c = 0; c < MP_LANES; c++)
                    for (int r = 0; r < MP_LANES; r++)
                        to[(size_t)c * row + (size_t)r] = from[(size_t)r * row + (size_t)c];
            else
                for (int c = 0; c < MP_LANES && c < width; c++)
                    for (int r = 0; r < MP_LANES && r < height; r++)
                        to[(size_t)c * row + (size_t)r] = from[(size_t)r * row + (size_t)c];
        }
}

/* Messages of each column: how many, their bytes, the sum of squares (in `slope`) and the largest
 * (in `rest`). */
static void measure(const float *restrict rows, int span, int stride, float *restrict total,
                    float *restrict count, float *restrict squares, float *restrict most) {
    int lanes = stride / MP_LANES * MP_LANES; /* says that there is no tail */
    for (int r = 0; r < span; r++, rows += stride)
        for (int c = 0; c < lanes; c++) {
            float x = rows[c];
            total[c] += x;
            count[c] += x > 0 ? 1.0f : 0.0f;
            squares[c] += x * x;
            most[c] = most[c] > x ? most[c] : x;
        }
}

/* Fair sharing, all messages starting together: when one of b bytes is through, every other one has
 * passed b bytes, or all that it has, so that g(b) = sum_k min(b_k, b) bytes have passed.  To know
 * g exactly, messages would have to be sorted; instead it is drawn as two lines, from (0, 0) with
 * slope `count`, as g begins, and to (most, total), where g ends, with the corner placed so that
 * the area below is g's own, most*total - squares/2.  With h the height that is missing to total at
 * the corner b*:
 *   h = (squares - total^2/count) / (most - total/count),   b* = (total - h)/count,
 *   slope = h / (most - b*).
 * Messages of equal size: h is 0, and all of them end together. */
static void draw_curve(int width, float *total, float *count, float *squares, float *most) {
    float all = 0, messages = 0, square = 0, largest = 0;
    for (int i = 0; i < width; i++) {
        all += total[i];
        messages += count[i];
        square += squares[i];
        largest = largest > most[i] ? largest : most[i];
    }
    float mean = all / messages, slope = 0;
    /* Almost equal: the difference of squares would be nothing but rounding. */
    if (messages > 0 && largest > mean * 1.001f) {
        float height = (square - all * mean) / (largest - mean);
        height = height > 0 ? height : 0;
        height = height < all ? height : all;
        slope = height / (largest - (all - height) / messages);
    }
    for (int i = 0; i < width; i++) {
        bool uses = total[i] > 0;
        total[i] = uses ? all : 0;
        count[i] = uses ? messages : 0;
        squares[i] = uses ? slope : 0;
        most[i] = uses ? all - slope * largest : 0;
    }
}

static void draw_curves(const struct mp_port_level *level, const float *rows,
                        const struct mp_port_curve *curve, size_t at) {
    float *total = curve->total + at, *count = curve->count + at, *squares = curve->slope + at,
          *most = curve->rest + at;
    size_t size = (size_t)level->stride * sizeof(float);
    memset(total, 0, size);
    memset(count, 0, size);
    memset(squares, 0, size);
    memset(most, 0, size);
    measure(rows, level->span, level->stride, total, count, squares, most);
    for (int rank = 0; rank < level->span; rank += level->width)
        draw_curve(level->width, total + rank, count + rank, squares + rank, most + rank);
}

void mp_traffic_arrange(const struct mp_traffic *traffic) {
    const struct mp_network *network = traffic->network;
    struct mp_port_bytes *bytes = traffic->bytes;
    if (bytes->arranged)
        return;
    for (int rank = 0; rank < network->ranks; rank++)
        bytes->self[rank] = traffic->all[(size_t)rank * (traffic->stride + 1)];
    for (int l = 0; l + 1 < network->levels; l++)
        move_squares(traffic, &network->level[l], false);
    for (int l = 0; l < network->levels; l++) {
        const struct mp_port_level *level = &network->level[l];
        float *rows = bytes->rows + level->matrix, *columns = bytes->columns + level->matrix;
        size_t square = (size_t)level->span * (size_t)level->stride;
        clear_squares(rows, network->ranks, level->span, level->stride, level->near);
        for (int g = 0; g < level->groups; g++, rows += square, columns += square) {
            size_t at = level->lane + (size_t)g * (size_t)level->stride;
            transpose(rows, level->span, level->stride, columns);
            draw_curves(level, rows, &bytes->curve[MP_RECEIVING], at);
            draw_curves(level, columns, &bytes->curve[MP_SENDING], at);
        }
    }
    bytes->arranged = true;
}

/* ---- asking ---- */

/* Adds up rows of all levels per rank. */
static void add_rows(const struct mp_network *network, const float *rows, double sums[]) {
    memset(sums, 0, (size_t)network->ranks * sizeof *sums);
    for (int l = 0; l < network->levels; l++) {
        const struct mp_port_level *level = &network->level[l];
        for (int rank = 0; rank < network->ranks; rank++) {
            const float *row = rows + level->matrix + (size_t)rank * (size_t)level->stride;
            for (int c = 0; c < level->span; c++)
                sums[rank] += (double)row[c];
        }
    }
}

void mp_traffic_totals(const struct mp_traffic *traffic, double sent[], double received[]) {
    mp_traffic_arrange(traffic);
    if (sent)
        add_rows(traffic->network, traffic->bytes->rows, sent);
    if (received)
        add_rows(traffic->network, traffic->bytes->columns, received);
}
