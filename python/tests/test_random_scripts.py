"""Property: in whatever order forwards, backwards, exceptions, threads, garbage collections and
handles of several models come, nothing breaks, and all bits are those of the same script plainly.

PUDICA_RANDOM_SCRIPTS: as many, from the seed PUDICA_RANDOM_SEED on.
"""

from __future__ import annotations

import gc
import os
import random
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from stacks import Layer
from torch import nn
from training import AMPLE, attach

import pudica

SIZE = 16
MOST_ALIVE = 4


class ScriptError(Exception):
    pass


class CallingLayer(Layer):
    """Calls back in its forward where the script has left something to call."""

    def __init__(self) -> None:
        super().__init__(SIZE)
        self._calls: list[Callable[[], None]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        if self._calls:
            self._calls.pop()()
        return y


class Net(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(CallingLayer() for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def fail() -> None:
    raise ScriptError


class World:
    """Runs one script; what it saw is in `seen`."""

    def __init__(self, seed: int, attached: bool) -> None:
        self.draw = random.Random(seed)
        torch.manual_seed(seed)
        self.attached = attached
        layers = [self.draw.randint(2, 4) for _ in range(self.draw.choice((2, 3)))]
        self.models = [Net(count).train() for count in layers]
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        self.has_noise = self.draw.random() < 0.7
        for model in self.models:
            for module in model.modules():
                if isinstance(module, nn.Dropout) and not self.has_noise:
                    module.p = 0.0
        self.optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3) for m in self.models]
        self.handles: list[pudica.Handle | None] = [None] * len(self.models)
        self.alive: list[torch.Tensor] = []
        self.in_forward: set[int] = set()
        self.seen: list[object] = []
        self.log: list[str] = []
        for index in range(len(self.models)):
            self.attach(index)

    def parameters(self) -> Iterator[nn.Parameter]:
        for model in self.models:
            yield from model.parameters()

    def note(self, tensor: torch.Tensor | None) -> None:
        self.seen.append(None if tensor is None else tensor.detach().numpy().tobytes())

    def note_gradients(self) -> None:
        for parameter in self.parameters():
            self.note(parameter.grad)

    # Operations; each draws as often whether the models are attached or not.

    def attach(self, index: int) -> None:
        policy = self.draw.choice(("pudica", "full", "reactive", "random"))
        seed, budget = self.draw.randrange(100), self.draw.choice((AMPLE, 1, 100_000))
        if index in self.in_forward:
            return
        self.detach(index)
        if self.attached:
            word = f"random:seed={seed}" if policy == "random" else policy
            self.handles[index] = attach(self.models[index], word, budget=budget)

    def detach(self, index: int) -> None:
        handle, self.handles[index] = self.handles[index], None
        if handle is not None:
            assert handle.stats()["failures"] == 0
            handle.detach()

    def set_budget(self, index: int) -> None:
        budget = self.draw.choice((AMPLE, 1, 100_000))
        handle = self.handles[index]
        if handle is not None:
            handle.set_budget(budget)

    def input(self) -> torch.Tensor:
        reads, detaches = self.draw.random() < 0.5, self.draw.random() < 0.4
        rows, which = self.draw.randint(2, 6), self.draw.randrange(MOST_ALIVE)
        if not reads or not self.alive:
            return torch.randn(rows, SIZE)
        found = self.alive[which % len(self.alive)]
        return found.detach() if detaches else found

    def forward(self, index: int, call: Callable[[], None] | None = None) -> None:
        model = self.models[index]
        layer = model.layers[self.draw.randrange(len(model.layers))]
        x = self.input()
        nested = index in self.in_forward
        self.in_forward.add(index)
        if call is not None:
            layer._calls.append(call)
        try:
            output = model(x)
        finally:
            layer._calls.clear()
            if not nested:
                self.in_forward.discard(index)
        self.note(output)
        self.alive = [*self.alive[1 - MOST_ALIVE :], output]

    def forward_no_grad(self, index: int) -> None:
        with torch.no_grad():
            self.forward(index)

    def forward_that_fails(self, index: int) -> None:
        self.forward(index, fail)

    def forward_disturbed(self, index: int) -> None:
        self.forward(index, self.disturbance(in_forward=True))

    def disturbance(self, in_forward: bool) -> Callable[[], None]:
        # A layer draws the same numbers and saves the same tensors again when it is run again: in
        # it the callback, which is not, does neither.
        ways = [self.attach, self.detach, self.set_budget, self.drop, self.collect]
        ways.append(self.backward_of_sum if in_forward else self.backward)
        if not in_forward:
            ways.append(self.forward)
        if not in_forward or not self.has_noise:
            ways.append(self.forward_no_grad)
        way, index = self.draw.choice(ways), self.draw.randrange(len(self.models))

        def call() -> None:
            with torch.set_grad_enabled(way != self.forward_no_grad):
                way(index)

        return call

    def pick(self) -> torch.Tensor | None:
        which = self.draw.randrange(MOST_ALIVE)
        return self.alive[which % len(self.alive)] if self.alive else None

    def backward(self, _: int) -> None:
        retains, output = self.draw.random() < 0.3, self.pick()
        if output is not None:
            output.pow(2).mean().backward(retain_graph=retains)
            self.note_gradients()

    def backward_of_sum(self, _: int) -> None:
        output = self.pick()
        if output is not None:
            output.sum().backward()
            self.note_gradients()

    def backward_of_two(self, _: int) -> None:
        left, right = self.pick(), self.pick()
        if left is not None and right is not None:
            (left.pow(2).mean() + right.tanh().sum()).backward()
            self.note_gradients()

    def backward_with(self, call: Callable[[], None]) -> None:
        output = self.pick()
        if output is None or not output.requires_grad:
            return
        calls = [call]

        def hook(_: torch.Tensor) -> None:
            if calls:
                calls.pop()()

        removable = output.register_hook(hook)
        try:
            output.pow(2).mean().backward(retain_graph=True)
        finally:
            removable.remove()
        self.note_gradients()

    def backward_that_fails(self, _: int) -> None:
        self.backward_with(fail)

    def backward_disturbed(self, _: int) -> None:
        self.backward_with(self.disturbance(in_forward=False))

    def gradient_penalty(self, index: int) -> None:
        output = self.pick()
        if output is None or not output.requires_grad:
            return
        parameters = list(self.models[index].parameters())
        found = torch.autograd.grad(
            output.pow(2).mean(), parameters, create_graph=True, allow_unused=True
        )
        used = [gradient for gradient in found if gradient is not None]
        if used:
            torch.stack([gradient.pow(2).sum() for gradient in used]).sum().backward()
        self.note_gradients()

    def step(self, index: int) -> None:
        self.optimizers[index].step()
        self.optimizers[index].zero_grad()

    def drop(self, _: int) -> None:
        which = self.draw.randrange(MOST_ALIVE)
        if self.alive:
            del self.alive[which % len(self.alive)]

    def drop_in_a_cycle(self, _: int) -> None:
        cycle: list[object] = [self.pick()]
        cycle.append(cycle)
        self.alive.clear()

    def collect(self, _: int) -> None:
        gc.collect()

    def train(self, index: int, seen: list[object]) -> None:
        for step in range(2):
            output = self.models[index](torch.full((3, SIZE), 0.1 * (step + 1)))
            seen.append(output.detach().numpy().tobytes())
            output.pow(2).mean().backward()
            self.optimizers[index].step()

    def train_at_once(self, _: int) -> None:
        """All models, each on a thread of its own; without noise none sees the others."""
        if self.has_noise:
            return
        seen: list[list[object]] = [[] for _ in self.models]
        threads = [
            threading.Thread(target=self.train, args=(index, seen[index]))
            for index in range(len(self.models))
        ]
        for thread in threads:
            thread.start()
        self.alive.clear()
        gc.collect()
        for thread in threads:
            thread.join()
        self.seen += seen
        self.note_gradients()

    def contained(self, operation: Callable[[int], None], index: int) -> None:
        try:
            operation(index)
        except ScriptError:
            self.seen.append("ScriptError")
        except RuntimeError:
            self.seen.append("RuntimeError")
            # A backward that torch ends (a parameter was changed since) ends sooner where a layer
            # is run again: which gradients came before that is nobody's promise.
            for model in self.models:
                model.zero_grad()

    def run(self) -> None:
        operations: list[Callable[[int], None]] = [
            self.forward_no_grad, self.forward_that_fails, self.forward_disturbed,
            self.backward_of_two, self.backward_that_fails, self.backward_disturbed,
            self.gradient_penalty, self.drop, self.drop_in_a_cycle, self.collect, self.attach,
            self.detach, self.set_budget, self.train_at_once,
        ]  # fmt: skip
        operations += 5 * [self.forward] + 4 * [self.backward] + 3 * [self.step]
        for _ in range(self.draw.randint(8, 24)):
            operation = self.draw.choice(operations)
            index = self.draw.randrange(len(self.models))
            on_thread = self.draw.random() < 0.1
            self.log.append(f"{operation.__name__} of {index}{' on a thread' * on_thread}")
            if on_thread:
                thread = threading.Thread(target=self.contained, args=(operation, index))
                thread.start()
                thread.join()
            else:
                self.contained(operation, index)

    def end(self) -> list[object]:
        for index, parameter in enumerate(self.parameters()):
            self.note(parameter)
            self.note(parameter.grad)
        for index in range(len(self.models)):
            self.detach(index)
        self.note(torch.rand(1))  # as many random numbers were drawn
        return self.seen


def run_script(seed: int, attached: bool) -> tuple[list[object], list[str]]:
    world = World(seed, attached)
    world.run()
    return world.end(), world.log


FIRST = int(os.environ.get("PUDICA_RANDOM_SEED", "1"))
COUNT = int(os.environ.get("PUDICA_RANDOM_SCRIPTS", "30"))


@pytest.mark.filterwarnings("ignore")
def test_scripts_end_as_without_pudica() -> None:
    torch.set_num_threads(1)
    for seed in range(FIRST, FIRST + COUNT):
        plain, log = run_script(seed, attached=False)
        seen, _ = run_script(seed, attached=True)
        at = next((i for i, (a, b) in enumerate(zip(plain, seen)) if a != b), None)
        assert at is None and len(plain) == len(seen), (
            f"script {seed} differs at {at} of {len(plain)}:\n" + "\n".join(log)
        )
