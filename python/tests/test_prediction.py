"""What is predicted of a step is what is measured, in a loop as people write it."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest
import small
import torch
import transformers
from budgets import Stack, Training
from torch import nn

import pudica
from pudica._forced import operator_seconds

STEPS = 48
LEARNED = 20  # steps after which every mode of the small model's menu is measured


def budget_at(share: float) -> int:
    """`share` of the way from the least to the largest peak of the longest batch."""
    model = small.make()
    with pudica.attach(model, budget="1GiB", daemon=False) as handle:
        small.train(model, 8)
        estimate = handle.estimate((4, max(small.lengths(STEPS))))
    floor, most = estimate["floor_peak_bytes"], estimate["keep_all_peak_bytes"]
    return int(floor + share * (most - floor))


# Logits of the step before live until the new ones are there, and move the peak into the forward.
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_peaks_are_predicted_and_held_in_a_plain_loop(share: float) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = small.make()
        errors: list[int] = []
        planned = 0

        def each(step: int) -> None:
            nonlocal planned
            last: dict[str, Any] = handle.stats()["last_step"]
            if step < LEARNED or last["predicted_peak_bytes"] is None:
                return
            planned += 1
            errors.append(last["peak_bytes"] - last["predicted_peak_bytes"])

        with pudica.attach(model, budget=budget_at(share), daemon=False) as handle:
            small.train(model, STEPS, each=each)
            stats = handle.stats()
    finally:
        torch.set_num_threads(threads)
    assert planned >= (STEPS - LEARNED) * 3 // 4
    assert max(abs(error) for error in errors) <= 64, errors
    assert stats["overruns"] == 0
    assert stats["infeasible_steps"] == 0


def test_a_step_that_measures_modes_predicts_nothing() -> None:
    model = small.make()
    measuring = 0

    def each(_step: int) -> None:
        nonlocal measuring
        last = handle.stats()["last_step"]
        if "selective modes measured in" in last["reason"]:
            measuring += 1
            assert last["predicted_peak_bytes"] is None

    with pudica.attach(model, budget=budget_at(0.3), daemon=False) as handle:
        small.train(model, 24, each=each)
    assert measuring > 0


# Keys and values that a layer leaves in the cache are freed by the layer that reads them next or by
# its own backward, as its mode has it.
def test_peaks_of_layers_that_leave_tensors_in_a_cache_are_predicted() -> None:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    torch.manual_seed(0)
    model = GPTNeoXForCausalLM(GPTNeoXConfig(
        vocab_size=120, hidden_size=48, num_hidden_layers=6, num_attention_heads=4,
        intermediate_size=128, max_position_embeddings=160, hidden_dropout=0.1,
        attention_dropout=0.1)).train()
    assert model.config.use_cache
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    draw = random.Random(3)
    lengths = [48, 64, 112, *(draw.randrange(24, 113) for _ in range(STEPS))]

    def step(length: int) -> None:
        words = torch.randint(3, 120, (4, length), generator=torch.Generator().manual_seed(length))
        model(input_ids=words, labels=words).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    with pudica.attach(model, budget="1GiB", daemon=False) as handle:
        for length in lengths[:8]:
            step(length)
        estimate = handle.estimate((4, 112))
    floor, most = estimate["floor_peak_bytes"], estimate["keep_all_peak_bytes"]
    errors = []
    with operator_seconds():
        handle = pudica.attach(model, budget=floor + (most - floor) // 20, daemon=False)
    for number, length in enumerate(lengths):
        step(length)
        last = handle.stats()["last_step"]
        if number >= LEARNED and last["predicted_peak_bytes"] and last["recomputed_calls"]:
            errors.append(last["peak_bytes"] / last["predicted_peak_bytes"] - 1)
    assert handle.stats()["overruns"] == 0
    handle.detach()
    assert len(errors) >= 10
    assert max(errors) < 0.01, errors


class Prompted(nn.Module):
    """A frozen decoder behind words of its own, which alone are trained."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.LlamaConfig(
            vocab_size=100, hidden_size=64, intermediate_size=160, num_hidden_layers=6,
            num_attention_heads=4, num_key_value_heads=2)
        self.inner = transformers.LlamaForCausalLM(config).requires_grad_(False)
        self.prompt = nn.Parameter(torch.randn(8, 64))

    def forward(self, words: torch.Tensor) -> Any:
        of_words = self.inner.get_input_embeddings()(words)
        before = self.prompt.expand(len(words), -1, -1)
        return self.inner(inputs_embeds=torch.cat([before, of_words], 1)).logits


@pytest.mark.parametrize("share", [0.05, 0.15, 0.3])
def test_a_peak_that_may_be_far_off_is_bounded_and_not_predicted(share: float) -> None:
    """Modes that one shape has shown are bounded at others, by far sometimes."""

    def step(model: nn.Module, k: int) -> None:
        drawn = random.Random(k)
        words = torch.full((drawn.randint(1, 6), drawn.randint(8, 96)), k % 100)
        model(words).square().mean().backward()

    course = Training(Prompted, step, 60).held(share)
    low = [step["peak_bytes"] / step["predicted_peak_bytes"] - 1
           for step in course.steps if step["predicted_peak_bytes"]]
    assert len(low) >= 40 and max(low) <= 0.05, low


class Masked(Stack):
    """Guesses some of its words, as in masked language modelling."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(32, 3000)


def share_down(words: int) -> int:
    return max(1, int(0.15 * words))


def share_to_even(words: int) -> int:
    return max(1, round(0.15 * words))


# 15 % of the words in whole ones: no product of the batch's dimensions.
@pytest.mark.parametrize("share", [share_down, share_to_even])
def test_a_loss_over_a_share_of_the_words_is_predicted_to_the_byte(
    share: Callable[[int], int],
) -> None:
    def step(model: nn.Module, k: int) -> None:
        drawn = random.Random(k)
        words = torch.randint(0, 100, (drawn.randint(2, 6), drawn.randint(16, 96)),
                              generator=torch.Generator().manual_seed(k))  # fmt: skip
        masked = torch.arange(share(words.numel()))
        hidden = model(words).flatten(0, 1)[masked]
        guesses = model.get_submodule("head")(hidden)
        torch.nn.functional.cross_entropy(guesses, words.flatten()[masked]).backward()

    course = Training(Masked, step, STEPS).held(0.4)
    told, steps = course.told(LEARNED)
    assert len(told) >= steps * 3 // 4
    assert max(map(abs, told)) < 1e-5, told


def post_norm() -> nn.Module:
    """Each layer normalizes what it read beside what it made of it: nobody saves what it read."""
    return transformers.RobertaForMaskedLM(transformers.RobertaConfig(
        vocab_size=100, hidden_size=48, num_hidden_layers=5, num_attention_heads=4,
        intermediate_size=160, max_position_embeddings=200, pad_token_id=1))  # fmt: skip


class Added(nn.Module):
    """A frozen linear layer in bfloat16 with a trained one of low rank beside it, as LoRA has."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, 4, bias=False)
        self.up = nn.Linear(4, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.base(x) + self.up(self.down(x.to(self.down.weight.dtype)))


def added() -> nn.Module:
    model: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=100, hidden_size=48, intermediate_size=160, num_hidden_layers=5,
        num_attention_heads=4, num_key_value_heads=2))  # fmt: skip
    model.requires_grad_(False).to(torch.bfloat16)
    for layer in model.model.layers:
        layer.self_attn.q_proj = Added(layer.self_attn.q_proj)
        layer.mlp.down_proj = Added(layer.mlp.down_proj)
    model.enable_input_require_grads()
    return model


# Layers are measured in frames, which hold what they read; without hooks it may go before.
@pytest.mark.parametrize("make", [post_norm, added])
def test_steps_without_hooks_are_told_by_what_they_need(make: Callable[[], nn.Module]) -> None:
    def step(model: nn.Module, k: int) -> None:
        drawn = random.Random(k)
        words = torch.randint(3, 100, (4, drawn.randint(16, 80)),
                              generator=torch.Generator().manual_seed(k))  # fmt: skip
        with torch.autocast("cpu", torch.bfloat16, enabled=make is added):
            loss = model(input_ids=words, labels=words).loss
        loss.backward()

    torch.manual_seed(0)
    course = Training(make, step, STEPS).run("1GiB")
    told, steps = course.told(LEARNED)
    assert len(told) >= steps * 3 // 4
    assert statistics.median(map(abs, told)) <= 0.001, told
    assert min(told) >= -0.005, told
