/* What a job does not say and a prediction needs. */
#include "harness/predict/cost.h"

#define FIELD(member) offsetof(struct mp_predict_options, member)

const struct mp_option mp_predict_options_table[] = {
    {"precision", MP_DECIDES(MP_OPTION_CHOICE), FIELD(precision), "", "fp16", 0, 0,
     "fp64 fp32 tf32 bf16 fp16", "of matrix work, parameters, rows and activations"},
    {"micro-batches", MP_DECIDES(MP_OPTION_INT), FIELD(micro_batches), "micro-batches", "1", 1,
     4096, NULL, "of an iteration: the batch is split and gradients are added up"},
    {"expert-matrices", MP_DECIDES(MP_OPTION_INT), FIELD(expert_matrices), "matrices", "2", 2, 3,
     NULL, "of an expert: 2 with gelu, 3 gated (SwiGLU)"},
    {"vocabulary", MP_DECIDES(MP_OPTION_INT64), FIELD(vocabulary), "tokens", "0", 0, 1 << 24, NULL,
     "of embedding and head, which share one table of them; 0 for neither"},
    {"key-value-heads", MP_DECIDES(MP_OPTION_COUNT), FIELD(key_value_heads), "heads", "auto", -1,
     1024, NULL, "of grouped-query attention; auto for as many as heads"},
    {"cache-width", MP_DECIDES(MP_OPTION_COUNT), FIELD(cache_width), "numbers", "auto", -1, 1 << 20,
     NULL,
     "that a server's cache keeps of a token and layer, as 576 of multi-head latent attention "
     "(DeepSeek-V3); auto for its keys and values"},
    {"attention", MP_DECIDES(MP_OPTION_CHOICE), FIELD(attention), "", "full", 0, 0, "full flash",
     "full: scores go through memory and are kept for backward; flash: neither"},
    {"recompute", MP_DECIDES(MP_OPTION_CHOICE), FIELD(recompute), "", "none", 0, 0, "none full",
     "full: a block keeps its input only and runs forward again before backward"},
    {"exchange", MP_DECIDES(MP_OPTION_CHOICE), FIELD(exchange), "", "whole", 0, 0,
     "whole by-expert",
     "of rows: for all experts of a rank at once, or for one after the other (FastMoE)"},
    {"gradient-bytes", MP_DECIDES(MP_OPTION_DOUBLE), FIELD(gradient_bytes), "B", "2", 0, 16, NULL,
     "of a parameter's gradient"},
    {"optimizer-bytes", MP_DECIDES(MP_OPTION_DOUBLE), FIELD(optimizer_bytes), "B", "12", 0, 64,
     NULL, "of optimizer state per parameter: master copy and moments"},
    {"reserve", MP_DECIDES(MP_OPTION_DOUBLE), FIELD(reserve), "", "0.1", 0, 0.9, NULL,
     "share of a device's memory that the job can't use"},
    {"planning", MP_DECIDES(MP_OPTION_DOUBLE), FIELD(planning), "s", "0", 0, 1, NULL,
     "of planning on the critical path, per layer"},
    {0},
};
