"""Models whose steps run other layers each time, and models without two layers of a kind: a budget
just above what recomputing everything needs is held from the first steps on."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest
import torch
import training_support as support
from torch import nn
from torch.nn import functional

import pudica
from pudica._forced import plans_of

HIDDEN = 32
STEPS = 30
# What recomputing everything needs in a step is not what it needs in the next: the learning steps
# recompute one layer of a class at a time.
ABOVE_FLOOR = 1.05


class Block(nn.Module):
    def __init__(self, cross: bool = False) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.attend = nn.MultiheadAttention(HIDDEN, 4, dropout=0.1, batch_first=True)
        self.up = nn.Linear(HIDDEN, (6 if cross else 4) * HIDDEN)
        self.down = nn.Linear(self.up.out_features, HIDDEN)

    def forward(self, x: torch.Tensor, source: torch.Tensor | None = None) -> torch.Tensor:
        y = self.norm(x)
        other = y if source is None else source
        x = x + self.attend(y, other, other, need_weights=False)[0]
        return x + functional.dropout(self.down(functional.gelu(self.up(x))), 0.1)


class TwoStacks(nn.Module):
    """Each layer is left out of a step by chance, as with LayerDrop."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(97, HIDDEN)
        self.encoder = nn.ModuleList(Block() for _ in range(4))
        self.decoder = nn.ModuleList(Block(cross=True) for _ in range(4))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        source = self.embed(ids)
        for layer in self.encoder:
            if random.random() > 0.2:
                source = layer(source)
        x = self.embed(ids.flip(1)[:, : (ids.shape[1] + 1) // 2])
        for layer in self.decoder:
            if random.random() > 0.2:
                x = layer(x, source)
        return (x.pow(2).mean() + source.pow(2).mean()) / 2


class Down(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.convolve = convolutions(before, after)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.convolve(x)
        return functional.avg_pool2d(y, 2), y


class Up(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.convolve = convolutions(before, after)

    def forward(self, x: torch.Tensor, skipped: torch.Tensor) -> torch.Tensor:
        x = functional.interpolate(x, size=skipped.shape[-2:])
        return self.convolve(torch.cat([x, skipped], 1))


def convolutions(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU(), nn.Dropout(0.1),
        nn.Conv2d(after, after, 3, padding=1), nn.SiLU(),
    )


class UNet(nn.Module):
    """No two layers are alike."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(97, HIDDEN)
        self.down = nn.ModuleList([Down(1, 16), Down(16, 24), Down(24, 32)])
        self.up = nn.ModuleList([Up(32 + 32, 24), Up(24 + 24, 16), Up(16 + 16, 8)])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids).unsqueeze(1)
        skipped = []
        for layer in self.down:
            x, y = layer(x)
            skipped.append(y)
        for layer in self.up:
            x = layer(x, skipped.pop())
        return x.pow(2).mean()


def train(model: nn.Module, each: Callable[[], None]) -> str:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    lengths = random.Random(5)
    for step in range(STEPS):
        torch.manual_seed(step)
        random.seed(step)
        ids = torch.randint(0, 97, (3, 8 * lengths.randint(2, 9)))
        model(ids).backward()
        optimizer.step()
        optimizer.zero_grad()
        each()
    return support.digest(model)


def made(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind()


def peak_of_recomputing_everything(kind: type[nn.Module]) -> int:
    model = made(kind)
    peaks: list[int] = []
    with plans_of("full"):
        handle = pudica.attach(model, 1 << 40, daemon=False)

    def each() -> None:
        last = handle.stats()["last_step"]
        if last["recomputed_layers"]:  # not where every layer is on trial
            peaks.append(last["peak_bytes"])

    with handle:
        train(model, each)
    return max(peaks)


@pytest.mark.parametrize("kind", [TwoStacks, UNet])
def test_the_budget_holds_from_the_first_step_on(kind: type[nn.Module]) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_num_threads, threads)
        plain = train(made(kind), lambda: None)
        budget = int(ABOVE_FLOOR * peak_of_recomputing_everything(kind))
        model = made(kind)
        over: list[int] = []

        def each() -> None:
            last = handle.stats()["last_step"]
            if last["peak_bytes"] > budget:
                over.append(last["peak_bytes"] - budget)

        with pudica.attach(model, budget, daemon=False) as handle:
            assert train(model, each) == plain
            stats = handle.stats()
    assert over == []
    assert stats["overruns"] == stats["failures"] == 0
    assert stats["recomputed_layers"] + stats["revocations"] > 0
