"""Forwards of different layers before one backward: towers that are called apart."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from budgets import Block, Course, Training
from torch import nn
from torch.nn import functional

STEPS = 40
LEARNED = 20  # forwards, of two or three a step


def words_of(step: int, tower: int, rows: int, most: int) -> torch.Tensor:
    drawn = random.Random(10 * step + tower)
    return torch.randint(3, 100, (rows, drawn.randint(8, most)),
                         generator=torch.Generator().manual_seed(step))  # fmt: skip


def rows_of(step: int) -> int:
    return random.Random(step).randint(2, 8)


def matched(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(left.float() @ right.float().t(), torch.arange(len(left)))


class Dual(nn.Module):
    """A narrow tower for questions and a wide one for documents, one entry for both."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 48)
        self.questions = nn.ModuleList(Block(48, 0.1) for _ in range(4))
        self.wider = nn.Linear(48, 64)
        self.documents = nn.ModuleList(Block(64) for _ in range(4))
        self.narrower = nn.Linear(64, 48)

    def forward(self, words: torch.Tensor, wide: bool) -> Any:
        x = self.embed(words)
        if not wide:
            for layer in self.questions:
                x = layer(x)
            return x.mean(1)
        x = self.wider(x)
        for layer in self.documents:
            x = layer(x)
        return self.narrower(x).mean(1)


def pair(model: nn.Module, k: int) -> None:
    rows = rows_of(k)
    asked = model(words_of(k, 0, rows, 24), wide=False)
    found = model(words_of(k, 1, rows, 80), wide=True)
    matched(asked, found).backward()


def documents_first(model: nn.Module, k: int) -> None:
    rows = rows_of(k)
    found = model(words_of(k, 1, rows, 80), wide=True)
    asked = model(words_of(k, 0, rows, 24), wide=False)
    matched(asked, found).backward()


def triplet(model: nn.Module, k: int) -> None:
    rows = rows_of(k)
    asked = model(words_of(k, 0, rows, 24), wide=False)
    found, other = (model(words_of(k, of, rows, 80), wide=True) for of in (1, 2))
    matched(asked, torch.cat([found, other])).backward()


def mixed(model: nn.Module, k: int) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        pair(model, k)


def clip() -> nn.Module:
    torch.manual_seed(0)
    shared = {"hidden_size": 48, "intermediate_size": 160, "num_hidden_layers": 4,
              "num_attention_heads": 4}  # fmt: skip
    return transformers.CLIPModel(transformers.CLIPConfig(
        text_config={**shared, "vocab_size": 100, "max_position_embeddings": 80,
                     "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0},
        vision_config={**shared, "image_size": 32, "patch_size": 8},
        projection_dim=32))  # fmt: skip


def features(output: Any) -> torch.Tensor:
    return output if isinstance(output, torch.Tensor) else output.pooler_output


def picture_and_text(model: Any, k: int) -> None:
    rows = rows_of(k)
    pictures = torch.randn(rows, 3, 32, 32, generator=torch.Generator().manual_seed(k))
    words = words_of(k, 1, rows, 64)
    words[:, -1] = 2
    seen = features(model.get_image_features(pictures))
    matched(seen, features(model.get_text_features(words))).backward()


def encoder_decoder() -> nn.Module:
    torch.manual_seed(0)
    return transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=100, d_model=48, d_kv=12, d_ff=160, num_layers=3, num_heads=4,
        decoder_start_token_id=0))  # fmt: skip


def fused(model: Any, k: int) -> None:
    """The encoder over passages as a batch, then the decoder over all of them at once."""
    drawn = random.Random(k)
    rows, passages = drawn.randint(2, 4), drawn.randint(2, 4)
    read = model.get_encoder()(words_of(k, 0, rows * passages, 48))[0]
    words = words_of(k, 1, rows, 24)
    model(encoder_outputs=(read.view(rows, -1, 48),), labels=words).loss.backward()


def learning_in(course: Course) -> int:
    return sum(step["reason"].startswith("learning") for step in course.ended)


def check(course: Course, most_learning: int, most_unplanned: int) -> None:
    """Of the forwards. Near the floor some of the last ones find what others hold given back."""
    assert course.stats["state"] == "planning"
    assert learning_in(course) <= most_learning
    told, _ = course.told(LEARNED)
    ended = course.ended[LEARNED:]
    unplanned = sum(not step["predicted_peak_bytes"] for step in ended)
    assert unplanned <= most_unplanned, [step["reason"] for step in ended]
    assert statistics.median(map(abs, told)) <= 0.001, told
    assert min(told) >= -0.005, told


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("step", [pair, documents_first, triplet, mixed])
def test_two_towers_of_one_model_are_planned(
    step: Callable[[nn.Module, int], None], share: float
) -> None:
    forwards = 3 if step is triplet else 2
    check(Training(Dual, step, STEPS).held(share), 3 * forwards, 16 if share < 0.1 else 8)


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_pictures_and_texts_of_clip_called_apart_are_planned(share: float) -> None:
    check(Training(clip, picture_and_text, STEPS).held(share), 8, 16 if share < 0.1 else 8)


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_an_encoder_that_is_called_before_its_decoder_is_planned(share: float) -> None:
    course = Training(encoder_decoder, fused, STEPS).held(share)
    assert course.stats["state"] == "planning"
    assert learning_in(course) <= 14
    told, steps = course.told(LEARNED)
    assert len(told) >= steps // 2
    assert statistics.median(map(abs, told)) <= 0.003, told
    assert min(told) >= -0.01, told
