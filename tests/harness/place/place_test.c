/* Placements: slots that EPLB's released code gives, their balance, time, traffic and files. */
#include "harness/place/place.h"

#include <jansson.h>

#include "tests/harness/place/loads_support.h"
#include "tests/reference/plan/plan_support.h"

TEST_END(arena, struct mp_arena, mp_arena_release(it))

/* Weights of the README of deepseek-ai/EPLB. */
static uint32_t released_weight(UNUSED int64_t iteration, int layer, int source, int expert) {
    static const uint32_t weight[2][12] = {{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
                                           {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};
    return source == 0 ? weight[layer][expert] : 0;
}

static int compare_slots(const void *left, const void *right) {
    return *(const int32_t *)left - *(const int32_t *)right;
}

/* Which slot of a rank an expert is in says nothing. */
static void assert_slots(const struct mp_place_map *map, int layer, const int32_t expected[]) {
    assert_int_equal(map->per_rank, 2);
    for (int rank = 0; rank < RANKS; rank++) {
        int32_t own[2], wanted[2];
        memcpy(own, mp_place_slots(map, layer) + (long)rank * 2, sizeof own);
        memcpy(wanted, expected + (long)rank * 2, sizeof wanted);
        qsort(own, 2, sizeof *own, compare_slots);
        qsort(wanted, 2, sizeof *wanted, compare_slots);
        assert_memory_equal(own, wanted, sizeof own);
    }
}

static double even_of(const struct mp_place_loads *loads, const struct mp_place_map *map,
                      int layer) {
    int32_t slots[64];
    double load[RANKS];
    return mp_place_max_over_mean(map, layer, mp_place_total(loads, 0, layer), NULL, slots, load);
}

static const struct {
    const char *policy;
    int32_t slot[2][16];
    double even[2];
} released[] = {{"options.policy=hierarchical",
                 {{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1},
                  {7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}},
                 {1.2081, 1.2422}},
                {"options.policy=global",
                 {{10, 6, 10, 7, 0, 2, 11, 4, 5, 9, 5, 4, 8, 3, 1, 1},
                  {1, 10, 2, 4, 5, 11, 5, 0, 6, 7, 6, 3, 8, 8, 9, 7}},
                 {1.0726, 1.1903}}};

/* The outputs of the released code (a stable descending sort): hierarchical with 4 groups on 2
 * nodes, and global, where GPU 7 of layer 0 has expert 1 twice and GPU 6 of layer 1 expert 8. */
TEST_ROWS(eplb_places_as_released, released, row) {
    AUTO(loads) struct mp_place_loads loads = make_loads(1, 2, 12, released_weight);
    AUTO(job) struct mp_predict_job job;
    struct mp_placed placed = {0};
    AUTO(cluster) struct mp_cluster *cluster = make_placed_job(&job, "eplb", TWO_NODES, 2, 12);
    set(&job, "options.groups=4", "options.replicas=16", row->policy);
    assert_works(mp_place_plan(of(&loads, &job, cluster), 1, NULL, &loads.memory, &placed, &error));
    assert_int_equal(placed.steps, 10); /* it looks every tenth */
    assert_numbers(placed.changes, 1, placed.copies, 4);
    for (int layer = 0; layer < 2; layer++) {
        assert_slots(&placed.after, layer, row->slot[layer]);
        assert_within(even_of(&loads, &placed.after, layer), row->even[layer], 5e-5);
    }
}

/* Ranks 0 to 3 hold one expert of eight, 4 to 7 another three; 0 has four more. */
TEST(slots_are_as_many_everywhere) {
    static const int64_t weight[] = {10, 40, 10, 10, 90, 80, 30, 20};
    static const uint64_t holders[] = {1, 2, 4, 8, 0x10, 0x20, 0x40, 0xc0};
    AUTO(arena) struct mp_arena memory = {0};
    struct mp_place_map map;
    int32_t slots[8];
    double load[RANKS];
    struct mp_placement home = placement_of(RANKS, 8);
    for (int e = 0; e < 8; e++)
        home.holder[e] = holders[e];
    assert_works(mp_place_map_of_homes(&home, 1, weight, &memory, &map, &error));
    static const int32_t expected[] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 7, 7};
    assert_int_equal(map.per_rank, 2);
    assert_memory_equal(map.expert, expected, sizeof expected);
    mp_place_rank_loads(&map, 0, weight, slots, load);
    assert_within(load[6], 30 + 20 / 3., 1e-9);
    assert_within(load[7], 2 * 20 / 3., 1e-9);
    assert_works(mp_place_map_contiguous(1, 3, 4, &memory, &map, &error));
    static const int32_t uneven[] = {0, 1, 2, -1, 3, -1};
    assert_int_equal(map.per_rank, 2);
    assert_memory_equal(map.expert, uneven, sizeof uneven);
}

/* The padding goes to the expert with most routes per slot, which another one then is. */
TEST(padding_goes_to_the_fullest_slots) {
    static const int64_t weight[] = {60, 50, 1, 1, 1, 1, 1, 1};
    static const uint64_t holders[] = {1, 1, 0x80, 0x80, 0x80, 0x80, 2, 4};
    AUTO(arena) struct mp_arena memory = {0};
    struct mp_place_map map;
    struct mp_placement home = placement_of(RANKS, 8);
    for (int e = 0; e < 8; e++)
        home.holder[e] = holders[e];
    assert_works(mp_place_map_of_homes(&home, 1, weight, &memory, &map, &error));
    static const int32_t expected[] = {0, 1, 0, 1, 6, 6, 6, 6, 7, 7, 7, 7};
    assert_int_equal(map.per_rank, 4);
    assert_memory_equal(map.expert, expected, sizeof expected);
}

static uint32_t hot_quarter(UNUSED int64_t iteration, UNUSED int layer, UNUSED int source,
                            int expert) {
    return expert < 4 ? 400 * 32 : 37 * 32; /* 4 * 400 + 12 * 37 = 2044 */
}

/* A contiguous placement is plain expert parallelism. */
TEST(what_stays_is_predicted_as_plain) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster) struct mp_cluster *cluster = make_placed_job(&job, "ep", TWO_NODES, 2, 16);
    AUTO(loads) struct mp_place_loads loads = make_loads(3, 2, 16, hot_quarter);
    struct mp_place_time placed, plain;
    struct mp_place_map map;
    assert_works(mp_place_map_contiguous(2, RANKS, 16, &loads.memory, &map, &error));
    assert_works(mp_place_predict(of(&loads, &job, cluster), 0, 3, &map, NULL, &placed, &error));
    assert_works(mp_place_predict_system(of(&loads, &job, cluster), 0, 3, &plain, &error));
    assert_true(placed.mean > 0);
    assert_within(placed.mean, plain.mean, 1e-9 * plain.mean);
    assert_within(placed.memory.total, plain.memory.total, 1);
}

TEST(a_placement_saves_and_its_moves_cost) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster) struct mp_cluster *cluster = make_placed_job(&job, "eplb", ONE_NODE, 2, 16);
    AUTO(loads) struct mp_place_loads loads = make_loads(20, 2, 16, hot_quarter);
    struct mp_place_time before, after, moving;
    struct mp_place_balance even[2];
    struct mp_placed placed;
    set(&job, "options.replicas=32");
    assert_works(
        mp_place_plan(of(&loads, &job, cluster), 10, NULL, &loads.memory, &placed, &error));
    assert_int_equal(placed.steps, 10);
    assert_works(
        mp_place_predict(of(&loads, &job, cluster), 10, 20, &placed.before, NULL, &before, &error));
    assert_works(
        mp_place_predict(of(&loads, &job, cluster), 10, 20, &placed.after, NULL, &after, &error));
    assert_works(mp_place_predict(of(&loads, &job, cluster), 10, 12, &placed.before, &placed.after,
                                  &moving, &error));
    assert_true(after.mean < before.mean);
    assert_true(moving.first > before.first);
    /* and is in force afterwards */
    assert_within(2 * moving.mean - moving.first, after.mean, 1e-9 * after.mean);
    /* 16 routes of hot_quarter: rank 0 and 1 of 8 have 2 * 400 of 2044 */
    for (int i = 0; i < 2; i++)
        assert_works(mp_place_balance(&loads, 10, 20, i ? &placed.after : &placed.before,
                                      &loads.memory, &even[i], &error));
    assert_within(even[0].mean, 800. * 8 / 2044, 1e-9);
    assert_true(even[1].mean < 1.1 && even[1].mean >= 1);
    /* each rank lacks what it did not have; rank 0 and 1 keep hot ones */
    assert_true(placed.moved > 0);
    assert_true(placed.move_bytes_most <= 2 * 4 * placed.expert_bytes);
}

/* All of rank 1's tokens go to expert 15, of rank 7 in the other node; the others' stay. */
static uint32_t across(UNUSED int64_t iteration, UNUSED int layer, int source, int expert) {
    return expert == (source == 1 ? 15 : 2 * source) ? 100 : 0;
}

TEST(traffic_is_counted_link_by_link) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster) struct mp_cluster *cluster = make_placed_job(&job, "eplb", TWO_NODES, 3, 16);
    AUTO(loads) struct mp_place_loads loads = make_loads(2, 3, 16, across);
    struct mp_place_traffic traffic;
    struct mp_place_map map;
    assert_works(mp_place_map_contiguous(3, RANKS, 16, &loads.memory, &map, &error));
    assert_works(
        mp_place_traffic(of(&loads, &job, cluster), 0, 2, &map, &loads.memory, &traffic, &error));
    assert_int_equal(traffic.nodes, 2);
    double row = traffic.bytes[1] / 300; /* an iteration's 3 layers */
    assert_true(row >= 2 * 1024 && row <= 4 * 1024);
    const double expected[] = {0, 300 * row, 0, 0};
    assert_memory_equal(traffic.bytes, expected, sizeof expected);
    assert_within(traffic.own, 7 * 300 * row, 1e-3);
    assert_within(traffic.between, 300 * row, 1e-3);
    assert_true(traffic.inside == 0);
    /* a second slot on rank 0: half of the rows stay in the node */
    map.expert[0] = 15;
    assert_works(
        mp_place_traffic(of(&loads, &job, cluster), 0, 2, &map, &loads.memory, &traffic, &error));
    assert_within(traffic.bytes[0], 50 * row, 1e-3);
    assert_within(traffic.bytes[1], 250 * row, 1e-3);
}

TEST(what_never_moves_is_refused) {
    AUTO(loads) struct mp_place_loads loads = make_loads(1, 1, 16, hot_quarter);
    for (int i = 0; i < systems.count; i++) {
        AUTO(job) struct mp_predict_job job;
        struct mp_placed placed = {0};
        AUTO(cluster)
        struct mp_cluster *cluster = make_placed_job(&job, systems.item[i]->name, TWO_NODES, 1, 16);
        bool moves = systems.item[i]->capabilities & MP_SYSTEM_MOVES_OWNERS;
        struct mp_error error = {0};
        int code =
            mp_place_plan(of(&loads, &job, cluster), 1, NULL, &loads.memory, &placed, &error);
        if (!moves && (code != MP_EREFUSED || !strstr(error.text, "never changes which ranks")))
            fail_msg("%s: %s", systems.item[i]->name, error.text);
        if (moves && code && code != MP_EREFUSED)
            fail_msg("%s: %s", systems.item[i]->name, error.text);
    }
}

TEST(files_say_what_engines_read) {
    AUTO(arena) struct mp_arena memory = {0};
    struct mp_place_map map;
    assert_works(mp_place_map_contiguous(2, 2, 4, &memory, &map, &error));
    int32_t second[] = {3, 1, 0, 2};
    memcpy(map.expert + 4, second, sizeof second);
    static const struct {
        enum mp_place_format format;
        const char *text;
    } files[] = {
        {MP_PLACE_SGLANG, "{\"physical_to_logical_map\":[[0,1,2,3],[0,1,2,3],[3,1,0,2]]}\n"},
        {MP_PLACE_VLLM,
         "{\"moe_layer_count\":2,\"layer_list\":[{\"layer_id\":0,\"device_count\":2,"
         "\"device_list\":[{\"device_id\":0,\"device_expert\":[0,1]},"
         "{\"device_id\":1,\"device_expert\":[2,3]}]},{\"layer_id\":1,\"device_count\":2,"
         "\"device_list\":[{\"device_id\":0,\"device_expert\":[3,1]},"
         "{\"device_id\":1,\"device_expert\":[0,2]}]}]}\n"},
        {MP_PLACE_JSON,
         "{\"made_by\":\"a test\",\"experts\":4,\"ranks\":2,\"slots_per_rank\":2,\"layers\":2,"
         "\"dense_layers_in_front\":1,\"experts_of_slots\":[[[0,1],[2,3]],[[3,1],[0,2]]]}\n"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assert_works(mp_place_write("p.json", files[i].format, &map, 1, "a test", &error));
        AUTO(text) char *text = read_file("p.json");
        assert_string_equal(text, files[i].text);
    }
    assert_fails(mp_place_write("q.json", MP_PLACE_SGLANG, &map, -1, "a test", &error), MP_EINVAL,
                 "");
    assert_int_equal(access("q.json", F_OK), -1);
}

TEST_GROUP(enter, leave_folder);
