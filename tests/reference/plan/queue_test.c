/* A queue pops the stable descending order, whatever the pushes, pops and changes in between. */
#include "reference/plan/queue.h"
#include "tests/reference/base/memory.h"
#include "tests/reference/plan/plan_support.h"

enum { ROOM = 50 };

/* The first of what a queue should hold, by looking at everything. */
static int first_of(const struct mp_queued item[], int count) {
    int first = 0;
    for (int index = 1; index < count; index++)
        if (item[index].key > item[first].key ||
            (item[index].key == item[first].key && item[index].id < item[first].id))
            first = index;
    return first;
}

TEST_RANDOM(pops_come_in_order) {
    struct mp_queued expected[ROOM];
    struct mp_queue queue;
    int32_t id = 0;
    mp_queue_create(&memory, ROOM, &queue);
    for (int round = 0; round < 20000; round++) {
        int what = test_random_int(random, 0, 2);
        double key = test_random_int(random, -3, 3) / 2.0;
        if (queue.count == 0 || (what == 0 && queue.count < ROOM)) {
            expected[queue.count] = (struct mp_queued){key, ROOM * 1000 - id};
            mp_queue_push(&queue, key, ROOM * 1000 - id++);
            continue;
        }
        int first = first_of(expected, queue.count);
        assert_int_equal(queue.item[0].id, expected[first].id);
        if (what == 1) {
            mp_queue_change_first(&queue, key);
            expected[first].key = key;
            continue;
        }
        struct mp_queued popped = mp_queue_pop(&queue);
        assert_int_equal(popped.id, expected[first].id);
        assert_true(popped.key == expected[first].key);
        expected[first] = expected[queue.count];
    }
}
