#include "reference/schedule/exchange/descriptors.h"

const struct mp_exchange mp_exchange_flat = {
    .name = "flat",
    .title = "every rank sends to every other one, in one go",
    .source = "FastMoE, arXiv 2103.13262; MPI_Alltoallv",
    .models = "One message from every rank to every other one that it has rows for, exact; padded "
              "where the system pads rows. Few bytes, and as many messages as there are pairs of "
              "ranks: between many nodes they are small.",
    .use = "exchange: flat (the default)",
    .takes_padding = true,
    .rounds = 1,
};
