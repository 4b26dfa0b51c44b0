/* The ready-made rules on what the programs they are for say: range names as their releases make
 * them (the rules files say which), told by a program that knows nothing of moeperf. */
#include "harness/record/rules.h"
#include "harness/suite/paths.h"
#include "tests/errors.h"
#include "tests/harness/cli/annotated.h"

/* Records a program that makes the ranges of a script; with all ready-made rules, as when none is
 * named. */
static void record(const char *script, int times) {
    FILE *file = fopen("script", "w");
    assert_non_null(file);
    for (int i = 0; i < times; i++)
        fputs(script, file);
    fclose(file);
    remove("run.db");
    assert_runs("moeperf record -o run.db -- " ANNOTATED " told <script");
}

#define LAYER "megatron.core.transformer.transformer_layer."

static const struct {
    const char *rules, *domain, *name;
    const char *phase; /* and its direction, where that matters; NULL: no rule matches */
} facts[] = {
    {"megatron-lm", "", LAYER "_forward_attention.self_attention", "attention"},
    {"megatron-lm", "", LAYER "_forward_attention.self_attn_bda", NULL},
    {"megatron-lm", "", LAYER "_forward_mlp.mlp", "expert"},
    {"megatron-lm", "", LAYER "_forward_mlp_router.mlp", "expert"},
    {"megatron-lm", "", LAYER "_forward_post_mlp.mlp_bda", NULL},
    {"megatron-lm", "", "megatron.core.transformer.attention.forward.qkv", NULL},
    {"megatron-lm", "", "megatron.core.transformer.mlp.forward.linear_fc1", NULL},
    {"megatron-lm", "", "Optimizer.step#FusedAdam.step", "optimizer"},
    {"megatron-lm", "", "Optimizer.zero_grad#FusedAdam.zero_grad", NULL},
    {"deepspeed", "DeepSpeed", "DeepSpeedEngine.forward", NULL},
    {"deepspeed", "DeepSpeed", "DeepSpeedEngine.allreduce_gradients", "allreduce"},
    {"deepspeed", "", "DeepSpeedEngine.allreduce_gradients", "allreduce"},
    {"deepspeed", "DeepSpeed", "DeepSpeedZeroOptimizer_Stage3.step", "optimizer"},
    {"deepspeed", "DeepSpeed", "SuperOffloadOptimizer_Stage3.step", "optimizer"},
    {"deepspeed", "DeepSpeed", "PartitionedParameterCoordinator.fetch_sub_module", "fetch"},
    {"deepspeed", "DeepSpeed",
     "DeepSpeedZeroOptimizer_Stage3.create_reduce_and_remove_grad_hooks.<locals>.wrapper.<locals>."
     "reduce_partition_and_remove_grads",
     "reduce"},
    {"deepspeed", "DeepSpeed",
     "DeepSpeedZeroOptimizer_Stage3.independent_gradient_partition_epilogue", "reduce"},
    {"deepspeed", "DeepSpeed", "free_param", NULL},
    {"nccl", "NCCL", "ncclAlltoAll", "dispatch"},
    {"nccl", "NCCL", "ncclAllReduce", "allreduce"},
    {"nccl", "NCCL", "ncclReduceScatter", "reduce"},
    {"nccl", "NCCL", "ncclAllGather", "fetch"},
    {"nccl", "NCCL", "ncclSend", "dispatch"},
    {"nccl", "NCCL", "ncclRecv", "dispatch"},
    {"nccl", "NCCL", "ncclBroadcast", NULL},
    {"nccl", "mine", "ncclAllReduce", NULL},
    {"pytorch", "", "ProfilerStep#17", "iteration"},
    {"pytorch", "", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data"},
    {"pytorch", "", "Optimizer.step#AdamW.step", "optimizer"},
    {"pytorch", "", "Optimizer.zero_grad#AdamW.zero_grad", "optimizer"},
    {"pytorch", "", "nccl:all_to_all, op_id = 4", "dispatch"},
    {"pytorch", "", "gloo:all_reduce", "allreduce"},
    {"pytorch", "", "nccl:all_reduce_barrier", "wait"},
    {"pytorch", "", "nccl:_reduce_scatter_base", "reduce"},
    {"pytorch", "", "nccl:_all_gather_base", "fetch"},
    {"pytorch", "", "gloo:barrier", NULL},
    {"pytorch", "", "nccl:broadcast", NULL},
    {"pytorch", "", "aten::mm, seq = 7, op_id = 12", NULL},
    {"tutel", "", "GatingEncoder, seq = 12", "dispatch forward"},
    {"tutel", "", "GatingEncoderBackward, seq = 12", "dispatch backward"},
    {"tutel", "", "autograd::engine::evaluate_function: GatingDecoderBackward", "combine backward"},
    {"tutel", "", "PrimAllToAll", "dispatch forward"},
    {"tutel", "", "PrimAllToAllBackward", "dispatch backward"},
    {"tutel", "", "AllToAllGatherAsync", "combine forward"},
    {"tutel", "", "NcclStreamRelease", NULL},
    {"tutel", "", "nn.Module: LinearTopKGate_3", "gate forward"},
    {"tutel", "", "nn.Module: FusedExpertsNetwork_3", "expert forward"},
    {"fastmoe", "", "MOEScatter", "dispatch forward"},
    {"fastmoe", "", "MOEGatherBackward", "combine backward"},
    {"fastmoe", "", "MOELinear, seq = 3", "expert forward"},
    {"fastmoe", "", "MoEForward", "expert forward"},
    {"fastmoe", "", "nn.Module: SwitchGate_0", "gate forward"},
    {"fastmoe", "", "AllGather", NULL},
    {"vllm", "", "execute_context_2(310)_generation_14(14)", "iteration"},
    {"vllm", "", "{'Module': 'top.model.layers.3.self_attn', 'positions': [[8]]}",
     "attention forward"},
    {"vllm", "", "{'Module': 'model.layers.3.mlp.experts', 'Inputs': [[8, 64]]}", "expert forward"},
    {"vllm", "", "{'Module': 'model.layers.3.mlp.gate_up_proj', 'Inputs': [[8, 64]]}", NULL},
    {"sglang", "", "{'Module': 'model.layers.0.mlp.gate', 'TrainableParams': {'weight': [8, 64]}}",
     "gate forward"},
    {"sglang", "", "{'Module': 'model.layers.0.mlp.shared_experts'}", "shared forward"},
    {"sglang", "", "{'Module': 'model.layers.11.block_sparse_moe.experts'}", "expert forward"},
    {"sglang", "", "{'Module': 'model.layers.0.input_layernorm'}", NULL},
    {"sglang", "", "{'Module': 'logits_processor'}", "head forward"},
};

static const struct {
    const char *name;
} files[] = {{"megatron-lm"}, {"deepspeed"}, {"nccl"}, {"pytorch"},
             {"tutel"},       {"fastmoe"},   {"vllm"}, {"sglang"}};

/* What the rules say of a name: "phase" or "phase direction"; NULL: none is for it. */
static const char *said_of(const struct mp_rules *rules, const char *name, const char *domain) {
    static const char *const ways[] = {[MP_FORWARD] = " forward", [MP_BACKWARD] = " backward"};
    struct mp_rule_capture capture;
    const struct mp_rule *rule = mp_rules_find(rules, name, domain, &capture);
    if (!rule)
        return NULL;
    const int phase = rule->phase == MP_PHASES ? capture.phase : rule->phase;
    return formatted("%s%s", mp_phase_name((enum mp_phase)phase),
                     rule->direction.source == MP_RULE_CONSTANT ? ways[rule->direction.constant]
                                                                : "");
}

/* The facts of one file, or all that a rule is for. */
static void assert_facts(const struct mp_rules *rules, const char *file) {
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const char *phase = facts[i].phase;
        if (file ? strcmp(facts[i].rules, file) != 0 : !phase)
            continue;
        const char *said = said_of(rules, facts[i].name, facts[i].domain);
        if (!said != !phase || (said && strncmp(said, phase, strlen(phase)) != 0))
            fail_msg("%s: %s is %s", facts[i].rules, facts[i].name, said ? said : "nothing");
    }
}

TEST_EACH(known_names_have_their_phase, files, file) {
    char path[MP_PATH_SIZE];
    struct mp_rules rules = {0};
    assert_works(mp_path_file(MP_RULES, file->name, path, &error));
    assert_works(mp_rules_load(path, &rules, &error));
    assert_facts(&rules, file->name);
    mp_rules_destroy(&rules);
}

/* Without --rules all files are used: none takes another's names for something else. */
TEST(all_rules_together_say_the_same) {
    struct mp_rules rules = {0};
    assert_works(mp_rules_load_ready(&rules, &error));
    assert_facts(&rules, NULL);
    mp_rules_destroy(&rules);
}

static const char megatron_step[] = "+" LAYER "_forward_attention.self_attention\n-\n"
                                    "+" LAYER "_forward_mlp.mlp\n+_AllToAll, seq = 3\n-\n-\n"
                                    "+" LAYER "_forward_attention.self_attention\n-\n"
                                    "+" LAYER "_forward_mlp.mlp\n-\n"
                                    "+Optimizer.step#FusedAdam.step\n-\n"
                                    "+NCCL|ncclAllGather\n-NCCL\n"
                                    "+Optimizer.step#FusedAdam.step\n-\n";

static const char zero3_step[] = "+DeepSpeed|DeepSpeedEngine.forward\n"
                                 "+DeepSpeed|PartitionedParameterCoordinator.fetch_sub_module\n"
                                 "-DeepSpeed\n-DeepSpeed\n"
                                 "+DeepSpeed|DeepSpeedEngine.backward\n"
                                 "+DeepSpeed|DeepSpeedEngine.allreduce_gradients\n"
                                 "-DeepSpeed\n-DeepSpeed\n"
                                 "+DeepSpeed|DeepSpeedZeroOptimizer_Stage3.step\n-DeepSpeed\n";

static const char zero1_step[] = "+DeepSpeed|DeepSpeedEngine.forward\n-DeepSpeed\n"
                                 "+DeepSpeed|DeepSpeedEngine.backward\n"
                                 "+DeepSpeed|DeepSpeedEngine.allreduce_gradients\n"
                                 "-DeepSpeed\n-DeepSpeed\n";

/* No name has a number: an iteration lasts until its last range, and layers begin anew in it. */
TEST(training_loops_are_counted) {
    need_collector();
    record(megatron_step, 3);
    assert_run("SELECT iterations FROM v_run", "3");
    assert_spans("run.db", "iteration || phase || layer", "phase IN ('attention', 'expert')",
                 "0attention0 0expert0 0attention1 0expert1 1attention0 1expert0 1attention1 "
                 "1expert1 2attention0 2expert0 2attention1 2expert1");
    assert_spans("run.db", "iteration", "phase = 'optimizer'", "0 0 1 1 2 2");
    record(zero3_step, 4);
    assert_run("SELECT iterations FROM v_run", "4");
    assert_spans("run.db", "iteration || phase", "phase <> 'iteration' AND iteration >= 2",
                 "2fetch 2allreduce 2optimizer 3fetch 3allreduce 3optimizer");
    record(zero1_step, 5);
    assert_run("SELECT iterations FROM v_run", "5");
    assert_spans("run.db", "iteration || phase", "phase <> 'iteration'",
                 "0allreduce 1allreduce 2allreduce 3allreduce 4allreduce");
}

static const char profiled_step[] =
    "+enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__\n-\n"
    "+ProfilerStep#6\n+gloo:all_to_all\n-\n"
    "+Optimizer.step#AdamW.step\n-\n-\n"
    "+ProfilerStep#7\n+gloo:all_to_all\n-\n"
    "+Optimizer.step#AdamW.step\n-\n-\n";

/* Optimizers end iterations only where none has a range. */
TEST(a_range_of_iterations_counts_before_their_ends) {
    need_collector();
    record(profiled_step, 1);
    assert_spans("run.db", "iteration || phase", "true",
                 "-1data 6iteration 6dispatch 6optimizer 7iteration 7dispatch 7optimizer");
}

TEST_GROUP(enter_shell, leave_folder);
