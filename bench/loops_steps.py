"""Loops of loops.py: batches left out or tried again, several forwards or backwards a step."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import loops_parts as parts
import torch
from loops_parts import Model, adam, loop, loss_of, seeded, stepped, words
from torch import nn
from torch.nn import functional as F


# -- steps that are left out, and tried again --------------------------------------------------


@loop(Model)
def loss_is_skipped(model: Any, steps: int) -> Iterator[None]:
    """No backward where the loss is no number."""
    optimizer = adam(model)
    for k in seeded(steps):
        ids = words(k)
        loss = loss_of(model(ids), ids) * (float("nan") if k % 7 == 5 else 1)
        if torch.isnan(loss):
            yield
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield


@loop(Model)
def gradients_are_skipped(model: Any, steps: int) -> Iterator[None]:
    """A scaler that found an overflow takes no step and goes on."""
    optimizer = adam(model)
    for k in seeded(steps):
        ids = words(k)
        loss_of(model(ids), ids).backward()
        if k % 6 != 4:
            optimizer.step()
        optimizer.zero_grad()
        yield


@loop(Model)
def tried_again_in_halves(model: Any, steps: int) -> Iterator[None]:
    """Every ninth batch fails inside a layer, and is trained on in two halves."""
    optimizer = adam(model)
    for k in seeded(steps):
        optimizer.zero_grad()
        ids, pieces = words(k, rows=6), 1
        while True:
            try:
                for piece in ids.chunk(pieces):
                    if k % 9 == 8 and pieces == 1:
                        with refused(model.blocks[3]):
                            model(piece)
                    (loss_of(model(piece), piece) / pieces).backward()
                break
            except MemoryError:
                optimizer.zero_grad()
                pieces *= 2
        optimizer.step()
        yield


@contextlib.contextmanager
def refused(layer: nn.Module) -> Iterator[None]:
    def refuse(*_: Any) -> None:
        raise MemoryError

    with layer.register_forward_pre_hook(refuse):
        yield


@loop(Model)
def backward_fails(model: Any, steps: int) -> Iterator[None]:
    """Every eighth backward is broken off by a hook of the user's."""
    optimizer = adam(model)
    for k in seeded(steps):
        optimizer.zero_grad()
        ids = words(k)
        out = model(ids)
        if k % 8 == 6:
            out.register_hook(lambda _: (_ for _ in ()).throw(ValueError("broken")))
        with contextlib.suppress(ValueError):
            loss_of(out, ids).backward()
            optimizer.step()
        yield


# -- several forwards, several backwards -------------------------------------------------------


@loop(Model)
def accumulated(model: Any, steps: int) -> Iterator[None]:
    optimizer = adam(model)
    for k in seeded(steps):
        for part in range(4):
            ids = words(4 * k + part)
            (loss_of(model(ids), ids) / 4).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


@loop(Model)
def twice_with_other_dropout(model: Any, steps: int) -> Iterator[None]:
    """R-Drop: two forwards of one batch, one loss of both."""

    def losses(k: int) -> torch.Tensor:
        ids = words(k)
        one, other = model(ids), model(ids)
        apart = F.kl_div(one.log_softmax(-1), other.softmax(-1), reduction="batchmean")
        return loss_of(one, ids) + loss_of(other, ids) + 0.01 * apart

    return stepped(model, steps, losses)


@loop(Model)
def adversarial(model: Any, steps: int) -> Iterator[None]:
    """FGM: back, the embedding moved along its gradient, back again."""
    optimizer = adam(model)
    for k in seeded(steps):
        optimizer.zero_grad()
        ids, weight = words(k), model.embedding.weight
        loss_of(model(ids), ids).backward()
        kept, moved = weight.detach().clone(), weight.grad / (weight.grad.norm() + 1e-6)
        weight.data.add_(moved)
        loss_of(model(ids), ids).backward()
        weight.data.copy_(kept)
        optimizer.step()
        yield


@loop(Model)
def sharpness(model: Any, steps: int) -> Iterator[None]:
    """SAM: the second of two backwards counts."""
    optimizer = adam(model)
    for k in seeded(steps):
        ids = words(k)
        loss_of(model(ids), ids).backward()
        moved = [(p, p.grad * 0.01) for p in model.parameters()]
        with torch.no_grad():
            for p, by in moved:
                p.add_(by)
        optimizer.zero_grad()
        loss_of(model(ids), ids).backward()
        with torch.no_grad():
            for p, by in moved:
                p.sub_(by)
        optimizer.step()
        optimizer.zero_grad()
        yield


@loop(Model)
def gradient_penalty(model: Any, steps: int) -> Iterator[None]:
    """Every fourth step goes back through its own gradient."""

    def losses(k: int) -> torch.Tensor:
        ids = words(k)
        loss = loss_of(model(ids), ids)
        if k % 4 != 3:
            return loss
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            loss = loss_of(model(ids), ids)
            found = torch.autograd.grad(loss, list(model.head.parameters()), create_graph=True)
        return loss + 0.1 * sum(one.square().sum() for one in found)

    return stepped(model, steps, losses)


@loop(Model)
def inner_steps(model: Any, steps: int) -> Iterator[None]:
    """MAML over the head's and norms' parameters: a step inside the step, gone back through."""

    def losses(k: int) -> torch.Tensor:
        ids, other = words(2 * k), words(2 * k + 1)
        named = {n: p for n, p in model.named_parameters() if "head" in n or "norms" in n}
        loss = loss_of(model(ids), ids)
        found = torch.autograd.grad(loss, list(named.values()), create_graph=True)
        moved = {n: p - 0.1 * g for (n, p), g in zip(named.items(), found, strict=True)}
        return loss_of(torch.func.functional_call(model, moved, (other,)), other)

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        yield from stepped(model, steps, losses)


@loop(Model)
def closures(model: Any, steps: int) -> Iterator[None]:
    """LBFGS: as many forwards and backwards a step as it likes."""
    optimizer = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=3, history_size=3)
    for k in seeded(steps):
        ids = words(k)

        def closure(ids: torch.Tensor = ids) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model(ids), ids)
            loss.backward()
            return loss

        optimizer.step(closure)  # type: ignore[arg-type]
        yield


@loop(Model)
def next_before_back(model: Any, steps: int) -> Iterator[None]:
    """The next batch's forward comes before this one's backward."""
    optimizer = adam(model)
    ahead = None
    for k in seeded(steps):
        ids = words(k)
        loss = loss_of(model(ids), ids)
        if ahead is not None:
            optimizer.zero_grad()
            ahead.backward()
        ahead = loss
        if k % 5 == 4:  # with the weights of its own forward
            ahead.backward()
            ahead = None
            optimizer.step()
        yield


@loop(parts.Towers)
def two_towers(model: Any, steps: int) -> Iterator[None]:
    def losses(k: int) -> torch.Tensor:
        rows = random.Random(k).randint(2, 6)
        scores = model(words(2 * k, rows, longest=24), words(2 * k + 1, rows))
        return F.cross_entropy(scores, torch.arange(rows))

    return stepped(model, steps, losses)


@loop(Model)
def two_views(model: Any, steps: int) -> Iterator[None]:
    """Two forwards of other lengths, one loss between them."""

    def losses(k: int) -> torch.Tensor:
        rows = random.Random(k).randint(2, 6)
        one = model(words(2 * k, rows, longest=32)).mean(1)
        return F.cross_entropy(one @ model(words(2 * k + 1, rows)).mean(1).T, torch.arange(rows))

    return stepped(model, steps, losses)


@loop(Model)
def triplets(model: Any, steps: int) -> Iterator[None]:
    """Three forwards of other lengths, one loss of them."""

    def losses(k: int) -> torch.Tensor:
        rows = random.Random(k).randint(2, 4)
        anchor, near, far = (model(words(3 * k + i, rows)).mean(1) for i in range(3))
        return F.triplet_margin_loss(anchor, near, far, margin=5.0)

    return stepped(model, steps, losses)


@loop(Model)
def pairs_accumulated(model: Any, steps: int) -> Iterator[None]:
    """Two pairs of views a step of the optimizer, each with a backward of its own."""
    optimizer = adam(model)
    for k in seeded(steps):
        for part in (2 * k, 2 * k + 1):
            one, other = (model(words(2 * part + i, 3)).mean(1) for i in range(2))
            (F.cross_entropy(one @ other.T, torch.arange(3)) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield
