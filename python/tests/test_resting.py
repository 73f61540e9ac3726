"""Steps whose layers are passed by: which they are, and what ends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import budgets
import pytest
import torch
from budgets import Training, check
from torch import nn
from training import AMPLE

import pudica

LENGTHS = (64, 96, 128)
Each = Callable[[Any, int], Any]
LAYERS = 8


def training(
    steps: int = 40, before: Each | None = None, make: Callable[[], nn.Module] = budgets.Stack
) -> Training:
    """Over three lengths in turn."""

    def step(model: Any, k: int) -> None:
        if before is not None:
            before(model, k)
        torch.manual_seed(k)
        words = torch.randint(0, 100, (4, LENGTHS[k % 3]))
        model(words).pow(2).mean().backward()

    return Training(make, step, steps)


def test_steps_of_known_shapes_rest_and_count_their_layers_all_the_same() -> None:
    of = training()
    course = of.run(AMPLE)
    stats = check(course, of)
    assert stats["resting_steps"] > 15
    assert stats["layer_calls"] == LAYERS * len(course.steps)
    for step in course.steps[20:]:
        assert step["layer_calls"] == LAYERS
        assert step["predicted_peak_bytes"] == pytest.approx(step["peak_bytes"], rel=0.01)


def test_where_the_budget_binds_the_longest_never_rest() -> None:
    of = training(60)
    floor, most, _ = of.ends()
    course = of.run((floor + most) // 2)
    stats = check(course, of)
    assert 0 < stats["resting_steps"] < 40, "the shortest do"
    assert stats["recomputed_calls"] > 0


def freeze(model: Any, frozen: bool) -> None:
    for part in (model.embed, model.layers):
        part.requires_grad_(not frozen)
    model.layers[-1].norm.requires_grad_()  # something is left to train


def test_unfreezing_is_seen_before_the_step_needs_room() -> None:
    """Of a budget that all fits into for as long as the lower layers are frozen."""
    frozen = training(4, lambda model, _: freeze(model, True)).run(AMPLE, "none")
    floor, _, _ = training(6).ends()
    budget = int(1.3 * floor)
    assert max(step["peak_bytes"] for step in frozen.steps) < 0.8 * budget
    of = training(60, lambda model, k: freeze(model, k < 30))
    stats = check(of.run(budget), of)
    assert stats["resting_steps"] > 10
    assert stats["recomputed_calls"] > 0
    assert stats["highest_peak_bytes"] <= budget


class Longer(budgets.Stack):
    """Whose layers run over what it is told to, from the fourth on."""

    copies = 1

    def forward(self, words: torch.Tensor) -> Any:
        x = self.embed(words)
        for k, layer in enumerate(self.layers):
            if k == LAYERS // 2:
                x = x.repeat(1, self.copies, 1)
            x = layer(x)
        return x


def test_larger_inputs_of_a_layer_end_the_rest_in_mid_step() -> None:
    def lengthen(model: Any, k: int) -> None:
        model.copies = 1 if k < 30 else 16

    longest = training(6, lambda model, k: setattr(model, "copies", 16), make=Longer)
    floor, _, _ = longest.ends()
    short = training(6, make=Longer).run(AMPLE, "none")
    budget = int(1.2 * floor)
    assert max(step["peak_bytes"] for step in short.steps) < 0.8 * budget
    of = training(40, lengthen, Longer)
    stats = check(of.run(budget), of)
    assert stats["resting_steps"] > 8
    assert stats["revocations"] > 0


def test_layers_that_come_and_go_are_looked_at() -> None:
    class Dropping(budgets.Stack):
        def forward(self, words: torch.Tensor) -> Any:
            x = self.embed(words)
            for layer in self.layers:
                if torch.rand(()) > 0.2:
                    x = layer(x)
            return x

    of = training(60, make=Dropping)
    assert check(of.run(AMPLE), of)["resting_steps"] == 0


class Stumbling(budgets.Stack):
    """Raises what it is told to after its fourth layer."""

    error: type[BaseException] | None = None

    def forward(self, words: torch.Tensor) -> Any:
        x = self.embed(words)
        for k, layer in enumerate(self.layers):
            if k == LAYERS // 2 and self.error is not None:
                raise self.error
            x = layer(x)
        return x


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_forward_that_throws_while_it_rests(error: type[BaseException]) -> None:
    def before(model: Any, k: int) -> None:
        if k < 20:
            return
        model.error = error
        with pytest.raises(error):
            model(torch.zeros(4, LENGTHS[k % 3], dtype=torch.long))
        model.error = None

    of = training(40, before, Stumbling)
    stats = check(of.run(AMPLE), of)
    assert stats["resting_steps"] > 8
    assert stats["unplanned_steps"] == 0


def test_what_a_layer_calls_before_the_model_is_whole_again() -> None:
    """Ctrl-C strikes in a forward that rests; then a layer is called by itself."""
    torch.manual_seed(0)
    model: Any = Stumbling()
    with pudica.attach(model, AMPLE, daemon=False) as handle:
        for _ in range(12):
            model(torch.zeros(4, 64, dtype=torch.long)).sum().backward()
        assert handle.stats()["resting_steps"] > 0
        model.error = KeyboardInterrupt
        with pytest.raises(KeyboardInterrupt):
            model(torch.zeros(4, 64, dtype=torch.long))
        model.layers[0](torch.zeros(4, 64, 32)).sum().backward()
        model.error = None
        model(torch.zeros(4, 64, dtype=torch.long)).sum().backward()
        assert handle.stats()["failures"] == 0


# -- What a layer's call tells, and a step that rests has to see ----------------------------------


class Changing(budgets.Stack):
    """Whose forward is another one once it is told."""

    late = False

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.ModuleList(budgets.Block(dropout=0.1) for _ in range(LAYERS))

    def forward(self, words: torch.Tensor) -> Any:
        return self.through(self.embed(words))

    def through(self, x: torch.Tensor) -> Any:
        raise NotImplementedError


class Pair(budgets.Block):
    def forward(self, pair: Any) -> Any:
        x, other = pair
        return super().forward(x), other


class Routed(Changing):
    def through(self, x: torch.Tensor) -> Any:
        if self.late:
            x = x.repeat(1, 16, 1)
        for layer in self.wide if self.late else self.layers:
            x = layer(x)
        return x


class Unfrozen(Changing):
    """Frozen layers, whose inputs begin to want gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.layers.requires_grad_(False)

    def through(self, x: torch.Tensor) -> Any:
        x = x.repeat(1, 2, 1)
        if not self.late:
            x = x.detach()
        for layer in self.layers:
            x = layer(x)
        return self.wide[0](x)


class Paired(Changing):
    """Whose layers are given tuples."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Pair(dropout=0.1) for _ in range(LAYERS))

    def through(self, x: torch.Tensor) -> Any:
        pair = x.repeat(1, 16 if self.late else 1, 1), None
        for layer in self.layers:
            pair = layer(pair)
        return pair[0]


class Holder:
    def __init__(self, x: torch.Tensor) -> None:
        self.held = {"x": x}


class Held(budgets.Block):
    def forward(self, x: torch.Tensor, holder: Any = None) -> torch.Tensor:
        return super().forward(torch.cat([x, holder.held["x"]], 1))[:, : x.shape[1]]


class Holding(Changing):
    """Whose layers are given objects."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Held(dropout=0.1) for _ in range(LAYERS))

    def through(self, x: torch.Tensor) -> Any:
        holder = Holder(torch.zeros(4, 1200 if self.late else 4, 32))
        for layer in self.layers:
            x = layer(x, holder=holder)
        return x


class Ungraded(Changing):
    """The first of whose layers ran without gradients."""

    def through(self, x: torch.Tensor) -> Any:
        x = x.repeat(1, 8, 1)
        with torch.set_grad_enabled(self.late):
            for layer in self.layers:
                x = layer(x)
        return self.wide[0](x)


@pytest.mark.parametrize("kind", [Routed, Unfrozen, Paired, Holding, Ungraded])
def test_what_a_layer_call_tells_is_seen(kind: type[nn.Module]) -> None:
    def late(model: Any, k: int) -> None:
        model.late = k >= 30

    longest = training(6, lambda model, k: setattr(model, "late", True), make=kind)
    floor, _, _ = longest.ends()
    of = training(40, late, kind)
    course = of.run(2 * floor)
    assert course.bits == of.plain()
    assert course.stats["resting_steps"] > 8
    assert not course.over(2 * floor)


def test_forwards_that_begin_to_share_a_backward_are_seen() -> None:
    def step(model: Any, k: int) -> None:
        torch.manual_seed(k)
        words = [torch.randint(0, 100, (4, length)) for length in (128, 120)]
        if k < 30:
            for one in words:
                model(one).pow(2).mean().backward()
        else:
            sum(model(one).pow(2).mean() for one in words).backward()

    of = Training(budgets.Stack, step, 60)
    floor, _, bits = of.ends()
    alone = Training(budgets.Stack, lambda model, k: step(model, 0), 8).run(AMPLE, "none")
    budget = int(1.2 * max(one["peak_bytes"] for one in alone.steps))
    assert floor < budget
    course = of.run(budget)
    assert course.bits == bits
    assert course.stats["resting_steps"] > 8
    assert course.stats["overruns"] <= 1, "the first pair is not known for one"


@pytest.mark.parametrize("late", ["compiled", "scripted", "a switch of its own"])
def test_modules_of_any_kind_do_not_end_the_plans(late: str) -> None:
    class Switch(nn.Linear):
        training = property(lambda self: True, lambda self, value: None)  # type: ignore[assignment]

    class Headed(budgets.Stack):
        def __init__(self) -> None:
            super().__init__()
            self.head: Any = Switch(32, 32) if "switch" in late else nn.Linear(32, 32)

        def forward(self, words: torch.Tensor) -> Any:
            return self.head(super().forward(words))

    def before(model: Any, k: int) -> None:
        if k == 15 and late == "compiled":
            model.head = torch.compile(model.head, backend="eager")
        if k == 15 and late == "scripted":
            model.head = torch.jit.script(model.head)

    of = training(40, before, Headed)
    stats = of.run(AMPLE).stats
    assert stats["failures"] == 0
    assert stats["unplanned_steps"] == 0
    assert stats["resting_steps"] > 8


def test_a_forward_that_gives_nothing_rests_like_others() -> None:
    class Keeping(budgets.Stack):
        loss: Any = None

        def forward(self, words: torch.Tensor) -> None:
            self.loss = super().forward(words).pow(2).mean()

    def step(model: Any, k: int) -> None:
        model(torch.zeros(4, LENGTHS[k % 3], dtype=torch.long))
        model.loss.backward()

    stats = Training(Keeping, step, 40).run(AMPLE).stats
    assert stats["resting_steps"] > 8
    assert stats["layer_calls"] == LAYERS * 40


def test_arguments_that_cannot_be_looked_at_are_no_error() -> None:
    class Odd:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise ValueError("not for you")

    class Layer(budgets.Block):
        def forward(self, x: torch.Tensor, odd: Any = None) -> torch.Tensor:
            return super().forward(x)

    class Given(budgets.Stack):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

        def forward(self, words: torch.Tensor) -> Any:
            x = self.embed(words)
            for layer in self.layers:
                x = layer(x, odd=Odd())
            return x

    of = training(30, make=Given)
    assert of.run(AMPLE).bits == of.plain()


class Headless(budgets.Stack):
    """Raises behind its layers."""

    error: type[BaseException] | None = None

    def forward(self, words: torch.Tensor) -> Any:
        x = super().forward(words)
        if self.error is not None:
            raise self.error
        return x


def counted_over_a_failure(model: Any, forwards: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is told once steps rest, and after one whose forward fails and so many behind it."""
    words = torch.zeros(4, 64, dtype=torch.long)
    with pudica.attach(model, AMPLE, daemon=False) as handle:
        for _ in range(12):
            model(words).sum().backward()
        before = handle.stats()
        model.error = ValueError
        with pytest.raises(ValueError):
            model(words)
        model.error = None
        for _ in range(forwards):
            model(words).sum().backward()
        return before, handle.stats()


def test_a_forward_that_throws_behind_its_layers_is_no_whole_one() -> None:
    torch.manual_seed(0)
    before, now = counted_over_a_failure(Headless(), forwards=1)
    assert now["resting_steps"] > before["resting_steps"]
    assert now["layer_calls"] - before["layer_calls"] == LAYERS, "of the step before it alone"


def test_layers_that_were_not_reached_are_not_counted() -> None:
    torch.manual_seed(0)
    before, now = counted_over_a_failure(Stumbling(), forwards=2)
    assert now["layer_calls"] - before["layer_calls"] < 3 * LAYERS


class Unreadable(dict):  # type: ignore[type-arg]
    def values(self) -> Any:
        raise ValueError("not for you")


def test_an_output_that_cannot_be_looked_at_is_no_error_of_the_loop() -> None:
    class Giving(budgets.Stack):
        def forward(self, words: torch.Tensor) -> Any:
            return Unreadable(x=super().forward(words))

    torch.manual_seed(0)
    model = Giving()
    with pudica.attach(model, AMPLE, daemon=False) as handle:
        for _ in range(16):
            model(torch.zeros(4, 64, dtype=torch.long))["x"].sum().backward()
        assert handle.stats()["failures"] > 0
