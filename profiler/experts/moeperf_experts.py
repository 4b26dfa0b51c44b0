"""Counts how many of this rank's tokens go to which expert, for moeperf; needs nothing but PyTorch.

    import moeperf_experts
    moeperf_experts.watch([block.gate for block in model.blocks], experts=64, top_k=2)

watch() takes the gates (routers) in the order of their layers, and what they return may be logits or
probabilities [tokens, experts], a map of booleans [tokens, experts], the experts' numbers of every
token, or counts [experts]; a gate that returns several of them says which one, `choose=lambda output:
output[1]`.  Where the choice is made inside of something that is no module, call count(layer, chosen,
experts) there.

One iteration ends with every step of an optimizer of PyTorch's; without one, as in serving, call
step() at its end.  What backward computes again isn't counted again, and a model in evaluation mode
is counted like any other.  Counts stay on the device until the end of the iteration, when one small
copy brings them over.

annotate() makes NVTX ranges (PyPI's nvtx) of what moeperf's ready-made rules know: the program's own
modules, the optimizer, and where ranks wait for each other with gloo or MPI; experts also say how many
rows they multiplied.  Call it once, before the first iteration; a range costs some microseconds.

    moeperf_experts.annotate()

Each rank writes a table, experts-RANK.csv: iteration, layer, rank, e0, e1, ...  Under `moeperf record`
it lies with the recording and comes into the database with it; otherwise it lies in the folder that
MOEPERF_EXPERTS names (moeperf-experts here), for `moeperf import` and `--loads`.
"""

import atexit
import collections
import math
import os
import pathlib
import weakref

import torch
from torch.optim.optimizer import (register_optimizer_step_post_hook,
                                   register_optimizer_step_pre_hook)

__all__ = ["watch", "count", "step", "annotate"]

RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")


class _Table:
    """The counts of the iteration at hand, and the file that those before it are in."""

    def __init__(self):
        self.counts = {}  # by layer, on the device where they were counted
        self.iteration = 0
        self.file = None
        self.columns = 0

    def add(self, layer, counts):
        held = self.counts.get(layer)
        self.counts[layer] = counts if held is None else held + counts

    def write(self):
        """Ends an iteration."""
        if self.counts:
            rows = [counts.tolist() for _, counts in sorted(self.counts.items())]
            self.open(max(map(len, rows)))
            rank = _rank()
            for layer, row in zip(sorted(self.counts), rows):
                row += [0] * (self.columns - len(row))
                self.file.write(f"{self.iteration},{layer},{rank},{','.join(map(str, row))}\n")
            self.file.flush()
            self.counts = {}
        self.iteration += 1

    def open(self, experts):
        if self.file is not None:
            return
        folder = pathlib.Path(os.environ.get("MOEPERF_NVTX_SPOOLS") or
                              os.environ.get("MOEPERF_EXPERTS") or "moeperf-experts")
        folder.mkdir(parents=True, exist_ok=True)
        self.columns = experts
        self.file = open(folder / f"experts-{_rank()}.csv", "w", encoding="ascii")
        self.file.write("iteration,layer,rank," + ",".join(f"e{i}" for i in range(experts)) + "\n")


_table = _Table()


def _is_backward():
    return torch._C._current_graph_task_id() != -1


def _rank():
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    for variable in RANK_VARIABLES:
        if os.environ.get(variable, "").isdigit():
            return int(os.environ[variable])
    return 0


def _counts(chosen, experts, top_k):
    """How many tokens each expert gets, [experts], wherever `chosen` lies."""
    chosen = chosen.detach()
    if chosen.dim() == 1 and len(chosen) == experts and not top_k:
        return chosen.to(torch.int64)
    if chosen.dtype == torch.bool:
        return chosen.reshape(-1, experts).sum(0, dtype=torch.int64)
    if chosen.is_floating_point():
        if chosen.shape[-1] != experts or not top_k:
            raise ValueError(f"a gate's output {tuple(chosen.shape)} is no score of each of {experts} experts, "
                             "or top_k isn't given: say with choose= where the chosen experts are")
        chosen = chosen.reshape(-1, experts).topk(top_k).indices
    chosen = chosen.flatten()
    return torch.bincount(chosen[chosen >= 0], minlength=experts)


def count(layer, chosen, experts, top_k=0):
    """Adds what the tokens of this rank chose in a layer: see watch() for what `chosen` may be."""
    if not _is_backward():  # not once more
        _table.add(layer, _counts(chosen, experts, top_k))


def step():
    """Ends an iteration, where no optimizer of PyTorch's does."""
    _table.write()


def watch(gates, experts, top_k=0, choose=None):
    """Counts what these gates choose from now on; returns the hooks' handles, each with a remove()."""
    def follow(layer):
        def hook(_module, _inputs, output):
            if choose is not None:
                output = choose(output)
            elif isinstance(output, (tuple, list)):
                output = output[0]
            count(layer, output, experts, top_k)
        return hook

    return [gate.register_forward_hook(follow(layer)) for layer, gate in enumerate(gates)]


# ---- ranges ----

PRODUCTS = ("linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "_grouped_mm")
# By torch/csrc/distributed/c10d/Work.hpp's OpType.
OPERATIONS = {1: "all_reduce", 2: "all_reduce", 4: "all_gather", 5: "all_gather", 6: "all_gather",
              9: "reduce_scatter", 10: "all_to_all", 11: "all_to_all", 16: "reduce_scatter"}
FUNCTIONAL = ("all_to_all_single", "all_reduce", "all_reduce_", "all_gather_into_tensor",
              "reduce_scatter_tensor")


class _Rows(torch.overrides.TorchFunctionMode):
    """Counts rows that are multiplied: of inputs as wide as the first."""

    def __init__(self):
        super().__init__()
        self.width = self.rows = 0

    def __torch_function__(self, function, _types, arguments=(), keywords=None):
        first = function.__name__ == "addmm"
        for rows in arguments[first:first + 1] if function.__name__ in PRODUCTS else ():
            self.width = self.width or rows.shape[-1]
            self.rows += math.prod(rows.shape[:-1]) if rows.shape[-1] == self.width else 0
        return function(*arguments, **(keywords or {}))


def _annotate_modules(nvtx):
    """Calls of modules, named as torch.profiler names them: by class, in the order of first calls."""
    names, numbers, modes = weakref.WeakKeyDictionary(), collections.Counter(), []

    def name_of(module):
        kind = type(module)
        if kind.__module__.startswith("torch.") or _is_backward():  # torch's own; once more
            return ""
        if module not in names:
            names[module] = f"nn.Module: {kind.__name__}_{numbers[kind]}"
            numbers[kind] += 1
        return names[module]

    def before(module, _inputs):
        name = name_of(module)
        if name:
            nvtx.push_range(name)
        if "Experts" in name:
            modes.append(_Rows())
            modes[-1].__enter__()

    def after(module, _inputs, _output):
        name = name_of(module)
        if "Experts" in name:
            modes[-1].__exit__(None, None, None)
            nvtx.push_range(name, payload=modes.pop().rows)  # only now known: moeperf adds it up
            nvtx.pop_range()
        if name:
            nvtx.pop_range()

    torch.nn.modules.module.register_module_forward_pre_hook(before)
    torch.nn.modules.module.register_module_forward_hook(after, always_call=True)


class _Followed:
    """An operator of torch.ops, with `call` around its calls."""

    def __init__(self, operator, call):
        self.operator, self.call = operator, call

    def __call__(self, *arguments, **keywords):
        return self.call(self.operator, *arguments, **keywords)

    def __getattr__(self, name):
        return getattr(self.operator, name)


def _annotate_waits(nvtx):
    """Waits of works, and for the results of functional collectives, which C++ also waits for itself
    in the backward pass."""
    operations, work_wait = {}, torch.distributed.Work.wait  # operations: by where results lie

    def waits(operation, wait, *arguments):
        nvtx.push_range("gloo:" + operation, domain="waits", payload=int(_is_backward()))
        try:
            return wait(*arguments)
        finally:
            nvtx.pop_range(domain="waits")

    def wait(work, *arguments):
        if "nccl" in torch.distributed.get_backend_config():  # which does not wait on the host
            return work_wait(work, *arguments)
        return waits(OPERATIONS.get(work._get_op_type(), "wait"), work_wait, work, *arguments)

    def begin(name):
        def call(operator, *arguments, **keywords):
            result = operator(*arguments, **keywords)
            if result.device.type == "cpu":
                operations[result.data_ptr()] = name
            return result
        return call

    def end(operator, result):
        name = operations.pop(result.data_ptr(), "") if result.device.type == "cpu" else ""
        return waits(name, operator, result) if name else operator(result)

    torch.distributed.Work.wait = wait
    for space in torch.ops._c10d_functional, torch.ops._c10d_functional_autograd:
        for name in FUNCTIONAL:
            if hasattr(space, name):
                setattr(space, name, _Followed(getattr(space, name), begin(name)))
    torch.ops._c10d_functional.wait_tensor = _Followed(torch.ops._c10d_functional.wait_tensor, end)


def _annotate_optimizer(nvtx):
    def before(optimizer, _arguments, _keywords):
        nvtx.push_range(f"Optimizer.step#{type(optimizer).__name__}.step")

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(lambda *_: nvtx.pop_range())


def annotate():
    """Makes NVTX ranges from now on."""
    import nvtx
    _annotate_modules(nvtx)
    _annotate_optimizer(nvtx)
    if torch.distributed.is_available():
        _annotate_waits(nvtx)


register_optimizer_step_post_hook(lambda *_: step())
atexit.register(lambda: _table.file and _table.file.close())
