#!/usr/bin/env python3
"""make_golden.py - makes <net>_tiny.json for tests/test_golden*.c: what PyTorch computes for a small net.

usage: make_golden.py [resnet50] [unet] [bert]     writes the files beside this one; all of them if none is named

For each variant of a net (its losses or heads): the parameters as they are drawn (params.py); `first`, the forward pass and
all gradients of the first step, and what an update makes of the parameters; `curves`, ten steps with each recipe. All that in
float64; `f32_distance` says how far PyTorch itself is from it in float32, so how near anything in float32 can be expected
to be.
"""
import json
import os
import sys

import torch

import bert
import philox
import resnet50
import unet
from params import PARAM_SEED

NETS = {"resnet50": resnet50, "unet": unet, "bert": bert}
STEPS = 10
MOMENTUM, BETAS, EPS = 0.9, (0.9, 0.999), 1e-8
PLACE_SEED = 3
SAMPLED = 3  # elements of each parameter's gradient


def optimizer(params, recipe):
    groups = [dict(params=[p for p, d in zip(params.all, params.decay) if d], weight_decay=recipe["weight_decay"]),
              dict(params=[p for p, d in zip(params.all, params.decay) if not d], weight_decay=0)]
    if recipe["optimizer"] == "adamw":
        return torch.optim.AdamW(groups, lr=recipe["learning_rate"], betas=BETAS, eps=EPS)
    return torch.optim.SGD(groups, lr=recipe["learning_rate"], momentum=MOMENTUM)


def micro_batches(samples, count):
    return zip(*(x.chunk(count) for x in samples))


def train(module, variant, dtype, recipe):
    """The curve of one recipe; grad_norm is the norm before clipping."""
    net = module.Net(variant, dtype)
    step_of = optimizer(net.params, recipe)
    losses, norms = [], []
    for step in range(STEPS):
        samples = module.batch(variant, step, dtype)
        window, total = module.counted(samples, variant), 0.0
        step_of.zero_grad()
        for micro in micro_batches(samples, recipe["accum"]):
            loss = net(micro, True)[1] / window
            loss.backward()
            total += float(loss.detach())
        losses.append(total)
        norms.append(net.params.grad_norm())
        if recipe["max_norm"]:
            torch.nn.utils.clip_grad_norm_(net.params.all, recipe["max_norm"])
        step_of.step()
    with torch.no_grad():
        samples = module.batch(variant, 0, dtype)
        after = float(net(samples, False)[1]) / module.counted(samples, variant)
    return dict(loss=losses, grad_norm=norms, eval_loss=after)


def sampled(tensor, stream):
    """Norm, and some elements by their row-major index."""
    flat = tensor.detach().double().flatten()
    at = [int(w) % len(flat) for w in philox.integers(PLACE_SEED, stream, (SAMPLED,))]
    return dict(norm=float(flat.norm()), at=at, values=[float(flat[i]) for i in at])


def first_step(module, variant, dtype):
    """Forward and backward of the first batch, undivided."""
    net = module.Net(variant, dtype)
    samples = module.batch(variant, 0, dtype)
    logits, loss = net(samples, True)
    loss = loss / module.counted(samples, variant)
    loss.backward()
    return net, logits, float(loss.detach())


def after_update(module, variant):
    """{"sgd": parameters after the first step, "adamw": ...}, each with its first recipe."""
    after = {}
    for recipe in module.RECIPES:
        if recipe["optimizer"] not in after:
            net = first_step(module, variant, torch.float64)[0]
            optimizer(net.params, recipe).step()
            after[recipe["optimizer"]] = net.params.all
    return after


def distance(tensor, exact):
    """|a - b| / |b| in the 2-norm."""
    return float((tensor.detach().double() - exact.detach()).norm() / exact.detach().norm())


def relative(curve, exact):
    pairs = list(zip(curve["loss"], exact["loss"])) + [(curve["eval_loss"], exact["eval_loss"])]
    return max(abs(a - b) / abs(b) for a, b in pairs)


def golden(module, variant):
    net, logits, loss = first_step(module, variant, torch.float64)
    small, small_logits, small_loss = first_step(module, variant, torch.float32)
    after = after_update(module, variant)
    params = []
    for i, drawn in enumerate(net.params.drawn):
        exact = net.params.all[i].grad
        grad = dict(sampled(exact, i), f32_distance=distance(small.params.all[i].grad, exact))
        params.append(dict(drawn, grad=grad, **{"after_" + name: sampled(all_[i], i)["values"] for name, all_ in after.items()}))
    first = dict(loss=loss, logits=sampled(logits, 1 << 32), grad_norm=net.params.grad_norm(),
                 f32_distance=dict(loss=abs(small_loss / loss - 1), logits=distance(small_logits, logits)))
    curves = []
    for recipe in module.RECIPES:
        f64, f32 = train(module, variant, torch.float64, recipe), train(module, variant, torch.float32, recipe)
        curves.append(dict(recipe, **f64, f32_distance=relative(f32, f64)))
        print(f"  {variant} {recipe['optimizer']} accum {recipe['accum']} clip {recipe['max_norm']}: loss {f64['loss'][0]:.4f} -> "
              f"{f64['loss'][-1]:.4f}, evaluated {f64['eval_loss']:.4f}, norm {f64['grad_norm'][0]:.3f} -> "
              f"{f64['grad_norm'][-1]:.3f}, float32 is {relative(f32, f64):.1e} away", file=sys.stderr)
    worst = max(param["grad"]["f32_distance"] for param in params)
    print(f"  {variant} first step in float32: {first['f32_distance']}, gradients {worst:.1e}", file=sys.stderr)
    return dict(**module.VARIANTS[variant], start_norm2=net.params.start_norm2(), params=params, first=first, curves=curves)


def one_line_each(value, depth):
    """JSON with a line for each leaf of the depth given, so that a difference between two files can be read."""
    if depth == 0 or not isinstance(value, (dict, list)):
        return json.dumps(value)
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {one_line_each(item, depth - 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(items) + "\n}"
    return "[\n" + ",\n".join(one_line_each(item, depth - 1) for item in value) + "\n]"


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or NETS:
        print(name, file=sys.stderr)
        module = NETS[name]
        config = dict(module.CONFIG, steps=STEPS, param_seed=PARAM_SEED, momentum=MOMENTUM, betas=BETAS, eps=EPS)
        variants = {variant: golden(module, variant) for variant in module.VARIANTS}
        content = dict(source=f"PyTorch {torch.__version__}, make_golden.py", config=config, variants=variants)
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}_tiny.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(one_line_each(content, 4) + "\n")


if __name__ == "__main__":
    main()
