"""Steps that are unlike the ones before, or whose layers are unlike each other.

Without a mask, of one example, cut short; with a loss at each layer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from budgets import Course, Stack, Training
from torch import nn

_STEPS = 60


def errors(course: Course) -> list[float]:
    """Of the predicted peaks from the tenth step on, as shares of them."""
    return [step["peak_bytes"] / step["predicted_peak_bytes"] - 1
            for step in course.steps[10:] if step["predicted_peak_bytes"]]


def check(training: Training, share: float, learning: int, predicted: int) -> None:
    course = training.held(share)
    assert course.stats["learning_steps"] <= learning
    off = errors(course)
    assert len(off) >= predicted, len(off)
    assert sorted(map(abs, off))[len(off) // 2] <= 1e-3
    assert max(off) <= 5e-3, off


def midway(training: Training, learning: int) -> Course:
    """Half of the way from the floor to keeping all, held with the same bits."""
    course = training.held(0.5)
    assert course.stats["learning_steps"] <= learning
    return course


def packed_llama() -> nn.Module:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=100, hidden_size=32, intermediate_size=96, num_hidden_layers=6,
        num_attention_heads=4, num_key_value_heads=2))


def packed(model: nn.Module, k: int) -> None:
    # One sequence alone needs no mask of blocks: its layers run other operators.
    lengths = [random.Random(100 * k + i).randint(5, 60) for i in range(random.Random(k).choice(
        [1, 1, 2, 3, 5, 8]))]
    words = torch.randint(1, 100, (1, sum(lengths)), generator=torch.Generator().manual_seed(k))
    places = torch.cat([torch.arange(length) for length in lengths])[None]
    out = model(input_ids=words, position_ids=places, use_cache=False)
    out.logits.square().mean().backward()


def six_layers() -> nn.Module:
    return Stack(6)


def of_any_size(model: nn.Module, k: int) -> None:
    rows, length = random.Random(k).choice([1, 2, 6]), 8 * random.Random(k + 1).randint(4, 40)
    model(torch.full((rows, length), k % 100)).square().mean().backward()


def cut_short(model: nn.Module, k: int) -> None:
    """Every fifth batch is refused between two layers, and left out."""
    words = torch.full((6, 8 * random.Random(k).randint(4, 40)), k % 100)
    if k % 5 != 4:
        model(words).square().mean().backward()
        return

    def refuse(*_: Any) -> None:
        raise ValueError("this batch is broken")

    hook = model.layers[3].register_forward_pre_hook(refuse)  # type: ignore[union-attr,operator]
    with pytest.raises(ValueError, match="broken"):
        model(words)
    hook.remove()


class Supervised(Stack):
    def forward(self, words: torch.Tensor) -> Any:
        x = self.embed(words)
        outputs = []
        for layer in self.layers:
            x = layer(x)
            outputs.append(x)
        return [output.square().mean() for output in outputs]


def supervised() -> nn.Module:
    return Supervised(6)


def at_each_layer(model: nn.Module, k: int) -> None:
    """Deep supervision: the first layer alone makes its input's gradient, the others add to one."""
    words = torch.full((6, 8 * random.Random(k).randint(4, 40)), k % 100)
    sum(model(words)).backward()


def resnet() -> nn.Module:
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 24, 32, 48], depths=[2, 2, 3, 2], layer_type="basic",
        num_labels=3))


def images(model: nn.Module, k: int) -> None:
    """The last layers see one pixel of the smallest, which no dimension of the batch tells."""
    rows, size = random.Random(k).randint(2, 8), 32 * random.Random(k + 500).randint(1, 3)
    pixels = torch.randn(rows, 3, size, size, generator=torch.Generator().manual_seed(k))
    model(pixels, labels=torch.zeros(rows, dtype=torch.long)).loss.backward()


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("make, step, learning, predicted", [
    (packed_llama, packed, 7, 35), (six_layers, of_any_size, 8, 25), (six_layers, cut_short, 6, 35),
    (supervised, at_each_layer, 6, 45), (resnet, images, 11, 30)])
def test_each_kind_of_step_is_learned_once(
    make: Callable[[], nn.Module], step: Callable[[nn.Module, int], None], learning: int,
    predicted: int, share: float,
) -> None:
    check(Training(make, step, _STEPS), share, learning, predicted)


def fails_in_the_backward(model: Any, k: int) -> None:
    """Every seventh backward ends in an exception, in the fifth layer of eight, that the loop
    catches."""
    drawn = torch.Generator().manual_seed(k)
    words = torch.randint(0, 100, (8, random.Random(k).randint(20, 100)), generator=drawn)
    loss = model(words).square().mean()
    if k % 7 != 3:
        loss.backward()
        return

    def refuse(gradient: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no room")

    hook = model.layers[4].inner[0].weight.register_hook(refuse)
    with pytest.raises(RuntimeError, match="no room"):
        loss.backward()
    hook.remove()


def test_a_backward_that_fails_leaves_the_steps_after_it_planned() -> None:
    course = midway(Training(Stack, fails_in_the_backward, _STEPS), learning=4)
    # A forward that waits for another one's backward has no peak of its own.
    assert all("share a backward" not in step["reason"] for step in course.steps)
    # Where a longer batch first wants a mode that was not measured yet, its peak is bounded only.
    bounded = [step for step in course.steps[10:] if not step["predicted_peak_bytes"]]
    assert all("modes measured in" in step["reason"] for step in bounded) and len(bounded) <= 2


class Skipping:
    """Every seventh loss is no number: the loop goes on without a backward, and has it until the
    next one takes its variable."""

    loss: torch.Tensor

    def __call__(self, model: nn.Module, k: int) -> None:
        drawn = torch.Generator().manual_seed(k)
        words = torch.randint(0, 100, (8, random.Random(k).randint(20, 100)), generator=drawn)
        self.loss = model(words).square().mean()
        if k % 7 != 5:
            self.loss.backward()


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_a_loss_that_is_left_out_is_no_forward_that_shares_a_backward(share: float) -> None:
    course = Training(Stack, Skipping(), _STEPS).held(share)
    # The one behind it waits with it; none else is thought to.
    behind = {k for k in range(_STEPS) if k % 7 == 6}
    shares = {k for k, step in enumerate(course.steps) if "share a backward" in step["reason"]}
    assert shares <= behind, shares
    assert len(errors(course)) >= 30


def test_losses_left_out_cost_one_overrun_at_most_where_steps_had_no_hooks() -> None:
    """A step has ample room, but not beside one twice as long."""

    def step(model: nn.Module, k: int) -> None:
        words = torch.full((8, 128 if k % 7 == 6 else 64), k % 100)
        held[:] = [model(words).square().mean()]
        if k % 7 != 5 or k < 20:
            held[0].backward()

    held: list[torch.Tensor] = []
    training = Training(Stack, step, _STEPS)
    ample = max(one["peak_bytes"] for one in training.run("1TiB", "none").steps[:6]) * 9 // 8
    course = training.run(ample)
    assert course.stats["overruns"] <= 1, course.over(ample)


def test_a_loss_that_is_left_out_where_there_is_room_changes_nothing() -> None:
    """Steps go on without hooks, and rest."""

    def step(model: nn.Module, k: int) -> None:
        held[:] = [model(torch.full((8, 64), k % 100)).square().mean()]
        if k != 20:
            held[0].backward()

    held: list[torch.Tensor] = []
    course = Training(Stack, step, _STEPS).run("1TiB")
    assert course.stats["resting_steps"] >= 40


def frozen_below() -> nn.Module:
    model = six_layers()
    model.requires_grad_(False)
    model.layers[5].requires_grad_(True)  # type: ignore[union-attr,operator]
    return model


def thawing(model: Any, k: int) -> None:
    """Every twenty steps a layer more is trained, from the last on."""
    if k % 20 == 0:
        model.layers[5 - k // 20].requires_grad_(True)
    model(torch.full((6, 8 * random.Random(k).randint(4, 40)), k % 100)).square().mean().backward()


def test_peaks_are_predicted_again_soon_after_a_layer_was_thawed() -> None:
    course = midway(Training(frozen_below, thawing, _STEPS), learning=20)
    for began in (20, 40):
        told = [step["predicted_peak_bytes"] for step in course.steps[began + 10 : began + 20]]
        assert sum(told_peak is not None for told_peak in told) >= 8, told
    off = [step["peak_bytes"] / step["predicted_peak_bytes"] - 1
           for k, step in enumerate(course.steps) if k % 20 >= 10 and step["predicted_peak_bytes"]]
    assert max(map(abs, off)) <= 5e-3, off
    # In the step itself other layers than planned show: nothing is told of its peak.
    assert [course.steps[began]["predicted_peak_bytes"] for began in (20, 40)] == [None, None]


def of_unknown_words(model: nn.Module, k: int) -> None:
    """Every fourth batch holds a word that the embedding does not know; the loop leaves it out."""
    words = torch.full((6, [64, 160, 200][k % 3]), k % 100)
    if k % 4 == 3:
        words[0, 0] = 1 << 20
        with pytest.raises(IndexError):
            model(words)
    else:
        model(words).square().mean().backward()


def test_a_forward_that_fails_before_its_layers_says_nothing_of_peaks() -> None:
    course = midway(Training(six_layers, of_unknown_words, _STEPS), learning=5)
    off = [step["peak_bytes"] / step["predicted_peak_bytes"] - 1
           for k, step in enumerate(course.steps)
           if k >= 10 and k % 4 != 3 and step["predicted_peak_bytes"]]
    assert len(off) > 30 and max(map(abs, off)) < 5e-3, off
