"""Small models, batches of many lengths, and budgets between floor and keep-all, for tests."""

from __future__ import annotations

import gc
import hashlib
import json
import pathlib
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

VOCABULARY = 120


def digest(model: nn.Module) -> str:
    """Of every parameter and buffer with its name: equal if and only if all bits are. Holds no
    tensor, so that runs compared have the same memory to themselves."""
    found = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        found.update(name.encode())
        flat = tensor.detach().cpu().flatten()
        found.update(flat.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def bert(layers: int = 4, hidden: int = 48, seed: int = 0) -> Any:
    """A config-built classifier with dropout."""
    import transformers

    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=4,
        intermediate_size=4 * hidden, max_position_embeddings=128,
    )
    return transformers.BertForSequenceClassification(config)


class Sentences(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Sequences of random lengths, the same for the same seed."""

    def __init__(self, count: int, longest: int = 96, seed: int = 1) -> None:
        lengths = random.Random(seed)
        self._lengths = [lengths.randint(8, longest) for _ in range(count)]

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        made = torch.Generator().manual_seed(index)
        words = torch.randint(1, VOCABULARY, (self._lengths[index],), generator=made)
        return {"input_ids": words, "labels": words.sum() % 2}


def collate(examples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Padded to the longest of the batch."""
    words = nn.utils.rnn.pad_sequence([e["input_ids"] for e in examples], batch_first=True)
    return {
        "input_ids": words,
        "attention_mask": (words != 0).long(),
        "labels": torch.stack([e["labels"] for e in examples]),
    }


def config_file(folder: pathlib.Path, **settings: Any) -> str:
    path = folder / ("-".join(settings) + ".json")
    path.write_text(json.dumps(settings), encoding="utf-8")
    return str(path)


def watch(session: Any) -> list[dict[str, Any]]:
    """A list that a callback's session fills with every step of its runs."""
    steps: list[dict[str, Any]] = []
    note = session.note_step

    def noting() -> None:
        note()
        if session._seen["steps"] and not (steps and steps[-1] is session._seen["last_step"]):
            steps.append(session._seen["last_step"])

    session.note_step = noting
    return steps


def middle_budget(
    folder: pathlib.Path, run: Callable[[int, str | None], list[dict[str, Any]]]
) -> tuple[int, int, int]:
    """(floor, middle, keep-all) in bytes, measured: `run(budget, config)` trains once and gives its
    steps."""
    gc.collect()
    ample = 1 << 40
    kept = run(ample, config_file(folder, policy="none"))
    gc.collect()
    # The first step of all keeps its layers, to try whether they can be run again.
    full = [
        step for step in run(ample, config_file(folder, policy="full"))
        if step["recomputed_layers"] == step["layer_calls"]
    ]
    gc.collect()
    assert len(full) >= len(kept) - 2
    keep_all, floor = (max(step["peak_bytes"] for step in steps) for steps in (kept, full))
    assert floor < 0.8 * keep_all
    return floor, (floor + keep_all) // 2, keep_all
