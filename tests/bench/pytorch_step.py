#!/usr/bin/env python3
"""Times the whole training step of our model in PyTorch on the CPU; prints JSON.

    pip install torch numpy
    python tests/bench/pytorch_step.py --text out/text/corpus --threads 2

Same model, same loss and same optimizer as moeperf-train (the definition is in
tests/golden/make_golden.py; `--check tests/golden/gshard.bin` proves it), written the way someone
who cares about speed writes it: no Python work per token, routes sorted by expert once, library
attention, fused AdamW.  Where there are several good ways, all are here and the fastest on the
machines we have is the default; `--variants` times them beside each other, in turns.

    --experts-as function   own autograd function, one matrix product per expert into one buffer
    --experts-as loop       one matrix product per expert, gradients left to autograd
    --experts-as batched    one batched product over experts padded to the fullest one
    --adamw fused | foreach
    --compile            torch.compile for everything but the experts' products
    --allocator keep     glibc keeps freed memory instead of giving it back to the kernel
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

ALLOCATOR_SETTINGS = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_TOP_PAD_": str(1 << 26),
}


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value, text in [
        ("layers", 4, "blocks"), ("width", 128, "of the residual stream"),
        ("heads", 4, "of attention"), ("experts", 16, "per layer"),
        ("expert-width", 512, "hidden units of an expert"), ("sequence", 128, "tokens"),
        ("batch", 16, "sequences per step"), ("threads", 1, "for PyTorch"),
        ("iterations", 20, "timed"), ("warm-up", 5, "iterations before"), ("seed", 1, ""),
        ("rounds", 3, "turns that each variant gets with --variants"),
    ]:
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{text} ({value})")
    parser.add_argument("--gate", choices=["gshard", "switch"], default="gshard")
    parser.add_argument("--experts-as", choices=["function", "loop", "batched"],
                        default="function", help="how experts are computed (function)")
    parser.add_argument("--adamw", choices=["fused", "foreach"], default="fused")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--allocator", choices=["keep", "default"], default="keep")
    parser.add_argument("--text", type=pathlib.Path, help="file or folder to train on")
    parser.add_argument("--variants", action="store_true", help="time all variants in turns")
    parser.add_argument("--check", metavar="GOLDEN", help="compare with a golden file instead")
    return parser.parse_args()


arguments = parse_arguments()
if arguments.allocator == "keep" and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
    # glibc reads these when a process starts.
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ALLOCATOR_SETTINGS)

import torch  # noqa: E402  after the allocator is set
import torch.nn.functional as functional  # noqa: E402
from torch import nn  # noqa: E402

VOCABULARY = 256
EPSILON = 1e-5


def gelu(hidden):
    return functional.gelu(hidden, approximate="tanh")


def gelu_backward(d_active, hidden):
    return torch.ops.aten.gelu_backward(d_active, hidden, approximate="tanh")


class ExpertProducts(torch.autograd.Function):
    """y = gelu(x @ w1[e]) @ w2[e] over contiguous segments of x, one segment per expert.
    `activation` is (gelu, gelu_backward), as they are or compiled."""

    @staticmethod
    def forward(context, x, w1, w2, counts, activation):
        hidden = x.new_empty(x.shape[0], w1.shape[2])
        y = torch.empty_like(x)
        start = 0
        for expert, count in enumerate(counts):
            torch.mm(x[start : start + count], w1[expert], out=hidden[start : start + count])
            start += count
        active = activation[0](hidden)
        start = 0
        for expert, count in enumerate(counts):
            torch.mm(active[start : start + count], w2[expert], out=y[start : start + count])
            start += count
        context.save_for_backward(x, w1, w2, hidden, active)
        context.counts, context.activation = counts, activation
        return y

    @staticmethod
    def backward(context, dy):
        x, w1, w2, hidden, active = context.saved_tensors
        d_active, dx = torch.empty_like(active), torch.empty_like(x)
        dw1, dw2 = torch.empty_like(w1), torch.empty_like(w2)
        start = 0
        for expert, count in enumerate(context.counts):
            rows = slice(start, start + count)
            torch.mm(dy[rows], w2[expert].T, out=d_active[rows])
            torch.mm(active[rows].T, dy[rows], out=dw2[expert])
            start += count
        d_hidden = context.activation[1](d_active, hidden)
        start = 0
        for expert, count in enumerate(context.counts):
            rows = slice(start, start + count)
            torch.mm(d_hidden[rows], w1[expert].T, out=dx[rows])
            torch.mm(x[rows].T, d_hidden[rows], out=dw1[expert])
            start += count
        return dx, dw1, dw2, None, None


def experts_by_function(x, w1, w2, counts, activation):
    return ExpertProducts.apply(x, w1, w2, counts.tolist(), activation)


def experts_by_loop(x, w1, w2, counts, activation):
    sizes = counts.tolist()
    hidden = torch.cat([a @ b for a, b in zip(x.split(sizes), w1.unbind())])
    active = activation[0](hidden)
    return torch.cat([a @ b for a, b in zip(active.split(sizes), w2.unbind())])


def experts_batched(x, w1, w2, counts, activation):
    experts, fullest = w1.shape[0], int(counts.amax())
    expert = torch.repeat_interleave(torch.arange(experts), counts)
    offsets = counts.cumsum(0) - counts
    slot = expert * fullest + torch.arange(x.shape[0]) - offsets[expert]
    padded = x.new_zeros(experts * fullest, x.shape[1]).index_copy(0, slot, x)
    hidden = torch.bmm(padded.view(experts, fullest, -1), w1)
    y = torch.bmm(activation[0](hidden), w2)
    return y.view(experts * fullest, -1).index_select(0, slot)


EXPERTS = {
    "function": experts_by_function,
    "loop": experts_by_loop,
    "batched": experts_batched,
}


class Block(nn.Module):
    def __init__(self, sizes, run_experts):
        super().__init__()
        width, experts = sizes["width"], sizes["experts"]
        self.heads, self.choices, self.run_experts = sizes["heads"], sizes["choices"], run_experts
        self.activation = (gelu, gelu_backward)
        self.ln1 = nn.LayerNorm(width, eps=EPSILON)
        self.ln2 = nn.LayerNorm(width, eps=EPSILON)
        self.qkv = nn.Parameter(torch.randn(width, 3 * width) * 0.02)
        self.out = nn.Parameter(torch.randn(width, width) * 0.02)
        self.gate = nn.Parameter(torch.randn(width, experts) * 0.02)
        self.w1 = nn.Parameter(torch.randn(experts, width, sizes["expert_width"]) * 0.02)
        self.w2 = nn.Parameter(torch.randn(experts, sizes["expert_width"], width) * 0.02)

    def attend(self, x):
        batch, sequence, width = x.shape
        qkv = (self.ln1(x) @ self.qkv).view(batch, sequence, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + mixed.transpose(1, 2).reshape(batch, sequence, width) @ self.out

    def route(self, x):
        """The input of the experts, routes sorted by expert, weights, and the auxiliary loss."""
        h = self.ln2(x).view(-1, x.shape[-1])
        probabilities = torch.softmax(h @ self.gate, dim=-1)
        weights, chosen = probabilities.topk(self.choices, dim=-1)
        if self.choices == 2:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        experts = probabilities.shape[1]
        first = torch.bincount(chosen[:, 0], minlength=experts) / h.shape[0]
        auxiliary = experts * (probabilities.mean(dim=0) * first).sum()
        order = torch.argsort(chosen.view(-1), stable=True)
        counts = torch.bincount(chosen.view(-1), minlength=experts)
        routed = h.index_select(0, order // self.choices)
        return routed, counts, order, weights, auxiliary

    def combine(self, x, y, order, weights):
        back = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel()))
        y = y.index_select(0, back).view(-1, self.choices, x.shape[-1])
        return x + (y * weights.unsqueeze(-1)).sum(dim=1).view_as(x)

    def forward(self, x):
        x = self.attend(x)
        routed, counts, order, weights, auxiliary = self.route(x)
        y = self.run_experts(routed, self.w1, self.w2, counts, self.activation)
        return self.combine(x, y, order, weights), auxiliary


class Model(nn.Module):
    def __init__(self, sizes, run_experts):
        super().__init__()
        self.token_table = nn.Parameter(torch.randn(VOCABULARY, sizes["width"]) * 0.02)
        self.position_table = nn.Parameter(torch.randn(sizes["sequence"], sizes["width"]) * 0.02)
        self.blocks = nn.ModuleList(Block(sizes, run_experts) for _ in range(sizes["layers"]))
        self.final = nn.LayerNorm(sizes["width"], eps=EPSILON)

    def head(self, x, targets):
        logits = self.final(x).view(-1, x.shape[-1]) @ self.token_table.T
        return functional.cross_entropy(logits, targets.reshape(-1))

    def forward(self, tokens, targets):
        """Cross-entropy, and the sum of the layers' auxiliary losses."""
        x = functional.embedding(tokens, self.token_table) + self.position_table
        auxiliary = 0.0
        for block in self.blocks:
            x, of_block = block(x)
            auxiliary = auxiliary + of_block
        return self.head(x, targets), auxiliary


def create_optimizer(model, implementation, learning_rate=1e-3, betas=(0.9, 0.95), epsilon=1e-8,
                     weight_decay=0.1):
    plain = [p for n, p in model.named_parameters() if is_norm(n)]
    decayed = [p for n, p in model.named_parameters() if not is_norm(n)]
    return torch.optim.AdamW(
        [{"params": decayed}, {"params": plain, "weight_decay": 0.0}],
        lr=learning_rate, betas=betas, eps=epsilon, weight_decay=weight_decay,
        **{implementation: True},
    )


def is_norm(name):
    return any(part in ("ln1", "ln2", "final") for part in name.split("."))


class Trainer:
    """A model with its optimizer and its own stream of batches."""

    def __init__(self, sizes, text, batch, experts_as, adamw, compiled, seed):
        torch.manual_seed(seed)
        self.text, self.batch, self.sequence = text, batch, sizes["sequence"]
        self.generator = torch.Generator().manual_seed(seed)
        self.model = Model(sizes, EXPERTS[experts_as])
        if compiled:
            for block in self.model.blocks:
                block.attend = torch.compile(block.attend)
                block.route = torch.compile(block.route)
                block.combine = torch.compile(block.combine)
                block.activation = (torch.compile(gelu), torch.compile(gelu_backward))
            self.model.head = torch.compile(self.model.head)
        self.optimizer = create_optimizer(self.model, adamw)

    def step(self):
        limit = self.text.numel() - self.sequence
        start = torch.randint(0, limit, (self.batch, 1), generator=self.generator)
        window = self.text[start + torch.arange(self.sequence + 1)].long()
        self.optimizer.zero_grad(set_to_none=True)
        loss, auxiliary = self.model(window[:, :-1], window[:, 1:])
        (loss + 0.01 * auxiliary).backward()
        self.optimizer.step()
        return loss.item()

    def time(self, iterations):
        """Milliseconds of each of so many steps: by the clock, and of processor time; the last
        loss."""
        times, processor = [], []
        for _ in range(iterations):
            start, processor_start = time.perf_counter(), time.process_time()
            loss = self.step()
            times.append((time.perf_counter() - start) * 1e3)
            processor.append((time.process_time() - processor_start) * 1e3)
        return times, processor, loss


def read_text(path):
    if path is None:
        sys.exit("--text FILE or FOLDER is needed (ci/text makes out/text/corpus)")
    paths = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    content = bytearray().join(p.read_bytes() for p in paths)
    if not content:
        sys.exit(f"{path}: no text")
    return torch.frombuffer(content, dtype=torch.uint8)


def load_golden(model, tensors):
    """Copies a golden file's parameters into the model; returns (golden name, tensor) pairs, the
    tensor being the model's parameter or, for an expert, its slice."""
    pairs = [("token_table", model.token_table), ("position_table", model.position_table),
             ("final_gain", model.final.weight), ("final_bias", model.final.bias)]
    for layer, block in enumerate(model.blocks):
        name = f"layer.{layer}."
        pairs += [(name + "ln1_gain", block.ln1.weight), (name + "ln1_bias", block.ln1.bias),
                  (name + "ln2_gain", block.ln2.weight), (name + "ln2_bias", block.ln2.bias),
                  (name + "qkv", block.qkv), (name + "out", block.out), (name + "gate", block.gate)]
        for part, stacked in (("w1", block.w1), ("w2", block.w2)):
            stack = [tensors[f"{name}expert.{e}.{part}"] for e in range(stacked.shape[0])]
            tensors[name + part] = torch.stack(stack)
            for prefix in ("gradient.", "after10."):
                stack = [tensors[f"{prefix}{name}expert.{e}.{part}"]
                         for e in range(stacked.shape[0])]
                tensors[prefix + name + part] = torch.stack(stack)
            pairs.append((name + part, stacked))
    with torch.no_grad():
        for name, parameter in pairs:
            parameter.copy_(tensors[name])
    return pairs


def check(path, experts_as, adamw):
    """Largest relative difference of anything in the golden file."""
    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
    import golden

    tensors = golden.read(path)
    sizes = {n[9:]: t.item() for n, t in tensors.items() if n.startswith("settings.")}
    model = Model(sizes, EXPERTS[experts_as])
    pairs = load_golden(model, tensors)
    optimizer = create_optimizer(
        model, adamw, sizes["learning_rate"], (sizes["beta1"], sizes["beta2"]), sizes["epsilon"],
        sizes["weight_decay"],
    )
    worst = 0.0

    def compare(value, reference):
        nonlocal worst
        scale = reference.abs().amax().clamp_min(1e-12)
        difference = ((value - reference).abs().amax() / scale).item()
        if worst == worst and not difference <= worst:  # a NaN counts, and stays
            worst = difference

    for step in range(sizes["steps"]):
        optimizer.zero_grad()
        loss, auxiliary = model(tensors["tokens"][step].long(), tensors["targets"][step].long())
        (loss + sizes["auxiliary_weight"] * auxiliary).backward()
        compare(loss.detach(), tensors["losses"][step])
        compare(auxiliary.detach(), tensors["auxiliary_losses"][step].sum())
        if step == 0:
            for name, parameter in pairs:
                compare(parameter.grad, tensors["gradient." + name])
        optimizer.step()
    for name, parameter in pairs:
        compare(parameter.detach(), tensors["after10." + name])
    return worst


def measure(sizes, text, variants):
    """All variants in turns, so that all of them meet the same moods of the machine."""
    trainers = [
        Trainer(sizes, text, arguments.batch, seed=arguments.seed, **variant)
        for variant in variants
    ]
    for trainer in trainers:
        trainer.time(arguments.warm_up)
    times, processor = [[] for _ in variants], [[] for _ in variants]
    losses = [0.0] * len(variants)
    for _ in range(arguments.rounds if len(variants) > 1 else 1):
        for i, trainer in enumerate(trainers):
            by_clock, by_processor, losses[i] = trainer.time(arguments.iterations)
            times[i] += by_clock
            processor[i] += by_processor
    return [
        result(*of_variant) for of_variant in zip(variants, times, processor, losses)
    ]


def result(variant, times, processor, loss):
    tokens = arguments.batch * arguments.sequence
    median = statistics.median(times)
    return variant | {
        "ms_per_iteration": round(median, 3), "tokens_per_s": round(tokens / median * 1e3, 1),
        "processor_ms_per_iteration": round(statistics.median(processor), 3),
        "fastest_ms": round(min(times), 3), "slowest_ms": round(max(times), 3),
        "iterations": len(times), "last_loss": round(loss, 4),
    }


def main():
    torch.set_num_threads(arguments.threads)
    if arguments.check:
        worst = check(arguments.check, arguments.experts_as, arguments.adamw)
        print(json.dumps({"golden": arguments.check, "largest_relative_difference": worst}))
        sys.exit(0 if worst < 1e-4 else 1)
    sizes = {
        "layers": arguments.layers, "width": arguments.width, "heads": arguments.heads,
        "experts": arguments.experts, "expert_width": arguments.expert_width,
        "sequence": arguments.sequence, "choices": 2 if arguments.gate == "gshard" else 1,
    }
    chosen = {"experts_as": arguments.experts_as, "adamw": arguments.adamw,
              "compiled": arguments.compile}
    variants = [chosen]
    if arguments.variants:
        variants = [
            {"experts_as": experts, "adamw": adamw, "compiled": compiled}
            for experts, adamw, compiled in [
                ("function", "fused", False), ("function", "foreach", False),
                ("loop", "fused", False), ("batched", "fused", False), ("function", "fused", True),
            ]
        ]
    results = measure(sizes, read_text(arguments.text), variants)
    report = {
        "torch": torch.__version__, "threads": arguments.threads, "gate": arguments.gate,
        "allocator": arguments.allocator, "batch": arguments.batch, **sizes,
    }
    print(json.dumps(report | (results[0] if len(results) == 1 else {"variants": results})))


if __name__ == "__main__":
    main()
