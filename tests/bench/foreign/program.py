#!/usr/bin/env python3
"""Trains a toy model with experts on two ranks: of PyTorch alone, of transformers or of DeepSpeed.

matrix.py starts it.  A fault may be put in: `slow`, rank 1 takes twice as long per row in the experts
of layer 1; `hot`, the gate of layer 1 prefers expert 3, which is rank 1's.  `--record` says what is
turned on: `ranges`, PyPI's nvtx around the parts of an expert layer; `profiler`, PyTorch's; `hook`,
moeperf_experts.annotate().
"""

import argparse
import contextlib
import itertools
import os
import sys
import time

import moeperf_experts
import torch
import torch.distributed as dist
from torch import nn

LAYERS, EXPERTS, TOP_K, WIDTH, SEQUENCE, BATCH, WORDS = 2, 4, 2, 128, 64, 8, 256
FAULT_LAYER, FAULT_RANK, HOT_EXPERT, BIAS, ROW_S = 1, 1, 3, 20.0, 40e-6
WARM_UP = 3


# ---- of PyTorch alone: what nanoGPT is, with experts ----


class AllToAll(torch.autograd.Function):
    """Rows to the ranks that they are for, and gradients back."""

    @staticmethod
    def forward(context, rows, sent, received):
        context.counts = sent, received
        result = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(result, rows.contiguous(), received, sent)
        return result

    @staticmethod
    def backward(context, gradient):
        sent, received = context.counts
        return AllToAll.apply(gradient, received, sent), None, None


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        own = EXPERTS // dist.get_world_size()
        self.each = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(),
                                                nn.Linear(4 * WIDTH, WIDTH)) for _ in range(own))

    def forward(self, rows, expert):
        result = torch.zeros_like(rows)
        for number, of_expert in enumerate(self.each):
            chosen = (expert == number).nonzero().flatten()
            result = result.index_add(0, chosen, of_expert(rows[chosen]))
        return result


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(WIDTH, EXPERTS), Experts()

    def dispatch(self, rows, expert):
        order = expert.flatten().argsort(stable=True)
        counts = torch.bincount(expert.flatten(), minlength=EXPERTS).view(dist.get_world_size(), -1)
        others = torch.empty_like(counts)
        dist.all_to_all_single(others, counts)
        sent, received = counts.sum(1).tolist(), others.sum(1).tolist()
        own = torch.arange(counts.shape[1]).repeat(len(counts)).repeat_interleave(others.flatten())
        return AllToAll.apply(rows[order // TOP_K], sent, received), own, (order, received, sent)

    def combine(self, rows, order, received, sent):
        rows = AllToAll.apply(rows, received, sent)
        return torch.empty_like(rows).index_copy(0, order, rows).view(-1, TOP_K, WIDTH)

    def forward(self, hidden):
        rows = hidden.reshape(-1, WIDTH)
        weight, expert = self.gate(rows).softmax(-1).topk(TOP_K)
        rows, own, way_back = self.dispatch(rows, expert)
        rows = self.combine(self.experts(rows, own), *way_back)
        return (rows * weight[..., None]).sum(1).view_as(hidden)


class CausalAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.input, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden):
        parts = [part.view(*hidden.shape[:2], 4, -1).transpose(1, 2)
                 for part in self.input(hidden).chunk(3, -1)]
        mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(hidden.shape))


class Block(nn.Module):
    def __init__(self, mixture):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention, self.mixture = CausalAttention(), mixture

    def forward(self, hidden):
        hidden = hidden + self.attention(self.norms[0](hidden))
        mixed = self.mixture(self.norms[1](hidden))
        return hidden + (mixed[0] if isinstance(mixed, tuple) else mixed)


class Model(nn.Module):
    def __init__(self, make_mixture):
        super().__init__()
        self.embedding, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.blocks = nn.ModuleList(Block(make_mixture()) for _ in range(LAYERS))

    def forward(self, words):
        hidden = self.embedding(words)
        for block in self.blocks:
            hidden = block(hidden)
        return nn.functional.cross_entropy(self.head(hidden)[:, :-1].flatten(0, 1),
                                           words[:, 1:].flatten())


def of_torch(_):
    return Model(Mixture)


# ---- DeepSpeed's expert layer in the same model ----


def of_deepspeed(_):
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    from deepspeed.moe.layer import MoE
    # It would be compiled, and is for inference.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)

    class Feed(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    model = Model(lambda: MoE(WIDTH, Feed(), EXPERTS, ep_size=dist.get_world_size(), k=TOP_K,
                              drop_tokens=False, top2_2nd_expert_sampling=False))
    for block in model.blocks:
        block.mixture.set_deepspeed_parallelism()
    return model


# ---- transformers: Mixtral with its expert parallelism ----


def of_transformers(folder):
    import transformers
    from transformers.distributed import DistributedConfig
    sizes = transformers.MixtralConfig(
        vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=4 * WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=4, num_local_experts=EXPERTS,
        num_experts_per_tok=TOP_K, max_position_embeddings=SEQUENCE)
    if dist.get_rank() == 0:
        transformers.MixtralForCausalLM(sizes).save_pretrained(folder)
    dist.barrier()
    ranks = dist.get_world_size()
    return transformers.MixtralForCausalLM.from_pretrained(
        folder, distributed_config=DistributedConfig(tp_size=ranks, ep_size=ranks,
                                                     ep_implementation="all_to_all"))


def modules(model, ending):
    return [module for module in model.modules() if type(module).__name__.endswith(ending)]


def parts(library, model):
    """The gates and the experts, layer by layer."""
    gates = ([mixture.gate for mixture in modules(model, "Mixture")] if library == "torch" else
             modules(model, "TopKGate" if library == "deepspeed" else "TopKRouter"))
    return gates, modules(model, "Experts")


# ---- faults, and what is recorded ----


def rows_of(tensor):
    return tensor.numel() // tensor.shape[-1]


def put_in(library, fault, gates, experts):
    """Experts take a time per row, asleep, as on a device of their own: what other programs do with a
    shared machine's cores is small beside it."""
    def take_time(seconds):
        return lambda _module, inputs: time.sleep(seconds * rows_of(inputs[0]))

    def prefer(_module, _inputs, output):
        logits = output[0] if isinstance(output, tuple) else output
        logits = logits + BIAS * nn.functional.one_hot(torch.tensor(HOT_EXPERT), EXPERTS)
        if not isinstance(output, tuple):
            return logits
        weight, chosen = logits.softmax(-1).topk(TOP_K)
        return logits, weight / weight.sum(-1, keepdim=True), chosen

    if fault == "hot" and library == "deepspeed":  # its gate calls no module for the scores
        from deepspeed.moe import sharded_moe
        inner, calls = sharded_moe.top2gating, itertools.count()
        sharded_moe.top2gating = lambda logits, *rest, **named: inner(
            prefer(None, None, logits) if next(calls) % LAYERS == FAULT_LAYER else logits, *rest,
            **named)
    elif fault == "hot":
        gates[FAULT_LAYER].register_forward_hook(prefer)
    for layer, module in enumerate(experts):
        is_slow = fault == "slow" and layer == FAULT_LAYER and dist.get_rank() == FAULT_RANK
        each = [m for m in module.modules() if getattr(m, "in_features", 0) == WIDTH]
        row_s = ROW_S if each else 2 * ROW_S  # ranks share a batch, and have half as many rows
        for part in each or [module.act_fn]:  # of Mixtral's experts the only module
            part.register_forward_pre_hook(take_time((2 if is_slow else 1) * row_s))


def wrap(owner, name, label, rows=lambda *_: None):
    """Annotates a function; `rows` of its arguments are the range's payload."""
    import nvtx
    inner = getattr(owner, name)

    def annotated(*arguments, **keywords):
        with nvtx.annotate(label, payload=rows(*arguments)):
            return inner(*arguments, **keywords)
    setattr(owner, name, annotated)


def annotate(library):
    """The parts of an expert layer, by names that no rule knows."""
    if library == "torch":
        wrap(Mixture, "dispatch", "dispatch")
        wrap(Mixture, "combine", "combine")
        wrap(Experts, "forward", "experts", lambda _, rows, *__: len(rows))
    elif library == "transformers":
        from transformers.distributed.expert_parallel import AllToAllEP
        from transformers.models.mixtral.modeling_mixtral import MixtralExperts
        wrap(AllToAllEP, "_dispatch_tokens", "dispatch")
        wrap(AllToAllEP, "_combine_tokens", "combine")
        wrap(MixtralExperts, "forward", "experts", lambda _, rows, *__: len(rows))
    else:
        import deepspeed.moe.experts
        wrap(dist, "all_to_all_single", "all_to_all")
        wrap(deepspeed.moe.experts.Experts, "forward", "experts",
             lambda _, rows: rows_of(rows))
    wrap(torch.optim.AdamW, "step", "optimizer")


def iterate(library, model, count):
    """Trains; gradients of what every rank has are averaged."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    shared = [p for name, p in model.named_parameters() if "experts" not in name]
    for _ in range(count):
        words = torch.randint(0, WORDS, (BATCH, SEQUENCE))
        if library == "transformers":  # tensor-parallel: ranks have one batch, and equal gradients
            model(input_ids=words, labels=words).loss.backward()
        else:
            model(words).backward()
            flat = torch.cat([p.grad.flatten() for p in shared])
            dist.all_reduce(flat)
            for p, mean in zip(shared, flat.split([p.numel() for p in shared])):
                p.grad.copy_(mean.view_as(p) / dist.get_world_size())
        optimizer.step()
        optimizer.zero_grad()
        yield


def recorder(arguments):
    """What records, as a context whose step() ends an iteration."""
    if arguments.record == "profiler":
        return torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, with_stack=True,
            schedule=torch.profiler.schedule(
                wait=WARM_UP - 1, warmup=1, active=arguments.iterations - WARM_UP),
            on_trace_ready=lambda p: p.export_chrome_trace(
                f"{arguments.folder}/rank{dist.get_rank()}.json.gz"))
    if arguments.record == "hook":
        moeperf_experts.annotate()
    return contextlib.nullcontext()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=["torch", "transformers", "deepspeed"])
    parser.add_argument("--fault", choices=["none", "slow", "hot"], default="none")
    parser.add_argument("--record", choices=["ranges", "profiler", "hook"], default="ranges")
    parser.add_argument("--iterations", type=int, default=16)
    parser.add_argument("--folder", default=".", help="for a model's files and traces")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    if arguments.record == "ranges":
        annotate(arguments.library)
    model = globals()["of_" + arguments.library](arguments.folder + "/model")
    gates, experts = parts(arguments.library, model)
    put_in(arguments.library, arguments.fault, gates, experts)
    if arguments.library == "torch":
        moeperf_experts.watch(gates, EXPERTS, TOP_K)
    else:  # the chosen experts' numbers; counts
        moeperf_experts.watch(gates, EXPERTS, choose=lambda output: output[
            2 if arguments.library == "transformers" else 6])
    with recorder(arguments) as profiler:
        for _ in iterate(arguments.library, model, arguments.iterations):
            if isinstance(profiler, torch.profiler.profile):
                profiler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
