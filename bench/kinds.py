#!/usr/bin/env python3
"""Trains every kind of Hugging Face model that a small configuration can be made for, each between
its floor and keep-all and near its floor, and tells what pudica did not do well: steps over the
budget, bits that differ, peaks predicted too low or too high, steps spent on learning. Peaks are
counted in bytes on the CPU. Which plans are tried depends on measured times: runs differ."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import courses

VOCABULARY, LONGEST = 200, 96
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


def training(head: str, kind: str, seed: int, steps: int) -> courses.Make:
    def train(model: Any) -> Iterator[None]:
        import numpy
        import torch

        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        for k in range(steps):
            optimizer.zero_grad()
            torch.manual_seed(k)  # dropout, layers left out
            numpy.random.seed(k)
            random.seed(k)
            model(**batch(head, k, seed)).loss.backward()
            optimizer.step()
            yield

    def fresh() -> tuple[Any, Iterator[None]]:
        model = make(kind, head)
        return model, train(model)

    return fresh


if __name__ == "__main__":
    courses.main(__doc__, __file__, HEADS, training)
