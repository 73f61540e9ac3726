"""Loops of loops.py: evaluations, teachers and caches between the steps; layers and sizes that come
and go; calls that Hugging Face's models take."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import loops_parts as parts
import torch
from loops_parts import Model, adam, loop, loss_of, seeded, stepped, words
from torch.nn import functional as F


# -- teachers, caches, evaluations ---------------------------------------------------------------


@loop(Model)
def validated(model: Any, steps: int) -> Iterator[None]:
    """Longer batches without gradients, every tenth step."""
    for k, _ in enumerate(stepped(model, steps, lambda k: loss_of(model(words(k)), words(k)))):
        if k % 10 == 9:
            model.eval()
            with torch.no_grad():
                model(words(k, 8, 160))
            model.train()
        yield


@loop(Model)
def measured_with_gradients(model: Any, steps: int) -> Iterator[None]:
    """A figure for a log by a forward with gradients that nobody goes back through."""
    for k, _ in enumerate(stepped(model, steps, lambda k: loss_of(model(words(k)), words(k)))):
        if k % 5 == 4:
            model.eval()
            loss_of(model(words(k + 1000)), words(k + 1000)).item()
            model.train()
        yield


@loop(Model)
def preferences(model: Any, steps: int) -> Iterator[None]:
    """DPO: the same weights without gradients as reference, two forwards with."""

    def losses(k: int) -> torch.Tensor:
        good, bad = words(2 * k), words(2 * k + 1)
        with torch.no_grad():
            reference = [loss_of(model(one), one) for one in (good, bad)]
        found = [loss_of(model(one), one) - r for one, r in zip((good, bad), reference)]
        return -F.logsigmoid(found[1] - found[0])

    return stepped(model, steps, losses)


@loop(Model)
def rollouts(model: Any, steps: int) -> Iterator[None]:
    """PPO: generated without gradients, then three steps on what was."""
    optimizer = adam(model)
    for k in seeded(steps):
        if k % 3 == 0:
            ids = words(k, 4, length=random.Random(k).randint(4, 16))
            with torch.no_grad():
                for _ in range(12):
                    ids = torch.cat([ids, model(ids)[:, -1].argmax(-1, keepdim=True)], 1)
        optimizer.zero_grad()
        loss_of(model(ids), ids).backward()
        optimizer.step()
        yield


@loop(Model)
def watched_by_hooks(model: Any, steps: int) -> Iterator[None]:
    """What every block gives is kept by the user until the next step."""
    seen: list[torch.Tensor] = []
    for block in model.blocks:
        block.register_forward_hook(lambda _, args, out: seen.append(out))

    def losses(k: int) -> torch.Tensor:
        seen.clear()
        ids = words(k)
        return loss_of(model(ids), ids) + 0.01 * seen[2].square().mean()

    return stepped(model, steps, losses)


# -- layers and sizes that come and go -----------------------------------------------------------


@loop(parts.Left)
def left_out(model: Any, steps: int) -> Iterator[None]:
    return stepped(model, steps, lambda k: loss_of(model(words(k)), words(k)))


@loop(lambda: Model(make=parts.Experts))
def experts(model: Any, steps: int) -> Iterator[None]:
    return stepped(model, steps, lambda k: loss_of(model(words(k)), words(k)))


@loop(Model)
def thawed(model: Any, steps: int) -> Iterator[None]:
    """A block more is trained every twenty steps, from the last on."""
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    optimizer = adam(model)
    for k in seeded(steps):
        if k % 20 == 0:
            model.blocks[5 - k // 20].requires_grad_(True)
        optimizer.zero_grad()
        ids = words(k)
        loss_of(model(ids), ids).backward()
        optimizer.step()
        yield


@loop(Model)
def ever_longer(model: Any, steps: int) -> Iterator[None]:
    def losses(k: int) -> torch.Tensor:
        ids = words(k, rows=4, length=8 + 2 * k)
        return loss_of(model(ids), ids)

    return stepped(model, steps, losses)


@loop(Model)
def longest_late(model: Any, steps: int) -> Iterator[None]:
    def losses(k: int) -> torch.Tensor:
        ids = words(k, 4, 160) if k in (30, 45) else words(k, longest=48)
        return loss_of(model(ids), ids)

    return stepped(model, steps, losses)


@loop(Model)
def batches_by_tokens(model: Any, steps: int) -> Iterator[None]:
    def losses(k: int) -> torch.Tensor:
        length = random.Random(k).randint(8, 128)
        ids = words(k, max(1, 384 // length), length)
        return loss_of(model(ids), ids)

    return stepped(model, steps, losses)


@loop(parts.Recurrent)
def truncated(model: Any, steps: int) -> Iterator[None]:
    """Truncated backpropagation: a state goes on from step to step, its graph does not."""
    held: list[Any] = [None]

    def losses(k: int) -> torch.Tensor:
        ids = words(k, 4)
        out, states = model(ids, held[0] if k % 10 else None)
        held[0] = [tuple(one.detach() for one in state) for state in states]
        return loss_of(out, ids)

    return stepped(model, steps, losses)


@loop(Model)
def in_bfloat16(model: Any, steps: int) -> Iterator[None]:
    def losses(k: int) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return loss_of(model(words(k)).float(), words(k))

    return stepped(model, steps, losses)


@loop(Model)
def two_tasks(model: Any, steps: int) -> Iterator[None]:
    """Words in one step, sentences in the next."""

    def losses(k: int) -> torch.Tensor:
        out = model(words(k))
        if k % 2:
            return loss_of(out, words(k))
        return F.cross_entropy(out.mean(1), words(k)[:, 0])

    return stepped(model, steps, losses)


# -- Hugging Face's ------------------------------------------------------------------------------


@loop(parts.bert)
def attention_shown(model: Any, steps: int) -> Iterator[None]:
    """The loss takes hidden states and attention from within."""

    def losses(k: int) -> torch.Tensor:
        ids = words(k)
        out = model(ids, labels=ids, output_hidden_states=True, output_attentions=True)
        return out.loss + 0.1 * out.hidden_states[3].square().mean() + out.attentions[-1].std()

    return stepped(model, steps, losses)


@loop(parts.gpt2)
def cache_handed_on(model: Any, steps: int) -> Iterator[None]:
    """The second half of a text is trained on with the first half's keys and values."""

    def losses(k: int) -> torch.Tensor:
        ids = words(k)
        half = ids.shape[1] // 2
        first = model(ids[:, :half], use_cache=True)
        rest = model(ids[:, half:], past_key_values=first.past_key_values, use_cache=True)
        return loss_of(torch.cat([first.logits, rest.logits], 1), ids)

    return stepped(model, steps, losses)


@loop(parts.t5)
def encoder_called_apart(model: Any, steps: int) -> Iterator[None]:
    def losses(k: int) -> torch.Tensor:
        rows = random.Random(k).randint(1, 6)
        hidden = model.get_encoder()(words(2 * k, rows))
        return model(encoder_outputs=hidden, labels=words(2 * k + 1, rows, longest=48)).loss

    return stepped(model, steps, losses)


@loop(parts.whisper)
def speech(model: Any, steps: int) -> Iterator[None]:
    def losses(k: int) -> torch.Tensor:
        rows = random.Random(k).randint(1, 4)
        sounds = torch.randn(rows, 16, 200, generator=torch.Generator().manual_seed(k))
        return model(sounds, labels=words(k, rows, longest=64)).loss

    return stepped(model, steps, losses)
