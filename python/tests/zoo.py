"""Small models built from configurations, each with a batch: {name: factory}."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import nn

VOCABULARY, HIDDEN, LAYERS, HEADS, INNER, LENGTH = 97, 32, 4, 4, 48, 11

Factory = Callable[[], tuple[nn.Module, dict[str, Any]]]

_SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "max_position_embeddings": 64,
}
_ENCODER = {**_SHAPE, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
_DECODER = {
    **_SHAPE,
    "num_key_value_heads": 2,
    "attention_dropout": 0.1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_BOTH = {
    "vocab_size": VOCABULARY,
    "d_model": HIDDEN,
    "encoder_layers": 3,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": INNER,
    "decoder_ffn_dim": INNER,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": 2,
}
_T5 = {
    "vocab_size": VOCABULARY,
    "d_model": HIDDEN,
    "d_kv": 8,
    "d_ff": INNER,
    "num_layers": 3,
    "num_decoder_layers": LAYERS,
    "num_heads": HEADS,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
}


def tokens(rows: int = 2, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (rows, length))


def text_batch(labels_length: int | None = None) -> dict[str, torch.Tensor]:
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[0, LENGTH - 3 :] = 0
    labels = ids.clone() if labels_length is None else tokens(2, labels_length)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def _made(model: nn.Module, batch: dict[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
    return model.train(), batch


def _from_config(kind: Any, config: Any, **text: Any) -> Factory:
    return lambda: _made(kind(config), text_batch(**text))


def vit() -> tuple[nn.Module, dict[str, Any]]:
    shape = {k: v for k, v in _ENCODER.items() if k.startswith(("hid", "num", "int", "att"))}
    config = hf.ViTConfig(**shape, image_size=16, patch_size=4, num_labels=3)
    batch = {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.randint(0, 3, (2,))}
    return _made(hf.ViTForImageClassification(config), batch)


def whisper() -> tuple[nn.Module, dict[str, Any]]:
    config = hf.WhisperConfig(
        **_BOTH, num_mel_bins=8, max_source_positions=20, max_target_positions=32
    )
    batch = {"input_features": torch.randn(2, 8, 40), "labels": tokens(2, 7)}
    return _made(hf.WhisperForConditionalGeneration(config), batch)


def wav2vec2(layerdrop: float = 0.3) -> tuple[nn.Module, dict[str, Any]]:
    config = hf.Wav2Vec2Config(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, intermediate_size=INNER, conv_dim=(16, 16, 16),
        conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3), num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4, layerdrop=layerdrop, mask_time_prob=0.0,
        ctc_loss_reduction="mean", pad_token_id=0, hidden_dropout=0.1, attention_dropout=0.1,
        activation_dropout=0.1)  # fmt: skip
    return _made(
        hf.Wav2Vec2ForCTC(config),
        {"input_values": torch.randn(2, 1600), "labels": tokens(2, 5)},
    )


class Block(nn.Module):
    """A hand-written layer: its arguments are a tuple and a keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.up = nn.Linear(HIDDEN, INNER)
        self.down = nn.Linear(INNER, HIDDEN)
        self.dropout = nn.Dropout(0.1)

    def forward(
        self, state: tuple[torch.Tensor, torch.Tensor], *, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x, gate = state
        h = self.dropout(self.down(torch.nn.functional.gelu(self.up(self.norm(x))))) * gate
        return x + scale * h, gate


class HandWritten(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, HIDDEN)
        self.blocks = nn.ModuleList([Block() for _ in range(5)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        state = (x, x.mean(-1, keepdim=True).sigmoid())
        for block in self.blocks:
            state = block(state, scale=0.5)
        return state[0].pow(2).mean()


class Nested(nn.Module):
    """Stages, each a ModuleList of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, HIDDEN)
        self.stages = nn.ModuleList(
            [nn.ModuleList([_encoder_layer() for _ in range(n)]) for n in (2, 3)]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for stage in self.stages:
            for layer in stage:  # type: ignore[attr-defined]
                x = layer(x)
        return x.pow(2).mean()


class Attributes(nn.Module):
    """Layers as plain attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, HIDDEN)
        self.first, self.second, self.third = (_encoder_layer() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(self.second(self.first(self.embed(x)))).pow(2).mean()


def _encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(HIDDEN, HEADS, INNER, dropout=0.1, batch_first=True)


def _written(kind: type[nn.Module]) -> Factory:
    return lambda: _made(kind(), {"x": torch.randn(2, LENGTH, 8)})


def _positional(positions: str) -> dict[str, Any]:
    return {**_BOTH, positions: 64}


MODELS: dict[str, Factory] = {
    "bert": _from_config(hf.BertForMaskedLM, hf.BertConfig(**_ENCODER)),
    "roberta": _from_config(
        hf.RobertaForMaskedLM, hf.RobertaConfig(**_ENCODER, pad_token_id=0)
    ),
    "distilbert": _from_config(
        hf.DistilBertForMaskedLM,
        hf.DistilBertConfig(vocab_size=VOCABULARY, dim=HIDDEN, n_layers=LAYERS, n_heads=HEADS,
                            hidden_dim=INNER, max_position_embeddings=64)),  # fmt: skip
    "electra": _from_config(
        hf.ElectraForMaskedLM, hf.ElectraConfig(**_ENCODER, embedding_size=16)
    ),
    "albert": _from_config(
        hf.AlbertForMaskedLM,
        hf.AlbertConfig(**{**_ENCODER, "num_hidden_layers": 12}, embedding_size=16)),
    "deberta-v2": _from_config(
        hf.DebertaV2ForMaskedLM,
        hf.DebertaV2Config(**_ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"],
                           position_buckets=8, norm_rel_ebd="layer_norm",
                           share_att_key=True)),  # fmt: skip
    "gpt2": _from_config(
        hf.GPT2LMHeadModel,
        hf.GPT2Config(vocab_size=VOCABULARY, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS,
                      n_positions=64, bos_token_id=1, eos_token_id=2)),  # fmt: skip
    "llama": _from_config(hf.LlamaForCausalLM, hf.LlamaConfig(**_DECODER)),
    "qwen2": _from_config(hf.Qwen2ForCausalLM, hf.Qwen2Config(**_DECODER)),
    "gemma": _from_config(hf.GemmaForCausalLM, hf.GemmaConfig(**_DECODER, head_dim=8)),
    "t5": _from_config(hf.T5ForConditionalGeneration, hf.T5Config(**_T5), labels_length=7),
    "bart": _from_config(
        hf.BartForConditionalGeneration,
        hf.BartConfig(**_positional("max_position_embeddings")), labels_length=7),
    "marian": _from_config(
        hf.MarianMTModel,
        hf.MarianConfig(**_positional("max_position_embeddings")), labels_length=7),
    "whisper": whisper,
    "vit": vit,
    "wav2vec2": wav2vec2,
    "mixtral": _from_config(
        hf.MixtralForCausalLM,
        hf.MixtralConfig(**_DECODER, num_local_experts=4, output_router_logits=True)),
    "hand-written": _written(HandWritten),
    "nested lists": _written(Nested),
    "attributes": _written(Attributes),
}


@functools.cache
def _seed_of(name: str) -> int:
    return sum(name.encode())


def build(name: str, factory: Factory | None = None) -> tuple[nn.Module, dict[str, Any]]:
    """The model in training mode and its batch, the same every time."""
    torch.manual_seed(_seed_of(name))
    return (factory or MODELS[name])()
