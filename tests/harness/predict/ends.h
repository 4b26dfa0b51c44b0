/* How what several tests of predictions make is ended (AUTO of tests/support.h). */
#pragma once

#include "harness/predict/job.h"
#include "tests/support.h"

TEST_END(cluster, struct mp_cluster *, mp_cluster_destroy(*it))
TEST_END(costs, struct mp_costs *, mp_costs_destroy(*it))
TEST_END(job, struct mp_predict_job, mp_predict_job_destroy(it))
TEST_END(network, struct mp_network *, mp_network_destroy(*it))
TEST_END(predictor, struct mp_predictor *, mp_predictor_destroy(*it))
TEST_END(traffic, struct mp_traffic *, mp_traffic_destroy(*it))
