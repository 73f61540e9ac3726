#!/usr/bin/env python3
"""Trains every kind of Hugging Face model that a small configuration can be made for, each between
its floor and keep-all and near its floor, and tells what pudica did not do well: steps over the
budget, bits that differ, peaks predicted too low or too high, steps spent on learning. Peaks are
counted in bytes on the CPU. Which plans are tried depends on measured times: runs differ."""

from __future__ import annotations

import argparse
import concurrent.futures
import gc
import json
import os
import pathlib
import random
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
VOCABULARY, LONGEST, STEPS = 200, 96, 60
HEADS = {
    "causal": ["gpt2", "gpt_neo", "gptj", "gpt_neox", "gpt_bigcode", "opt", "bloom", "llama",
               "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3",
               "falcon", "mpt", "stablelm", "olmo", "olmo2", "starcoder2", "cohere", "granite",
               "glm", "mixtral", "qwen2_moe", "qwen3_moe", "codegen", "biogpt", "xglm", "nemotron",
               "persimmon", "smollm3", "exaone4", "helium", "mamba"],
    "masked": ["bert", "roberta", "distilbert", "electra", "albert", "deberta", "deberta-v2",
               "camembert", "mpnet", "roformer", "squeezebert", "convbert", "nystromformer",
               "funnel", "modernbert", "ernie", "fnet", "xlm-roberta", "megatron-bert",
               "mobilebert", "rembert", "layoutlm", "xmod", "data2vec-text", "ibert", "yoso", "mra",
               "esm"],
    "seq2seq": ["t5", "mt5", "umt5", "bart", "mbart", "pegasus", "marian", "blenderbot",
                "blenderbot-small", "m2m_100", "led", "plbart", "prophetnet", "pegasus_x",
                "switch_transformers", "nllb-moe"],
    "vision": ["vit", "deit", "beit", "swinv2", "convnext", "convnextv2", "resnet",
               "dinov2", "regnet", "poolformer", "pvt_v2", "segformer", "vit_msn",
               "bit", "focalnet", "mobilevit", "ijepa"],
}  # fmt: skip

# Whatever of it a configuration knows.
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64,
    "embedding_size": 32, "num_hidden_layers": 6, "n_layer": 6, "n_layers": 6, "num_layers": 6,
    "encoder_layers": 3, "decoder_layers": 3, "num_decoder_layers": 3, "num_encoder_layers": 3,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2,
    "num_decoder_attention_heads": 4, "num_encoder_attention_heads": 4,
    "intermediate_size": 160, "ffn_dim": 160, "hidden_dim": 160, "d_ff": 160, "n_inner": 160,
    "encoder_ffn_dim": 160, "decoder_ffn_dim": 160, "ffn_hidden_size": 160, "d_kv": 16,
    "head_dim": 16, "max_position_embeddings": 256, "n_positions": 256, "rotary_dim": 8,
    "max_seq_len": 256, "word_embed_proj_dim": 64, "num_local_experts": 4, "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 48, "shared_expert_intermediate_size": 48,
    "image_size": 64, "use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1, "attention_window": 16, "local_attention": 16,
    "sliding_window": 32, "state_size": 8, "attention_types": [[["global", "local"], 3]],
    "block_sizes": [2, 2, 2], "feed_forward_size": 160, "ffn_size": 160,
    "expert_capacity": 64, "src_vocab_size": VOCABULARY,
    "tgt_vocab_size": VOCABULARY, "true_hidden_size": 32, "intra_bottleneck_size": 32,
    "languages": ["en_XX"], "default_language": "en_XX", "encoder_sparse_step": 2,
    "decoder_sparse_step": 2, "position_embedding_type": "absolute",
}  # fmt: skip


def make(kind: str, head: str) -> Any:
    import torch
    import transformers as hf

    known = hf.AutoConfig.for_model(kind).to_dict()
    sizes = SIZES
    if head == "vision":  # models with a size for each stage keep theirs
        names = ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]
        flat = all(isinstance(known.get(name, 0), int) for name in names)
        flat = flat and "num_hidden_layers" in known
        sizes = {name: SIZES[name] for name in ["image_size", *(names if flat else [])]}
    config = hf.AutoConfig.for_model(kind, **{k: v for k, v in sizes.items() if k in known})
    config.architectures = []  # some look there whether their code is their own
    if head == "seq2seq" and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 1
    if head == "vision":
        config.num_labels = 10
    if kind == "squeezebert":
        config.embedding_size = config.hidden_size
    auto = {
        "causal": hf.AutoModelForCausalLM, "masked": hf.AutoModelForMaskedLM,
        "seq2seq": hf.AutoModelForSeq2SeqLM, "vision": hf.AutoModelForImageClassification,
    }[head]  # fmt: skip
    torch.manual_seed(0)
    return auto.from_config(config).train()


def batch(head: str, k: int, seed: int) -> dict[str, Any]:
    """The k-th: of any number of rows and any length, the second half of the rows padded."""
    import torch

    drawn = random.Random(f"{seed} {k}")
    made = torch.Generator().manual_seed(drawn.randrange(1 << 30))
    if head == "vision":
        pixels = torch.randn(drawn.randint(1, 8), 3, 64, 64, generator=made)
        return {"pixel_values": pixels, "labels": torch.zeros(len(pixels), dtype=torch.long)}
    rows, length = drawn.randint(1, 6), drawn.randint(8, LONGEST)

    def words(length: int) -> Any:
        return torch.randint(3, VOCABULARY, (rows, length), generator=made)

    out = {"input_ids": words(length), "attention_mask": torch.ones(rows, length).long()}
    out["attention_mask"][rows - rows // 2 :, length - length // 4 :] = 0
    out["labels"] = words(drawn.randint(4, length)) if head == "seq2seq" else out["input_ids"]
    return out


def course(head: str, kind: str, seed: int, steps: int) -> dict[str, Any]:
    """What came of it; runs in a process of its own."""
    import numpy
    import torch
    from budgets import Training

    torch.set_num_threads(1)

    def step(model: Any, k: int) -> None:
        torch.manual_seed(k)  # dropout, layers left out
        numpy.random.seed(k)
        random.seed(k)
        model(**batch(head, k, seed)).loss.backward()

    training = Training(lambda: make(kind, head), step, steps)
    floor, keep_all, bits = training.ends()
    told: dict[str, Any] = {"floor_bytes": floor, "keep_all_bytes": keep_all}
    for share in (0.02, 0.3):
        budget = int(floor * (1 if share > 0.1 else 1.02) + share * (keep_all - floor))
        gc.collect()  # models of the runs before, which count as anybody's bytes
        ran = training.run(budget)
        errors = [one["predicted_peak_bytes"] / one["peak_bytes"] - 1
                  for one in ran.steps if one["predicted_peak_bytes"]]  # fmt: skip
        told[str(share)] = {
            "over": len(ran.over(budget)),
            "most_over": max((by - 1 for _, by in ran.over(budget)), default=0.0),
            "learning": sum(one["reason"].startswith("learning") for one in ran.steps),
            "unplanned": len(ran.steps) - len(errors),
            "low": sum(error < -0.01 for error in errors),
            "lowest": min(errors, default=0.0),
            "high": sum(error > 0.05 for error in errors),
            "highest": max(errors, default=0.0),
            "revoked": ran.stats["revocations"],
            "state": ran.stats["state"],
            "same_bits": ran.bits == bits,
        }
    return told


def in_a_process(head: str, kind: str, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", f"{head}:{kind}", "--seed", str(options.seed),
               "--steps", str(options.steps)]  # fmt: skip
    paths = [str(ROOT / "python"), str(ROOT / "python" / "tests"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    try:
        ran = subprocess.run(command, env=environment, capture_output=True, text=True,
                             timeout=options.most_seconds, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"more than {options.most_seconds} s"}
    if ran.returncode != 0:
        return {"error": (ran.stderr.strip().splitlines() or [f"exit {ran.returncode}"])[-1][:160]}
    try:
        out: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": f"printed no result: {ran.stdout[-100:]!r}"}
    return out


def line(name: str, told: dict[str, Any]) -> str:
    if "error" in told:
        return f"{name:28} {told['error']}"
    out = f"{name:28} {told['keep_all_bytes'] / told['floor_bytes']:5.2f}"
    for share, one in told.items():
        if not isinstance(one, dict):
            continue
        out += (f" | {share:>4}: over {one['over']:2} ({one['most_over']:5.1%}) learn"
                f" {one['learning']:2}/{one['unplanned']:2} low {one['low']:2}"
                f" ({one['lowest']:6.1%}) high {one['high']:2} ({one['highest']:5.1%})"
                f" rev {one['revoked']:2}{'' if one['same_bits'] else ' BITS'}"
                f"{'' if one['state'] == 'planning' else ' ' + one['state']}")  # fmt: skip
    return out


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("kinds", nargs="*", help="such as bert or causal; all of them without")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--steps", type=int, default=STEPS)
    asked.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked.add_argument("--most-seconds", type=int, default=300, help="that one kind may take")
    asked.add_argument("--out", type=pathlib.Path, help="a JSON file")
    asked.add_argument("--one", help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.steps < 2:
        asked.error(f"--steps {options.steps}: expected at least 2")
    if options.one:
        print(json.dumps(course(*options.one.split(":"), options.seed, options.steps)))
        return
    known = [(head, kind) for head, kinds in HEADS.items() for kind in kinds]
    chosen = [one for one in known if not options.kinds or set(one) & set(options.kinds)]
    unknown = set(options.kinds) - {name for one in known for name in one}
    if unknown:
        asked.error(f"unknown: {', '.join(sorted(unknown))}; heads are {', '.join(HEADS)}")
    results = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        ran = {pool.submit(in_a_process, *one, options): ":".join(one) for one in chosen}
        for done in concurrent.futures.as_completed(ran):
            results[ran[done]] = done.result()
            print(line(ran[done], done.result()), flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
