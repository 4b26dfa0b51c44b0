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
CHOICES = {"gshard": 2, "switch": 1, "softmax": 4}
MARGIN = 5e-4
ROUNDING_LIMIT = 2e-5  # largest part of a result that float32 rounding may move


def create_parameters(generator):
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


def moe(h, parameters, name, choices):
    """h [tokens, D].  Returns the mixed expert outputs, the layer's auxiliary loss, the chosen
    experts [tokens, choices] and for each token how clearly it chose."""
    probabilities = torch.softmax(h @ parameters[name + "gate"], dim=-1)
    ordered, order = torch.sort(probabilities, dim=-1, descending=True)
    chosen, weights = order[:, :choices], ordered[:, :choices]
    if choices > 1:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    margin = (ordered[:, :choices] - ordered[:, 1 : choices + 1]).amin(dim=-1)

    mixed = torch.zeros_like(h)
    for expert in range(EXPERTS):
        token, choice = (chosen == expert).nonzero(as_tuple=True)
        w1, w2 = (parameters[f"{name}expert.{expert}.{part}"] for part in ("w1", "w2"))
        y = functional.gelu(h[token] @ w1, approximate="tanh") @ w2
        mixed = mixed.index_add(0, token, weights[token, choice, None] * y)

    counted = chosen if choices > 2 else chosen[:, :1]  # GShard and Switch look at firsts
    share = torch.bincount(counted.reshape(-1), minlength=EXPERTS).to(h.dtype) / counted.numel()
    auxiliary = EXPERTS * (probabilities.mean(dim=0) * share).sum()
    return mixed, auxiliary, chosen, margin.detach()


def forward(parameters, tokens, choices):
    """tokens [batch, sequence].  Returns logits [batch, sequence, V], auxiliary losses [layers],
    chosen experts [layers, tokens, choices], margins [batch]: the least clear of each sequence."""
    batch, sequence = tokens.shape
    x = parameters["token_table"][tokens] + parameters["position_table"][:sequence]
    auxiliaries, all_chosen, margins = [], [], []
    for layer in range(LAYERS):
        name = f"layer.{layer}."
        h = layer_norm(x, parameters[name + "ln1_gain"], parameters[name + "ln1_bias"])
        x = x + attention(h, parameters[name + "qkv"], parameters[name + "out"])
        h = layer_norm(x, parameters[name + "ln2_gain"], parameters[name + "ln2_bias"])
        mixed, auxiliary, chosen, margin = moe(h.reshape(-1, WIDTH), parameters, name, choices)
        x = x + mixed.reshape(x.shape)
        auxiliaries.append(auxiliary)
        all_chosen.append(chosen)
        margins.append(margin.reshape(batch, sequence).amin(dim=-1))
    x = layer_norm(x, parameters["final_gain"], parameters["final_bias"])
    logits = x @ parameters["token_table"].T
    return logits, torch.stack(auxiliaries), torch.stack(all_chosen), torch.stack(margins).amin(0)


def draw_sequences(parameters, choices, generator):
    """[BATCH, SEQUENCE + 1] bytes whose every routing decision is clear under `parameters`."""
    kept = torch.empty(0, SEQUENCE + 1, dtype=torch.int64)
    with torch.no_grad():
        for _ in range(100):
            # The smaller of two uniform bytes: some bytes occur often, some never.
            pair = torch.randint(
                0, VOCABULARY, (2, 4 * BATCH, SEQUENCE + 1), generator=generator
            )
            candidates = pair.amin(dim=0)
            _, _, _, margins = forward(parameters, candidates[:, :-1], choices)
            kept = torch.cat([kept, candidates[margins > MARGIN]])
            if kept.shape[0] >= BATCH:
                return kept[:BATCH]
    raise RuntimeError(f"no {BATCH} sequences with a margin of {MARGIN} found")


def decays(name):
    return not name.endswith(("_gain", "_bias"))


def train(initial, choices, precision, sequences=None, generator=None):
    """STEPS steps of AdamW; draws the sequences itself when none are given.  Returns results by
    name in `precision`, and the sequences [STEPS, BATCH, SEQUENCE + 1]."""
    parameters = {n: p.to(precision).clone().requires_grad_() for n, p in initial.items()}
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for n, p in parameters.items() if decays(n)]},
            {"params": [p for n, p in parameters.items() if not decays(n)], "weight_decay": 0.0},
        ],
        lr=LEARNING_RATE, betas=(BETA1, BETA2), eps=EPSILON, weight_decay=WEIGHT_DECAY,
    )
    results, used, losses, auxiliaries = {}, [], [], []
    for step in range(STEPS):
        batch = draw_sequences(parameters, choices, generator) if sequences is None \
            else sequences[step]
        used.append(batch)
        tokens, targets = batch[:, :-1], batch[:, 1:]
        logits, auxiliary, chosen, margins = forward(parameters, tokens, choices)
        loss = functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))
        optimizer.zero_grad()
        (loss + AUXILIARY_WEIGHT * auxiliary.sum()).backward()
        if sequences is None:
            assert margins.amin() > MARGIN
        losses.append(loss.detach())
        auxiliaries.append(auxiliary.detach())
        if step == 0:
            results["logits"] = logits.detach()
            results["choices"] = chosen
            for name, parameter in parameters.items():
                results["gradient." + name] = parameter.grad.clone()
        optimizer.step()
    results["losses"] = torch.stack(losses)
    results["auxiliary_losses"] = torch.stack(auxiliaries)
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
    generator = torch.Generator().manual_seed(seed)
    choices = CHOICES[gate]
    initial = create_parameters(generator)
    results, sequences = train(initial, choices, torch.float64, generator=generator)
    rounded, _ = train(initial, choices, torch.float32, sequences=sequences)
    worst = max((difference(n, rounded[n], r), n) for n, r in results.items())
    assert worst[0] < ROUNDING_LIMIT, f"{worst[1]}: rounding moves it by {worst[0]:.1e}"

    load = torch.bincount(results["choices"].reshape(-1), minlength=EXPERTS)
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
    parser.add_argument("--gate", choices=CHOICES, action="append", help="default: all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation, the same file everywhere
    for gate in arguments.gate or CHOICES:
        make(gate, arguments.seed, arguments.folder)


if __name__ == "__main__":
    main()
