/* What planners are told of a machine whose every piece of work takes known times, as the clock
 * here goes on by nothing else. */
#include "tests/reference/trainer/mpi/trainers.h"

enum {
    SERIES = 8, /* times of each measurement; the first is none, and here the shortest */
    ATTENTION_NS = 70000,
    GATE_NS = 8000,
    SHARED_NS = 900,
    EXPERT_NS = 50000,
    ROUTE_NS = 30,
    COPY_NS = 600000
};

static int64_t clock_ns;
static uint64_t noise;

struct series {
    int calls, best;
};
static struct series attention, experts, copies;

/* What a time is above the measurement's least: 0 at one of them. */
static int64_t above(struct series *series) {
    int call = series->calls++ % SERIES;
    if (call == 0)
        series->best = test_random_int(&noise, 1, SERIES - 1);
    return call == 0 ? -5000 : call == series->best ? 0 : test_random_int(&noise, 1, 100000);
}

/* Other ranks' clocks go faster: what they tell is to count for nothing. */
static void spend(int64_t ns) {
    clock_ns += ns * (1 + world->rank);
}

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_MONOTONIC)
        return __real_clock_gettime(clock, now);
    *now = (struct timespec){clock_ns / 1000000000, clock_ns % 1000000000};
    return 0;
}

void __real_mp_model_attention(struct mp_model *model, int layer);
void __wrap_mp_model_attention(struct mp_model *model, int layer);
void __wrap_mp_model_attention(struct mp_model *model, int layer) {
    __real_mp_model_attention(model, layer);
    spend(ATTENTION_NS + above(&attention));
}

void __real_mp_model_gate(struct mp_model *model, int layer, const int32_t *forced,
                          const struct mp_gate_limit *limit, uint32_t *routes, uint32_t *firsts);
void __wrap_mp_model_gate(struct mp_model *model, int layer, const int32_t *forced,
                          const struct mp_gate_limit *limit, uint32_t *routes, uint32_t *firsts);
void __wrap_mp_model_gate(struct mp_model *model, int layer, const int32_t *forced,
                          const struct mp_gate_limit *limit, uint32_t *routes, uint32_t *firsts) {
    __real_mp_model_gate(model, layer, forced, limit, routes, firsts);
    spend(GATE_NS);
}

void __real_mp_model_shared(struct mp_model *model, int layer);
void __wrap_mp_model_shared(struct mp_model *model, int layer);
void __wrap_mp_model_shared(struct mp_model *model, int layer) {
    __real_mp_model_shared(model, layer);
    spend(SHARED_NS);
}

void __real_mp_model_experts(struct mp_model *model, int layer, int segment);
void __wrap_mp_model_experts(struct mp_model *model, int layer, int segment);
void __wrap_mp_model_experts(struct mp_model *model, int layer, int segment) {
    __real_mp_model_experts(model, layer, segment);
    clock_ns +=
        EXPERT_NS + model->state[layer].routing.receive_total * (int64_t)ROUTE_NS + above(&experts);
}

int __real_mp_sparse_all_gather_start(struct mp_comm *comm, const struct mp_transfers *list,
                                      enum mp_stage stage, int count, void *const chunk[],
                                      size_t bytes, mp_stream stream, struct mp_request *request,
                                      struct mp_error *error);
int __wrap_mp_sparse_all_gather_start(struct mp_comm *comm, const struct mp_transfers *list,
                                      enum mp_stage stage, int count, void *const chunk[],
                                      size_t bytes, mp_stream stream, struct mp_request *request,
                                      struct mp_error *error);
int __wrap_mp_sparse_all_gather_start(struct mp_comm *comm, const struct mp_transfers *list,
                                      enum mp_stage stage, int count, void *const chunk[],
                                      size_t bytes, mp_stream stream, struct mp_request *request,
                                      struct mp_error *error) {
    spend(list->count * (int64_t)COPY_NS + above(&copies));
    for (int i = 0; i < list->count; i++)
        assert_numbers(list->item[i].from, 0, list->item[i].to, i + 1, list->item[i].bytes, bytes);
    return __real_mp_sparse_all_gather_start(comm, list, stage, count, chunk, bytes, stream,
                                             request, error);
}

/* Other work on the machine only adds time, so the least counts; on rank 0's clock alone. */
TEST(the_least_times_are_told_to_all) {
    noise = seed;
    AUTO(trainer)
    struct mp_trainer *trainer =
        create_trainer(world, NULL,
                       "system=ep width=128 expert-width=512 experts=8 ranks-per-node=2 "
                       "bandwidth=0 expert-rate=0 non-moe-seconds=0");
    const struct mp_setting *told = &trainer->setting;
    const double bytes = 2 * 128 * 512 * sizeof(float);
    assert_all_close(1e-9, told->bandwidth, bytes / (1e-9 * COPY_NS * (world->ranks - 1)),
                     told->bandwidth_in_node, bytes / (1e-9 * COPY_NS), told->seconds_per_route,
                     1e-9 * ROUTE_NS, told->seconds_per_expert, 1e-9 * EXPERT_NS,
                     told->non_moe_seconds, 1e-9 * (ATTENTION_NS + GATE_NS + SHARED_NS));
}
