#!/usr/bin/env python3
"""Writes one file per gate: what PyTorch makes of the model, for the C tests to agree with.

    pip install torch numpy
    python tests/golden/make_golden.py

The model is written for reading, not for speed: it is the definition that reference/model follows.
Results are computed in float64 and stored as float32, so a float32 program is compared with the
true value.  A second run in float32 shows how far rounding alone moves each result; the script
fails if that is not well inside the tolerance of the tests.

A gate decides by comparing probabilities, so a near tie could flip with rounding and change
everything after it.  Sequences are therefore drawn until every decision in every step clears
MARGIN; no capacity couples the sequences, so one can be replaced without touching the others.
"""

import argparse
import math
import pathlib

import torch
import torch.nn.functional as functional

import golden

VOCABULARY = 256
LAYERS, WIDTH, HEADS, EXPERTS, EXPERT_WIDTH, SEQUENCE, BATCH = 2, 32, 4, 8, 48, 16, 8
STEPS = 10
LEARNING_RATE, BETA1, BETA2, EPSILON, WEIGHT_DECAY = 1e-3, 0.9, 0.95, 1e-8, 0.1
AUXILIARY_WEIGHT = 0.01
LAYER_NORM_EPSILON = 1e-5
JOB_SEED = 1  # of the trainer, which gates draw by
# Choices, and what else decides.
GATES = {
    "gshard": {"choices": 2},
    "switch": {"choices": 1},
    "softmax": {"choices": 4},
    "shared": {"choices": 2, "shared": 2},  # softmax beside experts that all tokens share
    "z_loss": {"choices": 1, "z_loss": 0.02},  # Switch with the router z-loss
    "hash": {"choices": 1, "hash_seed": 1},
    "ktop1": {"choices": 2},
    "sam": {"choices": 3, "groups": 2, "alignment": 0.05},
    "gshard_random": {"choices": 2, "random_second": True},
    "sequence": {"choices": 4},  # softmax with a balancing loss by sequence
    "dts": {"choices": 4, "hot": 2.0, "cold": 0.5, "anneal": 8, "least_weight": 0.1},
    "base": {"choices": 1, "draw": 1},  # the first draw moves 2.2e-5 by rounding
    "expertchoice": {"choices": 4, "capacity": 4},  # 2 x 16 tokens of a sequence over 8 experts
    "sigmoid": {"choices": 2, "groups": 4, "groups_kept": 2, "bias_rate": 0.01, "scale": 2.5},
}
UNBALANCED = ("hash", "base", "expertchoice")  # gates without a balancing loss
MARGIN = 5e-4
ROUNDING_LIMIT = 2e-5  # largest part of a result that float32 rounding may move


def create_parameters(generator, gate):
    """All parameters by name, float32 values in float64 tensors.

    Spread wider than a usual initialisation so that softmaxes, GELU and LayerNorm work away from
    their linear range and no gradient is negligible."""

    def normal(*shape, spread, mean=0.0):
        values = torch.randn(*shape, generator=generator) * spread + mean
        return values.to(torch.float64)

    parameters = {
        "token_table": normal(VOCABULARY, WIDTH, spread=0.4),
        "position_table": normal(SEQUENCE, WIDTH, spread=0.3),
    }
    for layer in range(LAYERS):
        name = f"layer.{layer}."
        parameters[name + "ln1_gain"] = normal(WIDTH, spread=0.2, mean=1.0)
        parameters[name + "ln1_bias"] = normal(WIDTH, spread=0.2)
        parameters[name + "qkv"] = normal(WIDTH, 3 * WIDTH, spread=1.5 / math.sqrt(WIDTH))
        parameters[name + "out"] = normal(WIDTH, WIDTH, spread=1.0 / math.sqrt(WIDTH))
        parameters[name + "ln2_gain"] = normal(WIDTH, spread=0.2, mean=1.0)
        parameters[name + "ln2_bias"] = normal(WIDTH, spread=0.2)
        parameters[name + "gate"] = normal(WIDTH, EXPERTS, spread=1.0 / math.sqrt(WIDTH))
        if "shared" in GATES[gate]:
            width = GATES[gate]["shared"] * EXPERT_WIDTH
            parameters[name + "shared1"] = normal(WIDTH, width, spread=1.5 / math.sqrt(WIDTH))
            parameters[name + "shared2"] = normal(width, WIDTH, spread=1.5 / math.sqrt(width))
        if gate == "sigmoid":
            parameters[name + "gate_bias"] = normal(EXPERTS, spread=0.05)
        for expert in range(EXPERTS):
            parameters[name + f"expert.{expert}.w1"] = normal(
                WIDTH, EXPERT_WIDTH, spread=1.5 / math.sqrt(WIDTH)
            )
            parameters[name + f"expert.{expert}.w2"] = normal(
                EXPERT_WIDTH, WIDTH, spread=1.5 / math.sqrt(EXPERT_WIDTH)
            )
    parameters["final_gain"] = normal(WIDTH, spread=0.2, mean=1.0)
    parameters["final_bias"] = normal(WIDTH, spread=0.2)
    return parameters


def layer_norm(x, gain, bias):
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + LAYER_NORM_EPSILON) * gain + bias


def attention(h, qkv_weight, out_weight):
    """h [batch, sequence, D].  A token's row of h @ Wqkv is q, then k, then v, each D numbers:
    head 0's, head 1's, and so on."""
    batch, sequence, width = h.shape
    qkv = h @ qkv_weight
    q, k, v = (
        part.reshape(batch, sequence, HEADS, width // HEADS).transpose(1, 2)
        for part in qkv.split(width, dim=-1)
    )
    scores = q @ k.transpose(-1, -2) / math.sqrt(width // HEADS)
    future = torch.ones(sequence, sequence, dtype=torch.bool).triu(1)
    weights = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1)
    return (weights @ v).transpose(1, 2).reshape(batch, sequence, width) @ out_weight


def random_bits(seed, stream, index):
    """As reference/base/random.h has it: SplitMix64's mixing, applied to each in turn."""

    def mix(value):
        value = (value + 0x9E3779B97F4A7C15) % 2**64
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
        return value ^ (value >> 31)

    return mix(mix(mix(seed) ^ stream) ^ index)


def random_below(seed, stream, index, bound):
    return random_bits(seed, stream, index) * bound >> 64


def drawn(step, layer, stream, tokens):
    """Uniform in (0, 1), for each token of the batch."""
    seed = random_bits(random_bits(JOB_SEED, step, layer), 1, 0)
    bits = [random_bits(seed, stream, token) >> 41 for token in range(tokens)]
    return (torch.tensor(bits, dtype=torch.float64) + 0.5) / 2**23


def draws(gate):
    return "random_second" in GATES[gate] or "hot" in GATES[gate]


def gumbel_softmax(logits, layer, gate, step):
    rule, tokens = GATES[gate], logits.shape[0]
    heat = rule["hot"] + (rule["cold"] - rule["hot"]) * min(step / rule["anneal"], 1)
    uniform = torch.stack([drawn(step, layer, 1 + e, tokens) for e in range(EXPERTS)], dim=1)
    noise = -torch.log(-torch.log(uniform))
    return torch.softmax((logits + noise.to(logits.dtype)) / heat, dim=-1)


def leave(chosen, weights, left):
    """Choices that are not taken: -1 - e, of weight 0."""
    return torch.where(left, -1 - chosen, chosen), weights.masked_fill(left, 0)


def largest(keys, choices):
    """The largest keys' places [tokens, choices] in descending order, and how clear that is."""
    ordered, order = torch.sort(keys, dim=-1, descending=True)
    gaps = ordered[:, :choices] - ordered[:, 1 : choices + 1]
    return order[:, :choices], gaps.amin(dim=-1) if gaps.numel() else torch.inf


def in_groups(keys, groups, kept, best):
    """Keys [tokens, E], those of groups that are not kept -inf, and how clear that is.  A group is
    as good as the sum of its `best` largest keys."""
    split = keys.reshape(keys.shape[0], groups, -1)
    scores = split.topk(min(best, split.shape[-1]), dim=-1).values.sum(dim=-1)
    ordered, order = torch.sort(scores, dim=-1, descending=True)
    closed = torch.ones_like(scores, dtype=torch.bool).scatter(1, order[:, :kept], False)
    margin = ordered[:, kept - 1] - ordered[:, kept]
    return split.masked_fill(closed[:, :, None], -math.inf).reshape(keys.shape), margin


def assign(scores, room, closed):
    """The experts of tokens [tokens] whose sum of scores [tokens, E] is the largest, each having
    `room` of them and the pair `closed` none, and that sum: by shortest augmenting paths."""
    tokens, experts = scores.shape
    costs = [[-v for v in row] for row in scores.tolist()]
    if closed is not None:
        costs[closed[0]][closed[1]] = 1e6
    holder, place_price = [[] for _ in range(experts)], [0.0] * experts
    token_price = [0.0] * tokens
    for new in range(tokens):
        # Dijkstra over experts; an expert with room ends it.
        distance, origin, done = [math.inf] * experts, [None] * experts, [False] * experts
        frontier, base = [(new, 0.0)], None
        while True:
            for token, so_far in frontier:
                for e in range(experts):
                    reach = so_far + costs[token][e] - token_price[token] - place_price[e]
                    if not done[e] and reach < distance[e] - 1e-15:
                        distance[e], origin[e] = reach, token
            last = min((e for e in range(experts) if not done[e]), key=lambda e: distance[e])
            done[last] = True
            if len(holder[last]) < room:
                break
            frontier = [(token, distance[last]) for token in holder[last]]
        end = distance[last]
        for e in range(experts):
            if done[e]:
                place_price[e] += distance[e] - end
                for token in holder[e]:
                    token_price[token] += end - distance[e]
        token_price[new] += end
        while True:
            token = origin[last]
            before = next((e for e in range(experts) if token in holder[e]), None)
            holder[last].append(token)
            if before is None:
                break
            holder[before].remove(token)
            last = before
    chosen = torch.tensor([next(e for e in range(experts) if t in holder[e]) for t in range(tokens)])
    return chosen, -sum(costs[t][e] for t, e in enumerate(chosen.tolist()))


def balanced(logits):
    """Every sequence's best assignment, and by how much it exceeds the second best, from which it
    differs in some token's expert."""
    chosen, margins = [], []
    for scores in logits.detach().split(SEQUENCE):
        room = SEQUENCE // EXPERTS
        best, most = assign(scores, room, None)
        others = [assign(scores, room, pair)[1] for pair in enumerate(best.tolist())]
        chosen.append(best)
        margins.append(torch.full((SEQUENCE,), most - max(others)))
    return torch.cat(chosen)[:, None], torch.cat(margins)


def taken_by_experts(probabilities, capacity):
    """Which tokens of its sequence every expert takes [tokens, E], and how clear that is."""
    taken, margins = [], []
    for own in probabilities.detach().split(SEQUENCE):
        ordered, order = torch.sort(own, dim=0, descending=True)
        mask = torch.zeros_like(own, dtype=torch.bool).scatter(0, order[:capacity], True)
        gap = (ordered[capacity - 1] - ordered[capacity]).amin()
        taken.append(mask)
        margins.append(gap.expand(SEQUENCE))
    return torch.cat(taken), torch.cat(margins)


def choose(logits, token, layer, bias, gate, step):
    """Probabilities [tokens, E], chosen experts and their weights [tokens, choices], the layer's
    losses beside the balancing one, and for each token how clearly it chose."""
    rule, choices = GATES[gate], GATES[gate]["choices"]
    other = torch.zeros((), dtype=logits.dtype)
    if gate == "hash":
        chosen = torch.tensor(
            [[random_below(rule["hash_seed"], layer, t, EXPERTS)] for t in token.tolist()]
        )
        ones = torch.ones(chosen.shape, dtype=logits.dtype)
        return torch.zeros_like(logits), chosen, ones, other, torch.ones(chosen.shape[0])
    if gate == "ktop1":
        split = torch.softmax(logits.reshape(-1, choices, EXPERTS // choices), dim=-1)
        ordered, order = torch.sort(split, dim=-1, descending=True)
        chosen = order[:, :, 0] + torch.arange(choices) * (EXPERTS // choices)
        margin = (ordered[:, :, 0] - ordered[:, :, 1]).amin(dim=-1)
        return split.reshape(logits.shape), chosen, ordered[:, :, 0], other, margin
    if gate == "sigmoid":
        scores = torch.sigmoid(logits)
        keys, clear = in_groups(
            scores + bias, rule["groups"], rule["groups_kept"], choices // rule["groups_kept"]
        )
        chosen, margin = largest(keys, choices)
        weights = scores.gather(1, chosen)
        weights = rule["scale"] * weights / weights.sum(dim=-1, keepdim=True)
        probabilities = scores / scores.sum(dim=-1, keepdim=True)
        return probabilities, chosen, weights, other, torch.minimum(margin, clear)
    if gate == "base":
        chosen, margin = balanced(logits)
        scores = torch.sigmoid(logits)
        # An auction with steps of 1e-4 is that exact where margins are above 16 of them.
        return scores, chosen, scores.gather(1, chosen), other, margin * MARGIN / 2e-3
    if gate == "expertchoice":
        probabilities = torch.softmax(logits, dim=-1)
        taken, margin = taken_by_experts(probabilities, rule["capacity"])
        keys = torch.where(taken, probabilities, -1 - torch.arange(EXPERTS, dtype=logits.dtype))
        ordered, order = torch.sort(keys, dim=-1, descending=True)
        chosen, left = order[:, :choices], ordered[:, :choices] < 0
        gap = ordered[:, choices - 1] - ordered[:, choices]  # above 0.5 where few take the token
        chosen, weights = leave(chosen, probabilities.gather(1, chosen), left)
        return probabilities, chosen, weights, other, torch.minimum(margin, gap)
    if "hot" in rule:
        probabilities = gumbel_softmax(logits, layer, gate, step)
        ordered, order = torch.sort(probabilities, dim=-1, descending=True)
        chosen, weights = order[:, :choices], ordered[:, :choices]
        left = weights < rule["least_weight"]
        left[:, 0] = False
        gaps = (weights - ordered[:, 1 : choices + 1]).masked_fill(left, torch.inf)
        clear = (weights[:, 1:] - rule["least_weight"]).abs().amin(dim=-1)
        chosen, weights = leave(chosen, weights, left)  # the order of those does not matter
        return probabilities, chosen, weights, other, torch.minimum(gaps.amin(dim=-1), clear)
    probabilities = torch.softmax(logits, dim=-1)
    if gate == "sam":
        keys, clear = in_groups(probabilities, rule["groups"], 1, EXPERTS)
        order = torch.sort(keys, dim=-1, descending=True).indices
        chosen = order[:, :choices]
        weights = probabilities.gather(1, chosen)
        above = probabilities - weights[:, -1:]
        size = EXPERTS // rule["groups"]
        outside = (torch.arange(EXPERTS) // size)[None, :] != chosen[:, :1] // size
        penalty = torch.where(outside, above.clamp_min(0), torch.zeros_like(above))
        other = rule["alignment"] * penalty.sum(dim=-1).mean()
        kink = torch.where(outside, above.abs(), torch.ones_like(above)).amin(dim=-1)
        gap = weights[:, :-1] - weights[:, 1:]
        return probabilities, chosen, weights, other, torch.minimum(
            torch.minimum(kink, clear), gap.amin(dim=-1)
        )
    chosen, margin = largest(probabilities, choices)
    weights = probabilities.gather(1, chosen)
    if choices > 1:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    if "random_second" in rule:
        excess = 2 * weights[:, 1] - drawn(step, layer, 0, logits.shape[0])
        left = torch.stack([torch.zeros_like(excess, dtype=torch.bool), excess < 0], dim=1)
        chosen, weights = leave(chosen, weights, left)
        margin = torch.minimum(margin, excess.abs())
    if "z_loss" in rule:
        other = rule["z_loss"] * (torch.logsumexp(logits, dim=-1) ** 2).mean()
    return probabilities, chosen, weights, other, margin


def balance(probabilities, chosen, gate):
    """GShard and Switch look at firsts; E / choices else, and SAM adds up its choices."""
    if gate in UNBALANCED:
        return torch.zeros((), dtype=probabilities.dtype)
    if gate == "sequence":
        parts = zip(probabilities.split(SEQUENCE), chosen.split(SEQUENCE))
        return torch.stack([balance(*part, "softmax") for part in parts]).mean()
    firsts = gate in ("gshard", "gshard_random", "switch", "z_loss", "dts")
    counted = chosen[:, :1] if firsts else chosen
    share = torch.bincount(counted.reshape(-1), minlength=EXPERTS).to(probabilities.dtype)
    share = share / (chosen.shape[0] if gate == "sam" else counted.numel())
    return EXPERTS * (probabilities.mean(dim=0) * share).sum()


def moe(h, token, parameters, layer, gate, step):
    """h [tokens, D].  Returns the mixed expert outputs, the layer's balancing loss and its other
    losses, the chosen experts [tokens, choices] and for each token how clearly it chose."""
    name = f"layer.{layer}."
    logits = h @ parameters[name + "gate"]
    bias = parameters.get(name + "gate_bias")
    probabilities, chosen, weights, other, margin = choose(
        logits, token, layer, bias, gate, step
    )
    mixed = torch.zeros_like(h)
    for expert in range(EXPERTS):
        row, choice = (chosen == expert).nonzero(as_tuple=True)
        w1, w2 = (parameters[f"{name}expert.{expert}.{part}"] for part in ("w1", "w2"))
        y = functional.gelu(h[row] @ w1, approximate="tanh") @ w2
        mixed = mixed.index_add(0, row, weights[row, choice, None] * y)
    if name + "shared1" in parameters:
        hidden = functional.gelu(h @ parameters[name + "shared1"], approximate="tanh")
        mixed = mixed + hidden @ parameters[name + "shared2"]
    return mixed, balance(probabilities, chosen, gate), other, chosen, margin.detach()


def forward(parameters, tokens, gate, step):
    """tokens [batch, sequence].  Returns logits [batch, sequence, V], auxiliary losses [2, layers]
    (balancing, others), chosen experts [layers, tokens, choices], margins [batch]: the least clear
    of each sequence."""
    batch, sequence = tokens.shape
    x = parameters["token_table"][tokens] + parameters["position_table"][:sequence]
    auxiliaries, all_chosen, margins = [], [], []
    for layer in range(LAYERS):
        name = f"layer.{layer}."
        h = layer_norm(x, parameters[name + "ln1_gain"], parameters[name + "ln1_bias"])
        x = x + attention(h, parameters[name + "qkv"], parameters[name + "out"])
        h = layer_norm(x, parameters[name + "ln2_gain"], parameters[name + "ln2_bias"])
        mixed, auxiliary, other, chosen, margin = moe(
            h.reshape(-1, WIDTH), tokens.reshape(-1), parameters, layer, gate, step
        )
        x = x + mixed.reshape(x.shape)
        auxiliaries.append(torch.stack([auxiliary, other]))
        all_chosen.append(chosen)
        margins.append(margin.reshape(batch, sequence).amin(dim=-1))
    x = layer_norm(x, parameters["final_gain"], parameters["final_bias"])
    logits = x @ parameters["token_table"].T
    auxiliary = torch.stack(auxiliaries, dim=1)
    return logits, auxiliary, torch.stack(all_chosen), torch.stack(margins).amin(0)


def draw_sequences(parameters, gate, generator, step):
    """[BATCH, SEQUENCE + 1] bytes whose every routing decision is clear under `parameters`."""
    kept = torch.empty(0, SEQUENCE + 1, dtype=torch.int64)
    batch, clear = torch.empty(BATCH, SEQUENCE + 1, dtype=torch.int64), torch.zeros(BATCH)
    with torch.no_grad():
        for _ in range(1000):
            # The smaller of two uniform bytes: some bytes occur often, some never.
            pair = torch.randint(
                0, VOCABULARY, (2, 4 * BATCH, SEQUENCE + 1), generator=generator
            )
            candidates = pair.amin(dim=0)
            if draws(gate):  # what is drawn for a token depends on its place in the batch
                _, _, _, margins = forward(parameters, candidates[:BATCH, :-1], gate, step)
                batch[clear <= MARGIN] = candidates[:BATCH][clear <= MARGIN]
                clear = torch.where(clear <= MARGIN, margins, clear)
                if clear.amin() > MARGIN:
                    return batch
                continue
            _, _, _, margins = forward(parameters, candidates[:, :-1], gate, step)
            kept = torch.cat([kept, candidates[margins > MARGIN]])
            if kept.shape[0] >= BATCH:
                return kept[:BATCH]
    raise RuntimeError(f"no {BATCH} sequences with a margin of {MARGIN} found")


def decays(name):
    return not name.endswith(("_gain", "_bias"))


def learns(name):
    return not name.endswith("gate_bias")


def has_other_losses(gate):
    return "z_loss" in GATES[gate] or "alignment" in GATES[gate]


def even_out(parameters, chosen):
    """Biases of experts with fewer routes than the mean rise, those of others fall."""
    for layer in range(LAYERS):
        bias = parameters.get(f"layer.{layer}.gate_bias")
        if bias is not None:
            routes = torch.bincount(chosen[layer].reshape(-1), minlength=EXPERTS).double()
            step = GATES["sigmoid"]["bias_rate"] * torch.sign(routes.mean() - routes)
            with torch.no_grad():
                bias += step.to(bias.dtype)


def train(initial, gate, precision, sequences=None, generator=None):
    """STEPS steps of AdamW; draws the sequences itself when none are given.  Returns results by
    name in `precision`, and the sequences [STEPS, BATCH, SEQUENCE + 1]."""
    parameters = {n: p.to(precision).clone().requires_grad_() for n, p in initial.items()}
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for n, p in parameters.items() if decays(n)]},
            {
                "params": [p for n, p in parameters.items() if learns(n) and not decays(n)],
                "weight_decay": 0.0,
            },
        ],
        lr=LEARNING_RATE, betas=(BETA1, BETA2), eps=EPSILON, weight_decay=WEIGHT_DECAY,
    )
    results, used, losses, auxiliaries = {}, [], [], []
    for step in range(STEPS):
        batch = draw_sequences(parameters, gate, generator, step) if sequences is None \
            else sequences[step]
        used.append(batch)
        tokens, targets = batch[:, :-1], batch[:, 1:]
        logits, auxiliary, chosen, margins = forward(parameters, tokens, gate, step)
        loss = functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))
        optimizer.zero_grad()
        (loss + AUXILIARY_WEIGHT * auxiliary[0].sum() + auxiliary[1].sum()).backward()
        if sequences is None:
            assert margins.amin() > MARGIN
        losses.append(loss.detach())
        auxiliaries.append(auxiliary.detach())
        if step == 0:
            results["logits"] = logits.detach()
            results["choices"] = chosen
            for name, parameter in parameters.items():
                grad = parameter.grad  # None for what nothing depends on
                results["gradient." + name] = \
                    torch.zeros_like(parameter) if grad is None else grad.clone()
        if gate == "hash":  # the gate's matrix only decays, as with a gradient of zeros
            for name, parameter in parameters.items():
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None \
                    else parameter.grad
        optimizer.step()
        even_out(parameters, chosen)
    results["losses"] = torch.stack(losses)
    results["auxiliary_losses"] = torch.stack(auxiliaries)[:, 0]
    if has_other_losses(gate):
        results["other_losses"] = torch.stack(auxiliaries)[:, 1]
    for name, parameter in parameters.items():
        results["after10." + name] = parameter.detach()
    return results, torch.stack(used)


def difference(name, value, reference):
    """Largest difference, relative to the tensor's largest absolute value."""
    if not reference.is_floating_point():
        assert torch.equal(value, reference), f"{name} differs between float32 and float64"
        return 0.0
    scale = reference.abs().amax().clamp_min(1e-12)
    return ((value.double() - reference).abs().amax() / scale).item()


def settings(choices):
    whole = {
        "layers": LAYERS, "width": WIDTH, "heads": HEADS, "experts": EXPERTS,
        "expert_width": EXPERT_WIDTH, "sequence": SEQUENCE, "batch": BATCH,
        "choices": choices, "steps": STEPS,
    }
    real = {
        "learning_rate": LEARNING_RATE, "beta1": BETA1, "beta2": BETA2, "epsilon": EPSILON,
        "weight_decay": WEIGHT_DECAY, "auxiliary_weight": AUXILIARY_WEIGHT,
        "layer_norm_epsilon": LAYER_NORM_EPSILON,
    }
    tensors = {f"settings.{n}": torch.tensor([v], dtype=torch.int32) for n, v in whole.items()}
    tensors |= {f"settings.{n}": torch.tensor([v], dtype=torch.float64) for n, v in real.items()}
    return tensors


def make(gate, seed, folder):
    generator = torch.Generator().manual_seed(seed + GATES[gate].get("draw", 0))
    choices = GATES[gate]["choices"]
    initial = create_parameters(generator, gate)
    results, sequences = train(initial, gate, torch.float64, generator=generator)
    rounded, _ = train(initial, gate, torch.float32, sequences=sequences)
    worst = max((difference(n, rounded[n], r), n) for n, r in results.items())
    assert worst[0] < ROUNDING_LIMIT, f"{worst[1]}: rounding moves it by {worst[0]:.1e}"

    taken = results["choices"][results["choices"] >= 0]
    load = torch.bincount(taken, minlength=EXPERTS)
    path = folder / f"{gate}.bin"
    golden.write(
        path,
        settings(choices)
        | {"tokens": sequences[:, :, :-1], "targets": sequences[:, :, 1:]}
        | initial
        | results,
    )
    print(
        f"{path}: {path.stat().st_size} bytes, loss {results['losses'][0]:.6f} to "
        f"{results['losses'][-1]:.6f}, routes per expert {load.tolist()} in step 1, "
        f"rounding at most {worst[0]:.1e} ({worst[1]})"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=20250)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("--gate", choices=GATES, action="append", help="default: all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation, the same file everywhere
    for gate in arguments.gate or GATES:
        make(gate, arguments.seed, arguments.folder)


if __name__ == "__main__":
    main()
