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

Each rank writes a table, experts-RANK.csv: iteration, layer, rank, e0, e1, ...  Under `moeperf record`
it lies with the recording and comes into the database with it; otherwise it lies in the folder that
MOEPERF_EXPERTS names (moeperf-experts here), for `moeperf import` and `--loads`.
"""

import atexit
import os
import pathlib

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

__all__ = ["watch", "count", "step"]

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
    if torch._C._current_graph_task_id() == -1:  # not once more for backward
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


register_optimizer_step_post_hook(lambda *_: step())
atexit.register(lambda: _table.file and _table.file.close())
