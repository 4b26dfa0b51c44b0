#include "reference/trainer/buckets.h"

int mp_buckets_start(struct mp_buckets *buckets, int bucket, struct mp_error *error) {
    const struct mp_dense *dense = &buckets->model->dense;
    size_t first = dense->bucket[bucket], last = dense->bucket[bucket + 1];
    buckets->flight[bucket] = mp_spans_departed(buckets->spans, MP_PHASE_ALLREDUCE);
    return mp_all_reduce_start(buckets->comm, dense->gradient + first, last - first,
                               buckets->model->stream, buckets->request[bucket], error);
}

int mp_buckets_wait(struct mp_buckets *buckets, int bucket, struct mp_error *error) {
    const struct mp_model *model = buckets->model;
    size_t floats = model->dense.bucket[bucket + 1] - model->dense.bucket[bucket];
    int code = mp_request_wait(buckets->request[bucket], error);
    mp_spans_arrived(buckets->spans, buckets->flight[bucket], MP_PHASE_ALLREDUCE, MP_BACKWARD,
                     bucket < model->shape.layers ? bucket : -1, (int64_t)(floats * sizeof(float)));
    return code;
}
