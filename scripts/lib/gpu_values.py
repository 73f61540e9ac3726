"""Whether a CUDA device gives the same bits: models trained as they are and under pudica's plans.

    gpu_values.py FILE [--jobs N] [KIND...]   writes what was seen, fails where a bit differs

Each kind (a Hugging Face model made from a configuration, its batches and way of training) runs in
a process of its own, under torch's deterministic algorithms: twice as it is, then under each of
WAYS, from the same seed. Compared are the loss of each step, parameters, buffers and the states of
torch's generators at the end. A budget is a share of the way from what recomputing every layer
takes to what keeping all takes.
"""

import contextlib
import functools
import gc
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from turns import bits  # noqa: E402

STEPS = 12
LONGEST_SECONDS = 300
WORDS = 2000
SIZES = {"vocab_size": WORDS, "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8,
         "intermediate_size": 2048, "max_position_embeddings": 520}
CAUSAL = {**SIZES, "num_key_value_heads": 4, "pad_token_id": 0, "bos_token_id": 1,
          "eos_token_id": 2, "use_cache": False}
HALVES = {"vocab_size": WORDS, "d_model": 512, "encoder_layers": 4, "decoder_layers": 4,
          "encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 2048,
          "decoder_ffn_dim": 2048, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
          "decoder_start_token_id": 1, "use_cache": False}
# name: (share of the range or None, arguments of attach)
WAYS = {
    "none": (None, {"policy": "none"}), "full": (None, {"policy": "full"}),
    "soft at 0.1": (0.1, {}), "hard at 0.5": (0.5, {"enforce": "hard"}),
    "offload at 0.2": (0.2, {"config": ["keep", "selective", "offload", "full"]}),
    "dtr at 0.3": (0.3, {"policy": "dtr"}), "mimose at 0.3": (0.3, {"policy": "mimose:warmup=4"}),
}


# -- batches ---------------------------------------------------------------------------------


def text(step, longest=512, rows=8, salt=0):
    """Rows of many lengths, padded: words and what of them counts. Those of the first step, in
    which layers are tried, are short."""
    import torch

    draw = random.Random(1000 * salt + step)
    top = 64 if step < 100 else draw.randint(64, longest)
    made = torch.Generator().manual_seed(7919 * salt + step)
    words = torch.randint(4, WORDS, (rows, top), generator=made)
    for row in range(1, rows):
        words[row, draw.randint(top // 2, top):] = 0
    return words, (words != 0).long()


def causal(step, **settings):
    words, counts = text(step, **settings)
    return {"input_ids": words, "attention_mask": counts,
            "labels": words.masked_fill(counts == 0, -100)}


def unmasked(step):
    words, _ = text(step)
    return {"input_ids": words, "labels": words}


def classes(step):
    words, counts = text(step)
    return {"input_ids": words, "attention_mask": counts, "labels": words[:, 0] % 2}


def pairs(step):
    words, counts = text(step)
    target, counted = text(step, longest=200, salt=9)
    return {"input_ids": words, "attention_mask": counts,
            "labels": target.masked_fill(counted == 0, -100)}


def images(step):
    import torch

    made = torch.Generator().manual_seed(step)
    rows = 2 if step < 100 else random.Random(step).randint(2, 12)
    return {"pixel_values": torch.randn(rows, 3, 224, 224, generator=made),
            "labels": torch.randint(0, 2, (rows,), generator=made)}


# -- models ----------------------------------------------------------------------------------


def llama(**settings):
    import transformers as hf

    return hf.LlamaForCausalLM(hf.LlamaConfig(**CAUSAL, **settings))


def adapted():
    """A frozen Llama with low-rank adapters on queries and values."""
    import torch
    from torch import nn

    class Adapter(nn.Module):
        def __init__(self, linear):
            super().__init__()
            self.linear = linear
            self.down = nn.Parameter(torch.randn(8, linear.in_features) * 0.02)
            self.up = nn.Parameter(torch.zeros(linear.out_features, 8))

        def forward(self, x):
            low = nn.functional.dropout(x, 0.1, self.training) @ self.down.t().to(x.dtype)
            return self.linear(x) + low @ self.up.t().to(x.dtype)

    model = llama()
    model.requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj = Adapter(layer.self_attn.q_proj)
        layer.self_attn.v_proj = Adapter(layer.self_attn.v_proj)
    return model


def kinds():
    """name: (makes the model, makes a batch, settings of the training)."""
    import transformers as hf

    half = {"dtype": "bfloat16"}
    amp = {"autocast": "bfloat16"}
    return {
        "bert": (lambda: hf.BertForSequenceClassification(hf.BertConfig(**SIZES)), classes, {}),
        "bert, autocast, clipped": (
            lambda: hf.BertForSequenceClassification(hf.BertConfig(**SIZES)), classes,
            {**amp, "clip": 1.0}),
        "gpt2, float16, scaled": (lambda: hf.GPT2LMHeadModel(hf.GPT2Config(
            vocab_size=WORDS, n_embd=512, n_layer=8, n_head=8, n_positions=520, use_cache=False,
            bos_token_id=1, eos_token_id=2)), causal, {"autocast": "float16", "scaler": True}),
        "llama, flash attention": (functools.partial(llama, attention_dropout=0.1), unmasked, half),
        "llama, masked": (llama, causal, half),
        "llama, three batches a step": (llama, causal, {**amp, "accumulate": 3}),
        "llama, adapters": (adapted, causal, amp),
        "gemma2": (lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(
            **CAUSAL, head_dim=64, sliding_window=128)), causal, half),
        "qwen2, experts": (lambda: hf.Qwen2MoeForCausalLM(hf.Qwen2MoeConfig(
            **CAUSAL, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=512,
            shared_expert_intermediate_size=512)), causal, amp),
        "t5": (lambda: hf.T5ForConditionalGeneration(hf.T5Config(
            vocab_size=WORDS, d_model=512, d_kv=64, d_ff=2048, num_layers=4, num_decoder_layers=4,
            num_heads=8, decoder_start_token_id=0, pad_token_id=0, use_cache=False)), pairs, {}),
        "bart": (lambda: hf.BartForConditionalGeneration(hf.BartConfig(
            **HALVES, max_position_embeddings=520, forced_eos_token_id=2)), pairs, amp),
        "vit": (lambda: hf.ViTForImageClassification(hf.ViTConfig(
            hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048,
            hidden_dropout_prob=0.1)), images, amp),
    }


# -- a training ------------------------------------------------------------------------------


def one_step(model, optimizer, scaler, batch_of, settings, step):
    """The loss of its last batch."""
    import torch

    kind = settings.get("autocast")
    for part in range(settings.get("accumulate", 1)):
        batch = {name: value.cuda(non_blocking=True)
                 for name, value in batch_of(100 * step + part).items()}
        context = torch.autocast("cuda", getattr(torch, kind)) if kind else contextlib.nullcontext()
        with context:
            loss = model(**batch).loss
        (scaler.scale(loss) if scaler else loss).backward()
    if "clip" in settings:
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
    if scaler:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    optimizer.zero_grad()
    return loss


def train(kind, budget=None, config=None, **arguments):
    """(what it came to as a digest, losses' digests, largest bytes, the handle's counts)."""
    import torch

    import pudica

    gc.collect()
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    make, batch_of, settings = kind
    model = make().to("cuda", getattr(torch, settings.get("dtype", "float32"))).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    scaler = torch.amp.GradScaler("cuda") if settings.get("scaler") else None
    handle = None
    if budget is not None:
        handle = pudica.attach(model, budget, config=config, daemon=False, **arguments)
    torch.manual_seed(1)
    torch.cuda.reset_peak_memory_stats()
    losses, counts = [], {"finite": True}
    try:
        for step in range(STEPS):
            loss = one_step(model, optimizer, scaler, batch_of, settings, step)
            losses.append(hashlib.sha256(bits(loss)).hexdigest()[:12])
            counts["finite"] &= bool(torch.isfinite(loss))
    except torch.OutOfMemoryError as error:
        counts["out_of_memory"] = str(error).partition("\n")[0][:200]
    peak = torch.cuda.memory_stats()["active_bytes.all.peak"]
    found = hashlib.sha256(bits(torch.cuda.get_rng_state()) + bits(torch.get_rng_state()))
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        found.update(name.encode() + bits(tensor))
    if handle is not None:
        stats = handle.stats()
        counts |= {key: stats[key] for key in (
            "recomputed_calls", "layer_calls", "revocations", "overruns", "infeasible_steps",
            "failures")}
        handle.detach()
    return found.hexdigest(), losses, peak, counts


def fault_of(one):
    """Why a kind's comparison does not say that the bits are the same; empty: it does."""
    if "failed" in one or not one.get("ways"):
        return one.get("failed") or "nothing was compared"
    if not one["repeats"]:
        return "does not repeat itself"
    for way, found in one["ways"].items():
        if not found["same"]:
            return f"other bits: {way}"
        if not found.get("finite", True) or found.get("out_of_memory"):
            return f"{way}: {found.get('out_of_memory') or 'the loss is not finite'}"
        plans = way != "none"
        if found["failures"] or not found["layer_calls"] or plans and not found["recomputed_calls"]:
            return f"{way}: nothing was planned"
    return ""


def look(name):
    """One kind, in this process."""
    import torch

    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # as users have it
    kind = kinds()[name]
    plain = train(kind)
    out = {"kind": name, "repeats": train(kind)[:2] == plain[:2], "ways": {}}
    peaks = {}
    for way, (share, arguments) in WAYS.items():
        budget = 1 << 40
        if share is not None:
            budget = int(peaks["full"] + share * (peaks["none"] - peaks["full"])) + (16 << 20)
        with tempfile.TemporaryDirectory() as folder:
            given = dict(arguments)
            if "config" in given:
                file = pathlib.Path(folder) / "menu.json"
                file.write_text(json.dumps({"planner": {"menu": given["config"]}}))
                given["config"] = str(file)
            final, losses, peaks[way], counts = train(kind, budget, **given)
        first = next((k for k, (a, b) in enumerate(zip(losses, plain[1])) if a != b), None)
        out["ways"][way] = {"same": (final, losses) == plain[:2], "first_other_loss": first,
                            **counts}
    return out


def look_apart(name):
    try:
        done = subprocess.run([sys.executable, __file__, "--kind", name], capture_output=True,
                              text=True, check=False, timeout=LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        return {"kind": name, "failed": f"took longer than {LONGEST_SECONDS} s"}
    if done.returncode != 0 or not done.stdout.strip():
        words = (done.stderr or done.stdout).strip().splitlines()
        return {"kind": name, "failed": words[-1] if words else f"exit {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def main(file, jobs, chosen):
    if os.environ.get("PUDICA_EMULATED_DEVICE"):
        sys.exit("gpu_values: kernels do nothing on the emulated device: expected a real one")
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # which torch wants to be deterministic
    with ThreadPoolExecutor(jobs) as pool:
        seen = list(pool.map(look_apart, chosen or list(kinds())))
    faults = [fault_of(one) for one in seen]
    for one, fault in zip(seen, faults):
        print(f"{one['kind']:28} {fault or 'the same bits ' + str(len(one['ways'])) + ' ways'}")
    pathlib.Path(file).write_text(json.dumps({"steps": STEPS, "kinds": seen}, indent=1) + "\n",
                                  encoding="utf-8")
    print(f"{faults.count('')} of {len(seen)} kinds gave the same bits in all ways")
    return 1 if any(faults) else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["--kind"]:
        print(json.dumps(look(words[1])))
    elif words and not words[0].startswith("-"):
        at = words.index("--jobs") if "--jobs" in words else None
        many = int(words[at + 1]) if at is not None else 1
        rest = words[1:] if at is None else words[1:at] + words[at + 2:]
        sys.exit(main(words[0], many, rest))
    else:
        sys.exit(__doc__)
