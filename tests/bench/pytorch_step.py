#!/usr/bin/env python3
"""Times the whole training step of our model in PyTorch, and ours beside it; prints JSON.

    pip install torch numpy
    python tests/bench/pytorch_step.py --text out/text/corpus --threads 2
    python tests/bench/pytorch_step.py --device cuda --trainer build/release/bin/moeperf-train

Same model, same loss and same optimizer as moeperf-train (the definition is in
tests/golden/make_golden.py; `--check tests/golden/gshard.bin` proves it), written the way someone
who cares about speed writes it: no Python work per token, routes sorted by expert once, library
attention, AdamW in one pass.  Where there are several good ways, all are here and the fastest on the
machines we have is the default; `--variants` times those that differ from the chosen one in one thing.

    --experts-as function   own autograd function, one matrix product per expert into one buffer
    --experts-as loop       one matrix product per expert, gradients left to autograd
    --experts-as batched    one batched product over experts padded to the fullest one
    --experts-as grouped    PyTorch's product of groups, where it has one
    --adamw fused | foreach
    --compile            torch.compile for everything but the experts' products, with grouped for all
    --allocator keep     glibc keeps freed memory instead of giving it back to the kernel

`--precision bf16` computes as ours does on a GPU: activations and what products read are bf16, sums,
scores, updates and the parameters themselves fp32; but gradients of matrices are rounded to bf16.
`--device cuda` has the step that ci/gpu-check times as its defaults, compiled.

With `--trainer` a round is a run of each, so that both meet the same moods of the machine, after
PyTorch's model has been checked against a golden file; `ratio` is the median of the rounds' ratios,
how many times as fast ours is.  `--at-least X` makes the exit status 1 if it is below X.
"""

import argparse
import contextlib
import itertools
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

ALLOCATOR_SETTINGS = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_TOP_PAD_": str(1 << 26),
}
TESTS = pathlib.Path(__file__).resolve().parent.parent
SIZES = {
    "layers": (4, "blocks"), "width": (128, "of the residual stream"), "heads": (4, "of attention"),
    "experts": (16, "per layer"), "expert-width": (512, "hidden units of an expert"),
    "sequence": (128, "tokens"), "batch": (16, "sequences per step"),
}
ON_CUDA = {
    "layers": 12, "width": 768, "heads": 12, "experts": 64, "expert_width": 1536, "sequence": 2048,
    "precision": "bf16", "routing": "balanced", "compile": True, "attention": "cudnn", "rounds": 1,
    "text": TESTS / "golden/gpu/text",
}


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, (value, text) in (SIZES | {
        "threads": (1, "of either's on processors"), "iterations": (20, "timed"),
        "warm-up": (5, "iterations before"), "seed": (1, "of PyTorch's"),
        "rounds": (3, "turns with --trainer, and of each variant"),
    }).items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{text} ({value})")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--routing", choices=["gate", "balanced"], default="gate")
    parser.add_argument("--gate", choices=["gshard", "switch"], default="gshard")
    parser.add_argument("--experts-as", choices=["function", "loop", "batched", "grouped"],
                        help="how experts are computed (the fastest that is known here)")
    parser.add_argument("--adamw", choices=["fused", "foreach"], default="fused")
    parser.add_argument("--attention", choices=["any", "flash", "cudnn"], default="any",
                        help="whose, where it can be; any: as PyTorch chooses (any; cuda: cudnn)")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--allocator", choices=["keep", "default"], default="keep")
    parser.add_argument("--text", type=pathlib.Path, help="file or folder to train on")
    parser.add_argument("--variants", action=argparse.BooleanOptionalAction, default=False,
                        help="time variants in turns")
    parser.add_argument("--check", metavar="GOLDEN", help="compare with a golden file instead")
    parser.add_argument("--trainer", metavar="MOEPERF-TRAIN", help="time this beside PyTorch")
    parser.add_argument("--at-least", type=float, help="exit status 1 below this ratio")
    if parser.parse_known_args()[0].device == "cuda":
        parser.set_defaults(**ON_CUDA)
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
ELEMENT = {"fp32": torch.float32, "bf16": torch.bfloat16}[arguments.precision]
GROUPED = getattr(functional, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)


def gelu(hidden):
    return functional.gelu(hidden, approximate="tanh")


def gelu_backward(d_active, hidden):
    return torch.ops.aten.gelu_backward(d_active, hidden, approximate="tanh")


class ExpertProducts(torch.autograd.Function):
    """y = gelu(x @ w1[e]) @ w2[e] over contiguous segments of x, one segment per expert.
    `activation` is (gelu, gelu_backward), as they are or compiled."""

    @staticmethod
    def forward(context, x, w1, w2, counts, activation):
        segments = [slice(end - count, end)
                    for end, count in zip(itertools.accumulate(counts), counts)]
        hidden, y = x.new_empty(x.shape[0], w1.shape[2]), torch.empty_like(x)
        for expert, rows in enumerate(segments):
            torch.mm(x[rows], w1[expert], out=hidden[rows])
        active = activation[0](hidden)
        for expert, rows in enumerate(segments):
            torch.mm(active[rows], w2[expert], out=y[rows])
        context.save_for_backward(x, w1, w2, hidden, active)
        context.segments, context.activation = segments, activation
        return y

    @staticmethod
    def backward(context, dy):
        x, w1, w2, hidden, active = context.saved_tensors
        d_active, dx = torch.empty_like(active), torch.empty_like(x)
        dw1, dw2 = torch.empty_like(w1), torch.empty_like(w2)
        for expert, rows in enumerate(context.segments):
            torch.mm(dy[rows], w2[expert].T, out=d_active[rows])
            torch.mm(active[rows].T, dy[rows], out=dw2[expert])
        d_hidden = context.activation[1](d_active, hidden)
        for expert, rows in enumerate(context.segments):
            torch.mm(d_hidden[rows], w1[expert].T, out=dx[rows])
            torch.mm(x[rows].T, d_hidden[rows], out=dw1[expert])
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
    expert = torch.repeat_interleave(torch.arange(experts, device=x.device), counts)
    offsets = counts.cumsum(0) - counts
    slot = expert * fullest + torch.arange(x.shape[0], device=x.device) - offsets[expert]
    padded = x.new_zeros(experts * fullest, x.shape[1]).index_copy(0, slot, x)
    hidden = torch.bmm(padded.view(experts, fullest, -1), w1)
    y = torch.bmm(activation[0](hidden), w2)
    return y.view(experts * fullest, -1).index_select(0, slot)


def experts_grouped(x, w1, w2, counts, activation):
    ends = counts.cumsum(0, dtype=torch.int32)
    return GROUPED(activation[0](GROUPED(x, w1, offs=ends)), w2, offs=ends)


EXPERTS = {
    "function": experts_by_function,
    "loop": experts_by_loop,
    "batched": experts_batched,
    "grouped": experts_grouped,
}


def has_grouped():
    """Whether this PyTorch multiplies groups of such elements here, and has their gradients."""
    try:
        x = torch.ones(2, 16, 16, dtype=ELEMENT, device=arguments.device, requires_grad=True)
        ends = torch.tensor([8, 16], dtype=torch.int32, device=arguments.device)
        GROUPED(x[0], x, offs=ends).backward(x[0].detach())
        return True
    except (RuntimeError, TypeError):  # NotImplementedError is one; there may be no such function
        return False


class Rows(torch.autograd.Function):
    """Rows order // each; `back` is the inverse of `order`, so that backward adds up in order."""

    @staticmethod
    def forward(context, rows, order, back, each):
        context.save_for_backward(back)
        context.each = each
        return rows.index_select(0, order // each if each > 1 else order)

    @staticmethod
    def backward(context, gradient):
        rows = gradient.index_select(0, *context.saved_tensors)
        if context.each > 1:
            rows = rows.view(-1, context.each, rows.shape[1]).sum(1)
        return rows, None, None, None


def normalised(norm, x):
    return norm(x.float()).to(x.dtype)


def counted(values, bound):
    ones = torch.ones_like(values)
    return ones.new_zeros(bound).scatter_add_(0, values, ones)


class Block(nn.Module):
    def __init__(self, sizes, run_experts):
        super().__init__()
        width, experts = sizes["width"], sizes["experts"]
        self.heads, self.choices, self.run_experts = sizes["heads"], sizes["choices"], run_experts
        self.activation = (gelu, gelu_backward)
        self.forced = None  # [tokens][choices], experts that the gate does not choose
        self.ln1 = nn.LayerNorm(width, eps=EPSILON)
        self.ln2 = nn.LayerNorm(width, eps=EPSILON)
        self.qkv = nn.Parameter(torch.randn(width, 3 * width) * 0.02)
        self.out = nn.Parameter(torch.randn(width, width) * 0.02)
        self.gate = nn.Parameter(torch.randn(width, experts) * 0.02)
        self.w1 = nn.Parameter(torch.randn(experts, width, sizes["expert_width"]) * 0.02)
        self.w2 = nn.Parameter(torch.randn(experts, sizes["expert_width"], width) * 0.02)

    def attend(self, x):
        batch, sequence, width = x.shape
        qkv = (normalised(self.ln1, x) @ self.qkv).view(batch, sequence, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + mixed.transpose(1, 2).reshape(batch, sequence, width) @ self.out

    def route(self, x):
        """The input of the experts, routes sorted by expert and back, weights, and the auxiliary
        loss."""
        h = normalised(self.ln2, x).view(-1, x.shape[-1])
        probabilities = torch.softmax((h @ self.gate).float(), dim=-1)
        if self.forced is None:
            weights, chosen = probabilities.topk(self.choices, dim=-1)
        else:
            weights, chosen = probabilities.gather(1, self.forced), self.forced
        if self.choices == 2:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        experts = probabilities.shape[1]
        first = counted(chosen[:, 0], experts) / h.shape[0]
        auxiliary = experts * (probabilities.mean(dim=0) * first).sum()
        order = torch.argsort(chosen.view(-1), stable=True)
        back = torch.empty_like(order).scatter_(
            0, order, torch.arange(order.numel(), device=order.device))
        counts = counted(chosen.view(-1), experts)
        routed = Rows.apply(h, order, back, self.choices)
        return routed, counts, order, back, weights, auxiliary

    def combine(self, x, y, order, back, weights):
        y = Rows.apply(y, back, order, 1).view(-1, self.choices, x.shape[-1])
        return (x + (y * weights.unsqueeze(-1)).sum(dim=1).view_as(x)).to(x.dtype)

    def forward(self, x):
        x = self.attend(x)
        routed, counts, order, back, weights, auxiliary = self.route(x)
        y = self.run_experts(routed, self.w1, self.w2, counts, self.activation)
        return self.combine(x, y, order, back, weights), auxiliary


class Model(nn.Module):
    def __init__(self, sizes, run_experts):
        super().__init__()
        self.token_table = nn.Parameter(torch.randn(VOCABULARY, sizes["width"]) * 0.02)
        self.position_table = nn.Parameter(torch.randn(sizes["sequence"], sizes["width"]) * 0.02)
        self.blocks = nn.ModuleList(Block(sizes, run_experts) for _ in range(sizes["layers"]))
        self.final = nn.LayerNorm(sizes["width"], eps=EPSILON)

    def head(self, x, targets):
        normed = normalised(self.final, x).view(-1, x.shape[-1])
        logits = (normed @ self.token_table.to(x.dtype).T).float()
        return functional.cross_entropy(logits, targets.reshape(-1))

    def forward(self, tokens, targets):
        """Cross-entropy, and the sum of the layers' auxiliary losses."""
        x = functional.embedding(tokens, self.token_table) + self.position_table
        x = x.to(self.blocks[0].qkv.dtype)
        auxiliary = 0.0
        for block in self.blocks:
            x, of_block = block(x)
            auxiliary = auxiliary + of_block
        return self.head(x, targets), auxiliary


def create_model(sizes, variant):
    with torch.device(arguments.device):
        model = Model(sizes, EXPERTS[variant["experts_as"]])
    if variant["compiled"]:
        model.head = torch.compile(model.head)
        parts = ["forward"] if variant["experts_as"] == "grouped" else ["attend", "route", "combine"]
        for block in model.blocks:
            block.activation = (torch.compile(gelu), torch.compile(gelu_backward))
            for part in parts:
                setattr(block, part, torch.compile(getattr(block, part)))
    return model


class Optimizer:
    """AdamW.  Matrices of a model that computes in bf16 become copies of fp32 ones, which have their
    gradients widened, and which are rounded anew after each update."""

    def __init__(self, model, way, learning_rate=1e-3, betas=(0.9, 0.95), epsilon=1e-8,
                 weight_decay=0.1):
        matrices = [p for p in model.blocks.parameters() if p.dim() > 1 and p.dtype != ELEMENT]
        self.master = {p: nn.Parameter(p.detach().clone()) for p in matrices}
        for p in matrices:
            p.data = p.data.to(ELEMENT)
        trained = [self.master.get(p, p) for p in model.parameters()]
        self.adamw = torch.optim.AdamW(
            [{"params": [p for p in trained if p.dim() > 1]},
             {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0}],
            lr=learning_rate, betas=betas, eps=epsilon, weight_decay=weight_decay,
            **{way: True},
        )

    @torch.no_grad()
    def step(self):
        for copy, master in self.master.items():
            master.grad, copy.grad = copy.grad.float(), None
        self.adamw.step()
        self.adamw.zero_grad()
        if self.master:
            torch._foreach_copy_(list(self.master), list(self.master.values()))


def attention_by(whom):
    """A context in which attention is this library's where it can be."""
    if whom == "any":
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION,
             SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel(order[whom == "flash":], set_priority=True)


def balanced(tokens, choices, experts, layer):
    """The choices that reference/model/replay.c makes of even loads, in iteration 0."""
    stride = int(tokens * 0.6180339887)
    while math.gcd(stride, tokens) != 1:
        stride += 1
    routes = tokens * choices
    counts = routes // experts + (torch.arange(experts) < routes % experts).long()
    route = torch.arange(routes)
    chosen = torch.empty(tokens, choices, dtype=torch.long)
    chosen[(17 * layer + route * stride) % tokens, route // tokens] = torch.repeat_interleave(
        torch.arange(experts), counts)
    return chosen


class Trainer:
    """A model with its optimizer and its own stream of batches."""

    def __init__(self, sizes, text, variant):
        torch.manual_seed(arguments.seed)
        self.text, self.sequence = text.to(arguments.device), sizes["sequence"]
        self.generator = torch.Generator().manual_seed(arguments.seed)
        self.model = create_model(sizes, variant)
        for layer, block in enumerate(self.model.blocks):
            if arguments.routing == "balanced":
                tokens = arguments.batch * self.sequence
                block.forced = balanced(tokens, sizes["choices"], sizes["experts"],
                                        layer).to(arguments.device)
        self.optimizer = Optimizer(self.model, variant["adamw"])
        self.attention = variant["attention"]

    def step(self):
        limit = self.text.numel() - self.sequence
        start = torch.randint(0, limit, (arguments.batch, 1), generator=self.generator)
        window = start.to(self.text.device) + torch.arange(self.sequence + 1,
                                                           device=self.text.device)
        window = self.text[window].long()
        with attention_by(self.attention):
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
            for prefix in ("", "gradient.", "after10."):
                stack = [tensors[f"{prefix}{name}expert.{e}.{part}"]
                         for e in range(stacked.shape[0])]
                tensors[prefix + name + part] = torch.stack(stack)
            pairs.append((name + part, stacked))
    with torch.no_grad():
        for name, parameter in pairs:
            parameter.copy_(tensors[name])
    return pairs


def check(path, variant):
    """Largest relative difference of anything in the golden file: of any number to the largest, or in
    bf16, which moves single numbers far, of a whole tensor, and of parameters to how far they went."""
    sys.path.insert(0, str(TESTS / "golden"))
    import golden

    tensors = {name: tensor.to(arguments.device) for name, tensor in golden.read(path).items()}
    sizes = {n[9:]: t.item() for n, t in tensors.items() if n.startswith("settings.")}
    model = create_model(sizes, variant)
    pairs = load_golden(model, tensors)
    optimizer = Optimizer(
        model, variant["adamw"], sizes["learning_rate"], (sizes["beta1"], sizes["beta2"]),
        sizes["epsilon"], sizes["weight_decay"],
    )
    worst, rounded = 0.0, ELEMENT == torch.bfloat16

    def compare(value, reference, before=0):
        nonlocal worst
        size = torch.linalg.vector_norm if rounded else lambda tensor: tensor.abs().amax()
        scale = size(reference - before if rounded else reference).clamp_min(1e-12)
        difference = (size(value - reference) / scale).item()
        if worst == worst and not difference <= worst:  # a NaN counts, and stays
            worst = difference

    for step in range(sizes["steps"]):
        for layer, block in enumerate(model.blocks):  # bf16 could decide otherwise where it is close
            block.forced = tensors["choices"][layer].long() if rounded and step == 0 else None
        with attention_by(variant["attention"]):
            loss, auxiliary = model(tensors["tokens"][step].long(), tensors["targets"][step].long())
            (loss + sizes["auxiliary_weight"] * auxiliary).backward()
        compare(loss.detach(), tensors["losses"][step])
        compare(auxiliary.detach(), tensors["auxiliary_losses"][step].sum())
        if step == 0:
            for name, parameter in pairs:
                compare(parameter.grad, tensors["gradient." + name])
        optimizer.step()
    for name, parameter in pairs:
        compare(optimizer.master.get(parameter, parameter).detach(), tensors["after10." + name],
                tensors[name])
    return worst


def model_flop(sizes):
    """Of a step, as mp_model_iteration_flops counts them."""
    width = sizes["width"]
    block = 4 * width**2 + width * sizes["experts"] + (
        2 * sizes["choices"] * width * sizes["expert_width"])
    matrices = sizes["layers"] * block + VOCABULARY * width
    attended = sizes["layers"] * sizes["sequence"] * width
    return arguments.batch * sizes["sequence"] * 6 * (matrices + attended)


def rates(sizes, ms):
    tokens = arguments.batch * sizes["sequence"]
    return {"ms_per_iteration": round(ms, 3), "tokens_per_s": round(tokens / ms * 1e3, 1),
            "tflop_per_s": round(model_flop(sizes) / ms * 1e-9, 4)}


def measure(sizes, variant):
    trainer = Trainer(sizes, read_text(arguments.text), variant)
    trainer.time(arguments.warm_up)
    times, processor, loss = trainer.time(arguments.iterations)
    return variant | rates(sizes, statistics.median(times)) | {
        "processor_ms_per_iteration": round(statistics.median(processor), 3),
        "fastest_ms": round(min(times), 3), "slowest_ms": round(max(times), 3),
        "iterations": len(times), "last_loss": round(loss, 4),
    }


# ---- runs in turns, each in a process of its own: a GPU has no room for two models ----


def run(*words):
    words = [str(word) for word in words]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{words[0]} ended with status {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def time_ours():
    """Milliseconds of each timed step of one rank, experts where they are, and the last loss."""
    steps = arguments.warm_up + arguments.iterations
    named = {name: getattr(arguments, name.replace("-", "_")) for name in (
        *SIZES, "gate", "routing", "device", "precision", "threads", "text")}
    job = named | {"system": "ep", "ranks": 1, "iterations": steps}
    lines = run(arguments.trainer, "--progress",
                *(f"--set={name}={value}" for name, value in job.items())).splitlines()
    progress = [line.split() for line in lines if line.startswith("progress ")]
    if len(progress) != steps:
        sys.exit(f"{arguments.trainer}: {len(progress)} progress lines, expected {steps}")
    return [float(step[4]) for step in progress[arguments.warm_up:]], float(progress[-1][3])


def time_theirs(variant):
    """What a run of it reports."""
    options = [f"--{name.replace('_', '-')}={variant[name]}"
               for name in ("experts_as", "adamw", "attention")]
    return json.loads(run(sys.executable, *sys.argv, "--trainer=", "--no-variants", *options,
                          "--compile" if variant["compiled"] else "--no-compile"))


def time_variants(variants):
    """Of each its middle run, or why it does not run here."""
    reports = [[] for _ in variants]
    for _ in range(arguments.rounds):
        for variant, of_variant in zip(variants, reports):
            try:
                of_variant.append(time_theirs(variant))
            except SystemExit as failure:
                of_variant.append(variant | {"failed": str(failure)})
    return [sorted(each, key=lambda one: one.get("ms_per_iteration", math.inf))[len(each) // 2]
            for each in reports]


def beside(sizes, variant):
    rounds, report = [], {}
    for _ in range(arguments.rounds):
        times, loss = time_ours()
        report = time_theirs(variant)
        ms = statistics.median(times)
        rounds.append({
            "moeperf_ms": round(ms, 3), "moeperf_loss": loss,
            "pytorch_ms": report["ms_per_iteration"], "pytorch_loss": report["last_loss"],
            "ratio": round(report["ms_per_iteration"] / ms, 3),
            "ratio_of_fastest": round(report["fastest_ms"] / min(times), 3),
        })
    middle = {key: statistics.median(of_round[key] for of_round in rounds) for key in rounds[0]}
    return report | {"rounds": rounds, "moeperf": rates(sizes, middle["moeperf_ms"]),
                     "pytorch": rates(sizes, middle["pytorch_ms"]), "ratio": middle["ratio"],
                     "ratio_of_fastest": middle["ratio_of_fastest"]}


# ---- what is wanted ----


def choose():
    """The chosen variant, and those that differ from it in one thing."""
    on_cuda, grouped = arguments.device == "cuda", has_grouped()
    if arguments.experts_as == "grouped" and not grouped:
        sys.exit(f"PyTorch {torch.__version__} multiplies no groups of {arguments.precision} "
                 f"matrices on this {arguments.device}; --experts-as batched does without")
    fastest = "function"
    if on_cuda:
        fastest = "grouped" if grouped else "batched" if arguments.routing == "balanced" else fastest
    chosen = {"experts_as": arguments.experts_as or fastest, "adamw": arguments.adamw,
              "compiled": arguments.compile, "attention": arguments.attention}
    others = {"experts_as": [name for name in EXPERTS if grouped or name != "grouped"],
              "adamw": ["fused", "foreach"], "compiled": [False, True],
              "attention": ["any", "flash", "cudnn"] if on_cuda else ["any"]}
    return [chosen] + [chosen | {key: other} for key, values in others.items() for other in values
                       if other != chosen[key]]


def device_name():
    """Ends the program where the device can't be used."""
    if arguments.device == "cpu":
        return "cpu"
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
        sys.exit(f"PyTorch {torch.__version__} is too old for --device cuda: 2.6 is needed")
    if not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} finds no GPU here (it is built for "
                 f"{'CUDA ' + torch.version.cuda if torch.version.cuda else 'processors'}); "
                 "--device cpu needs none")
    if arguments.precision == "bf16" and torch.cuda.get_device_capability() < (8, 0):
        sys.exit(f"{torch.cuda.get_device_name()} has no products of bf16; GPUs of compute "
                 "capability 8.0 have")
    return torch.cuda.get_device_name()


def described(sizes, device):
    return {
        "torch": torch.__version__, "device": device, "precision": arguments.precision,
        "threads": arguments.threads, "gate": arguments.gate, "routing": arguments.routing,
        "allocator": arguments.allocator, **sizes,
    }


def main():
    torch.set_num_threads(arguments.threads)
    device = device_name()
    variants = choose()
    golden = arguments.check or arguments.trainer and TESTS / f"golden/{arguments.gate}.bin"
    if golden:
        worst = check(golden, variants[0])
        if arguments.check:
            print(json.dumps({"golden": golden, "largest_relative_difference": worst}))
        if not worst < (1e-4 if arguments.precision == "fp32" else 0.25):
            sys.exit(f"PyTorch's model is not ours: {golden} differs by {worst}")
    sizes = {name.replace("-", "_"): getattr(arguments, name.replace("-", "_")) for name in SIZES}
    sizes["choices"] = 2 if arguments.gate == "gshard" else 1
    if arguments.trainer:
        report = beside(sizes, variants[0])
        print(json.dumps(report))
        sys.exit(arguments.at_least is not None and not report["ratio"] >= arguments.at_least)
    if arguments.variants:
        print(json.dumps({"variants": time_variants(variants)}))
    elif not arguments.check:
        print(json.dumps(described(sizes, device) | measure(sizes, variants[0])))


if __name__ == "__main__":
    main()
