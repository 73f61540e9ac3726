"""Hugging Face models, made from configurations, under pudica, its rivals and what the framework
has: a cell is a model, a budget and a seed. Peaks of all rows are those of pudica's meter, which
works with and without a handle; the rows `plain` and `torch.compile` by which others are divided
run without it."""

import argparse
import csv
import functools
import os
import pathlib
import random

import rivals_cells
import turns
from rivals_traces import ROOT

VOCABULARY = 512
AMPLE = 1 << 40
WARMUP = 12  # turns that are not counted: learning, Mimose's warm-up, compiling
BASE = "plain"
NTH = 2  # of the layers that are checkpointed in every n-th
# What selective checkpointing saves, as torch's documentation has it: products and attention.
SAVED_OPERATORS = ("mm", "addmm", "bmm", "baddbmm", "_scaled_dot_product_flash_attention_for_cpu",
                   "_scaled_dot_product_flash_attention",
                   "_scaled_dot_product_efficient_attention")
PRELOADED = ["torch", "transformers", "pudica", "rivals_models"]


# -- models and their batches ----------------------------------------------------------------


def bert(options):
    import transformers as hf

    return hf.BertForMaskedLM(hf.BertConfig(
        vocab_size=VOCABULARY, hidden_size=options.hidden, num_hidden_layers=options.layers,
        num_attention_heads=4, intermediate_size=4 * options.hidden, max_position_embeddings=512))


def llama(options):
    import transformers as hf

    return hf.LlamaForCausalLM(hf.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=options.hidden, num_hidden_layers=options.layers,
        num_attention_heads=4, num_key_value_heads=2, intermediate_size=3 * options.hidden,
        max_position_embeddings=512, attention_dropout=0.1, use_cache=False))


def t5(options):
    import transformers as hf

    half = options.layers // 2
    return hf.T5ForConditionalGeneration(hf.T5Config(
        vocab_size=VOCABULARY, d_model=options.hidden, d_kv=options.hidden // 4, num_heads=4,
        d_ff=4 * options.hidden, num_layers=half, num_decoder_layers=options.layers - half,
        decoder_start_token_id=0, pad_token_id=0, use_cache=False))


def vit(options):
    import transformers as hf

    return hf.ViTForImageClassification(hf.ViTConfig(
        hidden_size=options.hidden, num_hidden_layers=options.layers, num_attention_heads=4,
        intermediate_size=4 * options.hidden, image_size=64, patch_size=8, num_labels=10,
        hidden_dropout_prob=0.1))


# name: (makes it, examples in a batch, where their lengths come from, the longest)
MODELS = {
    "encoder (BERT)": (bert, 16, ("qqp.csv", ("len",)), 256),
    "decoder (Llama)": (llama, 4, ("alpaca5k.csv", ("src_len", "tgt_len")), 384),
    "encoder-decoder (T5)": (t5, 16, ("multi30k_en_de.csv", ("src_len", "tgt_len")), 256),
    "vision (ViT)": (vit, 12, None, 0),  # images are of one size; batches of many
}


@functools.cache
def lengths_of(file, columns):
    with (ROOT / "data" / file).open(encoding="utf-8") as rows:
        return [tuple(int(row[column]) for column in columns) for row in csv.DictReader(rows)]


def shapes(name, options):
    """Of each step's batch: examples and lengths, the same for the same seed."""
    _, size, source, longest = MODELS[name]
    drawn = random.Random(options.seed)
    if source is None:
        return [(drawn.randint(2, size),) for _ in range(options.steps)]
    examples = lengths_of(*source)
    found = []
    for _ in range(options.steps):
        batch = drawn.sample(examples, size)
        most = [min(longest, max(2, *column)) for column in zip(*batch)]
        if name.startswith("decoder"):
            most = [min(longest, sum(most))]  # the prompt and its answer in one row
        found.append((size, *most))
    return found


def batch_of(name, shape, step):
    import torch

    made = torch.Generator().manual_seed(step)

    def words(length):
        return torch.randint(1, VOCABULARY, (shape[0], length), generator=made)

    if len(shape) == 1:
        return {"pixel_values": torch.randn(shape[0], 3, 64, 64, generator=made),
                "labels": torch.randint(0, 10, (shape[0],), generator=made)}
    return {"input_ids": words(shape[1]), "labels": words(shape[-1])}


# -- ways of training ------------------------------------------------------------------------


def checkpointed(layer, **settings):
    from torch.utils.checkpoint import checkpoint

    layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False, **settings)


def save_products(_context, operator, *_args, **_kwargs):
    from torch.utils.checkpoint import CheckpointPolicy

    saved = operator.name().removeprefix("aten::").split(".")[0] in SAVED_OPERATORS
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


def checkpoint_selectively(model):
    """As torch's documentation has it."""
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    import pudica

    for layer in pudica.find_layers(model):
        checkpointed(layer, context_fn=functools.partial(
            create_selective_checkpoint_contexts, save_products))


def prepare(model, way):
    """The module to call, and pudica's handle of it or None."""
    import torch

    import pudica

    kind = way["kind"]
    if kind == "checkpointing":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    elif kind == "every n-th":
        for layer in pudica.find_layers(model)[::NTH]:
            checkpointed(layer)
    elif kind == "selective":
        checkpoint_selectively(model)
    elif kind == "compile":
        import torch._functorch.config

        torch._functorch.config.activation_memory_budget = way["memory_budget"]
        return torch.compile(model, dynamic=True), None
    elif kind == "policy":
        handle = pudica.attach(model, way["budget"], policy=way["policy"], daemon=False)
        return model, handle
    return model, None


def job(turn, options, way):
    """Trains one way of a cell."""
    import torch

    from pudica import _native

    meter = _native.ops
    if way["metered"]:
        meter.install_meter()
    name = way["model"]
    torch.manual_seed(options.seed)
    model = MODELS[name][0](options).train()
    called, handle = prepare(model, way)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    found = shapes(name, options)
    # Where floor and keep-all are measured the first step is one more: in it the first layer of
    # each class is kept, to be tried.
    for step, shape in enumerate([*found[:1], *found] if way.get("calibrates") else found):
        batch = batch_of(name, shape, step)
        torch.manual_seed(1000 * options.seed + step)
        if way["metered"]:
            meter.reset_peak_bytes("cpu")
        turn.begin()
        optimizer.zero_grad()
        called(**batch).loss.backward()
        optimizer.step()
        turn.end(peak=meter.peak_bytes("cpu") if way["metered"] else None)
    stats = handle.stats() if handle else {}
    return {"digest": turns.digest(model),
            **{key: stats.get(key) for key in ("overruns", "failures", "learning_steps",
                                               "revocations")}}


def ways_of(model, budget, share, options):
    """Every row of a cell."""
    import pudica

    ways = {
        BASE: {"kind": "plain", "metered": False},
        "plain, metered": {"kind": "plain"},
        "gradient_checkpointing=True": {"kind": "checkpointing"},
        f"torch checkpoint, every {NTH}": {"kind": "every n-th"},
        "torch selective checkpoint": {"kind": "selective"},
        **{f"policy {policy}": {"kind": "policy", "policy": policy, "budget": budget}
           for policy in options.policies or pudica.policies()},
    }
    if model in options.compiled:
        ways["torch.compile"] = {"kind": "compile", "memory_budget": 1.0}
        ways["torch.compile, memory budget"] = {"kind": "compile", "memory_budget": share}
    return {name: {"metered": True, "model": model, **way} for name, way in ways.items()}


# -- a cell ----------------------------------------------------------------------------------


def peaks(lane):
    return [told["peak"] for told in lane.measured]


def calibrate(model, options):
    """(floor, keep-all) of the run's own batches: the largest peaks with every layer recomputed and
    with every layer kept."""
    ways = {policy: {"kind": "policy", "policy": policy, "budget": AMPLE, "model": model,
                     "metered": True, "calibrates": True} for policy in ("full", "none")}
    lanes = turns.interleave(job, options, ways, options.steps + 1, "forkserver")
    for name, lane in lanes.items():
        if lane.failure:
            raise RuntimeError(f"{model}, policy {name}: {lane.failure}")
    return tuple(max(peaks(lanes[name])[1:]) for name in ("full", "none"))


def row(lane, base, budget):
    if lane.failure:
        return {"status": "failed", "detail": lane.failure}
    own, reference = lane.seconds[WARMUP:], base.seconds[WARMUP:]
    found = {"status": "ok", "detail": None, "time_of_plain": turns.over(own, reference),
             "steps": len(own), "peak_bytes": None, "budget_used": None, "steps_over_budget": None,
             **lane.report}
    if lane.measured[0]["peak"] is not None:
        counted = peaks(lane)[1:]
        found["peak_bytes"] = max(counted)
        found["budget_used"] = round(max(counted) / budget, 5)
        found["steps_over_budget"] = sum(peak > budget for peak in counted)
    return found


def measure(model, share, seed, options):
    options = argparse.Namespace(**{**vars(options), "seed": seed})
    floor, keep_all = calibrate(model, options)
    budget = int(floor + share * (keep_all - floor))
    lanes = turns.interleave(job, options, ways_of(model, budget, share, options), options.steps,
                             "forkserver")
    if lanes[BASE].failure:
        raise RuntimeError(f"{model}, {BASE}: {lanes[BASE].failure}")
    rows = {name: row(lane, lanes[BASE], budget) for name, lane in lanes.items()}
    for name, found in rows.items():
        if found["status"] == "ok":
            found["same_parameters"] = found["digest"] == rows[BASE]["digest"]
    return {"budget_bytes": budget, "floor_bytes": floor, "keep_all_bytes": keep_all, "rows": rows}


def run(options, say):
    import multiprocessing

    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    # The server is a new program: it finds this folder and the package by PYTHONPATH.
    paths = [str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return rivals_cells.run("model", options.models, options, say,
                            lambda *cell: measure(*cell, options))
