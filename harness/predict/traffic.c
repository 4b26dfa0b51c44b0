#include "harness/predict/ports.h"

#include <stdlib.h>
#include <string.h>

enum {
    MESSAGES_AT_FIRST = 64,
    MESSAGES_KEPT = 4096 /* a longer list is given back when its bytes are arranged */
};

/* ---- life ---- */

static void destroy_matrix(struct mp_port_matrix *matrix) {
    free(matrix->other);
    free(matrix->bytes);
    free(matrix->held[MP_GATES]);
    free(matrix->held[MP_OWN_LIMITS]);
}

void mp_traffic_destroy(struct mp_traffic *traffic) {
    if (!traffic)
        return;
    free(traffic->message);
    destroy_matrix(&traffic->matrix[MP_SENDING]);
    destroy_matrix(&traffic->matrix[MP_RECEIVING]);
    mp_arena_release(&traffic->tables);
    free(traffic);
}

/* Eight figures per lane in one piece. */
static void create_curves(struct mp_arena *tables, struct mp_port_curve curves[2], size_t lanes) {
    float *at;
    MP_TAKE(tables, at, 8 * lanes + 1);
    for (int way = MP_SENDING; at && way <= MP_RECEIVING; way++, at += 4 * lanes)
        curves[way] = (struct mp_port_curve){at, at + lanes, at + 2 * lanes, at + 3 * lanes};
}

int mp_traffic_create(const struct mp_network *network, struct mp_traffic **traffic,
                      struct mp_error *error) {
    MP_AUTO(traffic) struct mp_traffic *new = NULL;
    MP_TRY(MP_NEW(new, 1, error));
    new->network = network;
    new->in_order = true;
    MP_TAKE_EACH(&new->tables, network->lanes / MP_LANES + 1, new->matrix[MP_SENDING].strip,
                 new->matrix[MP_RECEIVING].strip);
    MP_TAKE(&new->tables, new->self, network->ranks);
    create_curves(&new->tables, new->curve, network->lanes);
    if (network->limited)
        create_curves(&new->tables, new->own, network->lanes);
    MP_TRY(mp_arena_check(&new->tables, error));
    *traffic = new;
    new = NULL;
    return MP_OK;
}

/* ---- filling ---- */

void mp_traffic_clear(struct mp_traffic *traffic) {
    traffic->messages = 0;
    traffic->in_order = true;
    traffic->last_from = 0;
    traffic->arranged = false;
}

static void append(struct mp_traffic *traffic, int from, int to, float amount);

static void __attribute__((noinline, cold))
append_growing(struct mp_traffic *traffic, int from, int to, float amount) {
    size_t room = traffic->room ? 2 * traffic->room : MESSAGES_AT_FIRST;
    struct mp_port_message *message = realloc(traffic->message, room * sizeof *message);
    if (!message) {
        traffic->network->memory->failed = true;
        return;
    }
    traffic->message = message;
    traffic->room = room;
    append(traffic, from, to, amount);
}

static inline void append(struct mp_traffic *traffic, int from, int to, float amount) {
    size_t at = traffic->messages;
    if (at == traffic->room) {
        append_growing(traffic, from, to, amount);
        return;
    }
    traffic->in_order &= from >= traffic->last_from;
    traffic->last_from = from;
    traffic->message[at] = (struct mp_port_message){from, to, amount};
    traffic->messages = at + 1;
}

/* Turns arranged bytes into messages again.  Rare, and kept out of the way of adding. */
static void __attribute__((noinline, cold)) gather(struct mp_traffic *traffic) {
    const struct mp_network *network = traffic->network;
    const struct mp_port_matrix *matrix = &traffic->matrix[MP_SENDING];
    mp_traffic_clear(traffic);
    for (int rank = 0; rank < network->ranks; rank++) {
        append(traffic, rank, rank, (float)traffic->self[rank]);
        for (int l = 0; l < network->levels; l++) {
            const struct mp_port_level *level = &network->level[l];
            size_t lane = mp_port_lane(level, rank);
            int base = rank / level->span * level->span;
            const struct mp_port_strip *strip = &matrix->strip[lane / MP_LANES];
            const float *row = mp_port_row(matrix->bytes, strip, lane % MP_LANES);
            for (int t = 0; t < strip->tiles; t++, row += MP_TILE)
                for (int c = 0; c < MP_LANES; c++)
                    if (row[c] > 0)
                        append(traffic, rank,
                               base + matrix->other[strip->first + (size_t)t] * MP_LANES + c,
                               row[c]);
        }
    }
}

static void __attribute__((noinline, cold))
add_after_arranging(struct mp_traffic *traffic, int from, int to, float bytes) {
    gather(traffic);
    append(traffic, from, to, bytes);
}

void mp_traffic_add(struct mp_traffic *traffic, int from, int to, double bytes) {
    if (!(bytes > 0))
        return;
    if (traffic->arranged)
        add_after_arranging(traffic, from, to, (float)bytes);
    else
        append(traffic, from, to, (float)bytes);
}

/* ---- arranging ---- */

/* By sender; messages of one in the order in which they were added, as they are added up in it. */
static bool sort_messages(const struct mp_network *network, struct mp_traffic *traffic) {
    struct mp_port_message *sorted = calloc(traffic->room, sizeof *sorted);
    size_t *count = network->memory->count;
    if (!sorted)
        return false;
    memset(count, 0, ((size_t)network->ranks + 1) * sizeof *count);
    for (size_t i = 0; i < traffic->messages; i++)
        count[traffic->message[i].from + 1]++;
    for (int rank = 0; rank < network->ranks; rank++)
        count[rank + 1] += count[rank];
    for (size_t i = 0; i < traffic->messages; i++)
        sorted[count[traffic->message[i].from]++] = traffic->message[i];
    free(traffic->message);
    traffic->message = sorted;
    traffic->in_order = true;
    return true;
}

/* Room for so many tiles more, at the end. */
static bool reserve_tiles(struct mp_port_matrix *matrix, size_t more) {
    size_t needed = matrix->tiles + more;
    if (needed <= matrix->room)
        return true;
    needed = needed > 2 * matrix->room ? needed : 2 * matrix->room;
    int32_t *other = realloc(matrix->other, needed * sizeof *other);
    matrix->other = other ? other : matrix->other;
    float *bytes = other ? realloc(matrix->bytes, needed * MP_TILE * sizeof *bytes) : NULL;
    matrix->bytes = bytes ? bytes : matrix->bytes;
    matrix->room = bytes ? needed : matrix->room;
    return bytes;
}

/* Messages of a tile at the gates of the ranks from lane `at` on: how many, their bytes, the sum of
 * squares (in `slope`) and the largest (in `rest`). */
static void measure_tile(const float *tile, const struct mp_port_curve *curve, size_t at) {
    const mp_four zero = {0};
    const mp_four_bits one = (mp_four_bits)(zero + 1.0f);
    mp_four total = mp_get_four(curve->total + at), count = mp_get_four(curve->count + at),
            squares = mp_get_four(curve->slope + at), most = mp_get_four(curve->rest + at);
    for (int k = 0; k < MP_LANES; k++) {
        mp_four x = mp_get_four(tile + k * MP_LANES);
        total += x;
        count += (mp_four)((x > zero) & one);
        squares += x * x;
        most = mp_larger_four(x, most);
    }
    mp_put_four(total, curve->total + at);
    mp_put_four(count, curve->count + at);
    mp_put_four(squares, curve->slope + at);
    mp_put_four(most, curve->rest + at);
}

/* Copies the rows of a tile, which are `step` from each other, and empties them. */
static inline void take_tile(float *rows, size_t step, float *to) {
    const mp_four zero = {0};
    for (int k = 0; k < MP_LANES; k++, rows += step, to += MP_LANES) {
        mp_put_four(mp_get_four(rows), to);
        mp_put_four(zero, rows);
    }
}

static inline void transpose_tile(const float *from, float *to) {
    mp_four row[MP_LANES], low[2], high[2];
    for (int k = 0; k < MP_LANES; k++)
        row[k] = mp_get_four(from + k * MP_LANES);
    for (int k = 0; k < 2; k++) {
        low[k] = __builtin_shufflevector(row[2 * k], row[2 * k + 1], 0, 4, 1, 5);
        high[k] = __builtin_shufflevector(row[2 * k], row[2 * k + 1], 2, 6, 3, 7);
    }
    mp_put_four(__builtin_shufflevector(low[0], low[1], 0, 1, 4, 5), to);
    mp_put_four(__builtin_shufflevector(low[0], low[1], 2, 3, 6, 7), to + MP_LANES);
    mp_put_four(__builtin_shufflevector(high[0], high[1], 0, 1, 4, 5), to + 2 * MP_LANES);
    mp_put_four(__builtin_shufflevector(high[0], high[1], 2, 3, 6, 7), to + 3 * MP_LANES);
}

/* The strip of a level that is being filled. */
struct open_strip {
    unsigned first, ranks; /* its own; none: it is closed */
    unsigned base;         /* first rank of the group */
    size_t lane;           /* of that one */
    float *rows;           /* [MP_LANES][stride] */
    uint64_t *present;
    float *row; /* of the sender at hand */
};

/* Moves the rows of an open strip into the senders' matrix and measures what receivers get. */
static bool close_strip(struct mp_traffic *traffic, const struct mp_port_level *level,
                        struct open_strip *open) {
    struct mp_port_matrix *matrix = &traffic->matrix[MP_SENDING];
    int words = level->stride / MP_LANES / MP_PRESENT_BITS + 1;
    size_t first = matrix->tiles;
    if (open->ranks == 0)
        return true;
    if (!reserve_tiles(matrix, (size_t)level->stride / MP_LANES))
        return false;
    for (int word = 0; word < words; word++) {
        for (uint64_t bits = open->present[word]; bits; bits &= bits - 1) {
            int other = word * MP_PRESENT_BITS + __builtin_ctzll(bits);
            float *tile = matrix->bytes + matrix->tiles * MP_TILE;
            matrix->other[matrix->tiles++] = other;
            take_tile(open->rows + other * MP_LANES, (size_t)level->stride, tile);
            measure_tile(tile, &traffic->curve[MP_RECEIVING],
                         open->lane + (size_t)other * MP_LANES);
        }
        open->present[word] = 0;
    }
    matrix->strip[(open->lane + open->first - open->base) / MP_LANES] =
        (struct mp_port_strip){first, (int)(matrix->tiles - first)};
    open->ranks = 0;
    return true;
}

/* The strip of a level is a sender's from now on. */
static bool open_strip(struct mp_traffic *traffic, const struct mp_port_level *level,
                       struct open_strip *open, unsigned from) {
    unsigned group = from / (unsigned)level->span, own = from % (unsigned)level->span;
    if (!close_strip(traffic, level, open))
        return false;
    open->base = from - own;
    open->first = from - own % MP_LANES;
    open->ranks = open->base + (unsigned)level->span - open->first;
    open->ranks = open->ranks < MP_LANES ? open->ranks : MP_LANES;
    open->lane = level->lane + (size_t)group * (size_t)level->stride;
    return true;
}

static bool open_strips(const struct mp_network *network, struct mp_traffic *traffic,
                        struct open_strip open[], unsigned from) {
    for (int l = 0; l < network->levels; l++) {
        const struct mp_port_level *level = &network->level[l];
        if (from - open[l].first >= open[l].ranks && !open_strip(traffic, level, &open[l], from))
            return false;
        open[l].row = open[l].rows + (size_t)(from - open[l].first) * (size_t)level->stride;
    }
    return true;
}

/* Marks the tiles of a row that have bytes. */
static void mark_tiles(const float *row, int stride, uint64_t *present) {
    for (int tile = 0; tile < stride / MP_LANES; tile++, row += MP_LANES) {
        bool some = row[0] + row[1] + row[2] + row[3] > 0;
        present[tile / MP_PRESENT_BITS] |= (uint64_t)some << tile % MP_PRESENT_BITS;
    }
}

static void move_square(float *restrict from, int count, float *restrict to) {
    for (int i = 0; i < count; i++) {
        to[i] = from[i];
        from[i] = 0;
    }
}

/* Moves what a sender's row of the farthest level has for nearer levels into their rows. */
static void split_row(const struct mp_network *network, const struct open_strip open[],
                      unsigned from, double *self) {
    for (int l = network->levels - 1; l > 0; l--)
        move_square(open[l].row + (open[l - 1].base - open[l].base), network->level[l].near,
                    open[l - 1].row);
    *self = (double)open[0].row[from - open[0].base];
    open[0].row[from - open[0].base] = 0;
    for (int l = 0; l + 1 < network->levels; l++)
        mark_tiles(open[l].row, network->level[l].stride, open[l].present);
}

/* Where a sender's bytes to all others are put together: its row of the farthest level. */
struct target {
    float *row;
    uint64_t *present;
    unsigned near, base; /* ranks of the sender's group of the next nearer level, and the first */
};

static struct target target_of(const struct mp_network *network, const struct open_strip open[],
                               unsigned from) {
    int last = network->levels - 1;
    unsigned near = (unsigned)network->level[last].near;
    return (struct target){open[last].row, open[last].present, near, from / near * near};
}

/* Whether they are for the nearer group. */
static inline bool add_bytes(const struct target *target, int32_t to, float amount) {
    unsigned column = (unsigned)to, tile = column / MP_LANES;
    bool near = column - target->base < target->near;
    target->row[column] += amount;
    target->present[tile / MP_PRESENT_BITS] |= (uint64_t)!near << tile % MP_PRESENT_BITS;
    return near;
}

static void begin_strips(const struct mp_network *network, struct open_strip open[]) {
    float *rows = network->memory->rows;
    uint64_t *present = network->memory->present;
    for (int l = 0; l < network->levels; l++) {
        open[l] = (struct open_strip){.rows = rows, .present = present};
        rows += MP_LANES * network->level[l].stride;
        present += network->level[l].stride / MP_LANES / MP_PRESENT_BITS + 1;
    }
}

static bool close_strips(const struct mp_network *network, struct mp_traffic *traffic,
                         struct open_strip open[]) {
    for (int l = 0; l < network->levels; l++)
        if (!close_strip(traffic, &network->level[l], &open[l]))
            return false;
    return true;
}

/* The senders' matrix, from messages. */
static bool fill_rows(const struct mp_network *network, struct mp_traffic *traffic) {
    const struct mp_port_message *message = traffic->message, *end = message + traffic->messages;
    struct open_strip open[MP_CLUSTER_LEVELS] = {0};
    if (network->levels < 1) { /* one rank, with copies alone */
        for (; message < end; message++)
            traffic->self[0] = (double)((float)traffic->self[0] + message->bytes);
        return true;
    }
    begin_strips(network, open);
    while (message < end) {
        int from = message->from;
        if (!open_strips(network, traffic, open, (unsigned)from))
            return false;
        const struct target target = target_of(network, open, (unsigned)from);
        bool near = false;
        for (; message < end && message->from == from; message++)
            near |= add_bytes(&target, message->to, message->bytes);
        if (near)
            split_row(network, open, (unsigned)from, &traffic->self[from]);
    }
    return close_strips(network, traffic, open);
}

/* The senders' matrix, as it is said row by row. */
static bool ask_rows(const struct mp_network *network, struct mp_traffic *traffic,
                     mp_traffic_rows *rows_of, void *context, double row_bytes) {
    struct open_strip open[MP_CLUSTER_LEVELS] = {0};
    uint32_t *sent = network->memory->sent;
    int32_t *to = network->memory->to;
    if (network->levels < 1) {
        rows_of(context, 0, sent, to);
        traffic->self[0] = (double)(float)(sent[0] * row_bytes);
        sent[0] = 0;
        return true;
    }
    begin_strips(network, open);
    for (int from = 0; from < network->ranks; from++) {
        int count = rows_of(context, from, sent, to);
        if (!open_strips(network, traffic, open, (unsigned)from))
            return false;
        const struct target target = target_of(network, open, (unsigned)from);
        bool near = false;
        for (int i = 0; i < count; i++) {
            uint32_t *some = &sent[to[i]];
            near |= add_bytes(&target, to[i], (float)(*some * row_bytes));
            *some = 0;
        }
        if (near)
            split_row(network, open, (unsigned)from, &traffic->self[from]);
    }
    return close_strips(network, traffic, open);
}

/* How many tiles each strip of receivers has, and where they begin. */
static bool lay_out_columns(const struct mp_port_level *level, const struct mp_port_matrix *rows,
                            struct mp_port_matrix *columns, size_t first) {
    const struct mp_port_strip *from = rows->strip + first;
    struct mp_port_strip *to = columns->strip + first;
    int strips = level->stride / MP_LANES;
    for (int s = 0; s < strips; s++)
        for (int t = 0; t < from[s].tiles; t++)
            to[rows->other[from[s].first + (size_t)t]].tiles++;
    for (int s = 0; s < strips; s++) {
        if (!reserve_tiles(columns, (size_t)to[s].tiles))
            return false;
        to[s].first = columns->tiles;
        columns->tiles += (size_t)to[s].tiles;
        to[s].tiles = 0; /* so far */
    }
    return true;
}

/* One strip of senders into the receivers' matrix; measures what is sent. */
static void transpose_strip(const struct mp_traffic *traffic, size_t group_lane, int own) {
    const struct mp_port_matrix *rows = &traffic->matrix[MP_SENDING];
    const struct mp_port_matrix *columns = &traffic->matrix[MP_RECEIVING];
    const struct mp_port_strip *strip = &rows->strip[group_lane / MP_LANES + (size_t)own];
    for (size_t t = strip->first; t < strip->first + (size_t)strip->tiles; t++) {
        struct mp_port_strip *target =
            &columns->strip[group_lane / MP_LANES + (size_t)rows->other[t]];
        size_t at = target->first + (size_t)target->tiles++;
        columns->other[at] = own;
        transpose_tile(rows->bytes + t * MP_TILE, columns->bytes + at * MP_TILE);
        measure_tile(columns->bytes + at * MP_TILE, &traffic->curve[MP_SENDING],
                     group_lane + (size_t)own * MP_LANES);
    }
}

/* The receivers' matrix. */
static bool fill_columns(const struct mp_network *network, struct mp_traffic *traffic) {
    for (int l = 0; l < network->levels; l++) {
        const struct mp_port_level *level = &network->level[l];
        for (int g = 0; g < level->groups; g++) {
            size_t lane = level->lane + (size_t)g * (size_t)level->stride;
            if (!lay_out_columns(level, &traffic->matrix[MP_SENDING],
                                 &traffic->matrix[MP_RECEIVING], lane / MP_LANES))
                return false;
            for (int s = 0; s < level->stride / MP_LANES; s++)
                transpose_strip(traffic, lane, s);
        }
    }
    return true;
}

/* What a message costs, as bytes at the bandwidth of a level's gates or of its ranks' limits. */
static float message_bytes(const struct mp_port_level *level, bool own) {
    return (float)(level->message_cost * (own ? level->rank_bandwidth : level->bandwidth));
}

/* What the messages of a level hold its gates for, tile by tile. */
static void hold_level(const struct mp_port_level *level, const struct mp_port_matrix *matrix,
                       int gates) {
    const mp_four zero = {0}, cost = mp_spread_four(message_bytes(level, gates == MP_OWN_LIMITS));
    const struct mp_port_strip *strip = matrix->strip + level->lane / MP_LANES;
    const struct mp_port_strip *past = strip + level->groups * level->stride / MP_LANES;
    for (; strip < past; strip++) {
        size_t end = (strip->first + (size_t)strip->tiles) * MP_TILE;
        for (size_t at = strip->first * MP_TILE; at < end; at += MP_LANES) {
            mp_four bytes = mp_get_four(matrix->bytes + at);
            mp_put_four(mp_choose_four(bytes > zero, bytes + cost, zero), matrix->held[gates] + at);
        }
    }
}

/* Sets what messages hold gates for. */
static bool hold_gates(const struct mp_network *network, struct mp_port_matrix *matrix) {
    int past = !network->priced ? MP_GATES : network->limited ? MP_OWN_LIMITS + 1 : MP_OWN_LIMITS;
    for (int gates = MP_GATES; gates < past; gates++) {
        float *held =
            realloc(matrix->held[gates], (matrix->room + 1) * MP_TILE * sizeof *matrix->bytes);
        if (!held)
            return false;
        matrix->held[gates] = held;
        for (int l = 0; l < network->levels; l++)
            hold_level(&network->level[l], matrix, gates);
    }
    return true;
}

/* Fair sharing, all messages starting together: when one of b bytes is through, every other one has
 * passed b bytes, or all that it has, so that g(b) = sum_k min(b_k, b) bytes have passed.  To know
 * g exactly, messages would have to be sorted; instead it is drawn as two lines, from (0, 0) with
 * slope `count`, as g begins, and to (most, total), where g ends, with the corner placed so that
 * the area below is g's own, most*total - squares/2.  With h the height that is missing to total at
 * the corner b*:
 *   h = (squares - total^2/count) / (most - total/count),   b* = (total - h)/count,
 *   slope = h / (most - b*).
 * Messages of equal size: h is 0, and all of them end together.  What every message costs beside
 * its bytes changes neither h nor the slope; total and largest have it. */
static void draw_curve(int width, float cost, float *total, float *count, float *squares,
                       float *most) {
    float all = 0, messages = 0, square = 0, largest = 0;
    for (int i = 0; i < width; i++) {
        all += total[i];
        messages += count[i];
        square += squares[i];
        largest = largest > most[i] ? largest : most[i];
    }
    if (!(messages > 0))
        return;
    float mean = all / messages, slope = 0;
    /* Almost equal: the difference of squares would be nothing but rounding. */
    if (largest > mean * 1.001f) {
        float height = (square - all * mean) / (largest - mean);
        height = height > 0 ? height : 0;
        height = height < all ? height : all;
        slope = height / (largest - (all - height) / messages);
    }
    all += messages * cost;
    largest += cost;
    for (int i = 0; i < width; i++) {
        bool uses = total[i] > 0;
        total[i] = uses ? all : 0;
        count[i] = uses ? messages : 0;
        squares[i] = uses ? slope : 0;
        most[i] = uses ? all - slope * largest : 0;
    }
}

/* The same of four gates that are a rank's each. */
static void draw_four(float cost, float *total, const float *count, float *squares, float *most) {
    const mp_four zero = {0};
    mp_four all = mp_get_four(total), messages = mp_get_four(count);
    mp_four square = mp_get_four(squares), largest = mp_get_four(most);
    if (!(all[0] + all[1] + all[2] + all[3] > 0))
        return;
    mp_four_bits uses = messages > zero;
    messages = mp_choose_four(uses, messages, zero + 1.0f); /* no division by 0 */
    mp_four mean = all / messages;
    mp_four_bits unequal = largest > mean * 1.001f;
    mp_four height = (square - all * mean) / mp_choose_four(unequal, largest - mean, zero + 1.0f);
    height = mp_choose_four(height > zero, height, zero);
    height = mp_choose_four(height < all, height, all);
    mp_four rise = mp_choose_four(unequal, largest - (all - height) / messages, zero + 1.0f);
    mp_four slope = mp_choose_four(unequal, height / rise, zero);
    if (cost > 0) {
        all += mp_choose_four(uses, messages * cost, zero);
        largest += cost;
        mp_put_four(all, total);
    }
    mp_put_four(mp_choose_four(uses, slope, zero), squares);
    mp_put_four(mp_choose_four(uses, all - slope * largest, zero), most);
}

static void draw_curves(const struct mp_network *network, const struct mp_port_curve *curve,
                        bool own) {
    for (int l = 0; l < network->levels; l++) {
        const struct mp_port_level *level = &network->level[l];
        size_t at = level->lane, past = at + (size_t)(level->groups * level->stride);
        const float cost = message_bytes(level, own);
        for (; (own || level->width == 1) && at < past; at += MP_LANES)
            draw_four(cost, curve->total + at, curve->count + at, curve->slope + at,
                      curve->rest + at);
        for (; at < past; at += (size_t)(level->stride - level->span))
            for (int rank = 0; rank < level->span; rank += level->width, at += (size_t)level->width)
                draw_curve(level->width, cost, curve->total + at, curve->count + at,
                           curve->slope + at, curve->rest + at);
    }
}

/* No bytes at all. */
static void empty(const struct mp_network *network, struct mp_traffic *traffic) {
    for (int way = MP_SENDING; way <= MP_RECEIVING; way++) {
        struct mp_port_matrix *matrix = &traffic->matrix[way];
        memset(matrix->strip, 0, network->lanes / MP_LANES * sizeof *matrix->strip);
        matrix->tiles = 0;
    }
    memset(traffic->curve[MP_SENDING].total, 0, 8 * network->lanes * sizeof(float));
    if (network->limited)
        memset(traffic->own[MP_SENDING].total, 0, 8 * network->lanes * sizeof(float));
    memset(traffic->self, 0, (size_t)network->ranks * sizeof *traffic->self);
}

/* What arranging has left behind when it ran out of memory. */
static void __attribute__((cold))
give_up(const struct mp_network *network, struct mp_traffic *traffic) {
    struct mp_port_memory *memory = network->memory;
    memset(memory->rows, 0, memory->row_floats * sizeof *memory->rows);
    memset(memory->present, 0, memory->present_words * sizeof *memory->present);
    memset(memory->sent, 0, (size_t)network->ranks * sizeof *memory->sent);
    memory->failed = true;
    empty(network, traffic);
}

/* The senders' matrix is there, or not. */
static void finish(const struct mp_network *network, struct mp_traffic *traffic, bool filled) {
    if (filled && fill_columns(network, traffic) &&
        hold_gates(network, &traffic->matrix[MP_SENDING]) &&
        hold_gates(network, &traffic->matrix[MP_RECEIVING])) {
        if (network->limited)
            memcpy(traffic->own[MP_SENDING].total, traffic->curve[MP_SENDING].total,
                   8 * network->lanes * sizeof(float));
        for (int way = MP_SENDING; way <= MP_RECEIVING; way++) {
            draw_curves(network, &traffic->curve[way], false);
            if (network->limited)
                draw_curves(network, &traffic->own[way], true);
        }
    } else {
        give_up(network, traffic);
    }
    traffic->arranged = true;
    traffic->messages = 0;
    if (traffic->room > MESSAGES_KEPT) {
        free(traffic->message);
        traffic->message = NULL;
        traffic->room = 0;
    }
}

void mp_traffic_arrange(struct mp_traffic *traffic) {
    const struct mp_network *network = traffic->network;
    if (traffic->arranged)
        return;
    empty(network, traffic);
    finish(network, traffic,
           (traffic->in_order || sort_messages(network, traffic)) && fill_rows(network, traffic));
}

void mp_traffic_fill(struct mp_traffic *traffic, mp_traffic_rows *rows_of, void *context,
                     double row_bytes) {
    const struct mp_network *network = traffic->network;
    mp_traffic_clear(traffic);
    empty(network, traffic);
    finish(network, traffic, ask_rows(network, traffic, rows_of, context, row_bytes));
}

/* ---- asking ---- */

size_t mp_traffic_bytes(const struct mp_traffic *traffic) {
    size_t lanes = traffic->network->lanes, size = traffic->room * sizeof *traffic->message;
    size += (traffic->network->limited ? 16 : 8) * lanes * sizeof(float) +
            (size_t)traffic->network->ranks * sizeof *traffic->self;
    for (int way = MP_SENDING; way <= MP_RECEIVING; way++) {
        const struct mp_port_matrix *matrix = &traffic->matrix[way];
        size += lanes / MP_LANES * sizeof *matrix->strip +
                matrix->room * (sizeof *matrix->other + MP_TILE * sizeof *matrix->bytes);
        for (int gates = MP_GATES; gates <= MP_OWN_LIMITS; gates++)
            size += matrix->held[gates] ? matrix->room * MP_TILE * sizeof *matrix->bytes : 0;
    }
    return size;
}

void mp_traffic_copies(struct mp_traffic *traffic, double bytes[]) {
    mp_traffic_arrange(traffic);
    memcpy(bytes, traffic->self, (size_t)traffic->network->ranks * sizeof *bytes);
}

/* Adds up rows of all levels per rank. */
static void add_rows(const struct mp_network *network, const struct mp_port_matrix *matrix,
                     double sums[]) {
    memset(sums, 0, (size_t)network->ranks * sizeof *sums);
    for (int l = 0; l < network->levels; l++) {
        const struct mp_port_level *level = &network->level[l];
        for (int rank = 0; rank < network->ranks; rank++) {
            size_t lane = mp_port_lane(level, rank);
            const struct mp_port_strip *strip = &matrix->strip[lane / MP_LANES];
            const float *row = mp_port_row(matrix->bytes, strip, lane % MP_LANES);
            for (int t = 0; t < strip->tiles; t++, row += MP_TILE)
                for (int c = 0; c < MP_LANES; c++)
                    sums[rank] += (double)row[c];
        }
    }
}

void mp_traffic_totals(struct mp_traffic *traffic, double sent[], double received[]) {
    mp_traffic_arrange(traffic);
    if (sent)
        add_rows(traffic->network, &traffic->matrix[MP_SENDING], sent);
    if (received)
        add_rows(traffic->network, &traffic->matrix[MP_RECEIVING], received);
}
