"""Checks that a model trains to the same bits under any plan.

    python -m pudica.parity package.module:factory

`factory()` returns (model, batch): a dict of keyword arguments, a tuple of positional ones, a
tensor, or a function that takes the model and returns the loss. Exit code 0: equal, 1: gradients
differ or a layer does not reproduce itself, 2: nothing could be checked.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from . import _native
from ._arguments import tensors_in
from ._attach import attach
from ._budget import format_bytes
from ._errors import PudicaError
from ._forced import plans_of
from ._layers import Selector, find_layers
from ._probe import Finding, probe

Factory = Callable[[], tuple[nn.Module, Any]]
_AMPLE = 1 << 50
_PLENTY_OF_BYTES = 1 << 16  # a step's activations: below that no budget can bind
_RANDOM_PLANS = 3


@dataclasses.dataclass
class Run:
    """The steps under one policy."""

    name: str
    steps: int
    recomputed_layers: int
    revocations: int
    difference: str = ""  # empty: equal in every bit


@dataclasses.dataclass
class Report:
    """What check() found. `str(report)` says it in words."""

    model: str
    layers: int
    runs: list[Run] = dataclasses.field(default_factory=list)
    findings: list[Finding] = dataclasses.field(default_factory=list)
    kept: list[str] = dataclasses.field(default_factory=list)  # what pudica said of layers

    @property
    def equal(self) -> bool:
        """Every gradient of every run is equal to the model's own, in every bit."""
        return not any(run.difference for run in self.runs)

    @property
    def ok(self) -> bool:
        """Equal, and every layer reproduces itself, so that any of them can be recomputed."""
        return self.equal and not self.findings and not self.kept

    def __str__(self) -> str:
        lines = [f"{self.model}: {self.layers} layers"]
        for run in self.runs:
            verdict = f"DIFFERS: {run.difference}" if run.difference else "equal"
            lines.append(
                f"  {run.name:<16} {verdict} ({run.steps} steps, {run.recomputed_layers} layers "
                f"recomputed, {run.revocations} given back)"
            )
        if self.findings:
            lines.append(f"first layer that differs: {self.findings[0]}")
            lines += [f"  also: {finding}" for finding in self.findings[1:4]]
        lines += [f"  {line}" for line in self.kept]
        if self.ok:
            lines.append("every bit equal under every plan")
        elif self.equal:
            lines.append(
                "gradients are equal, since such layers are kept; they can give no memory back"
            )
        return "\n".join(lines)


def loss_of(output: Any) -> torch.Tensor:
    """The loss in a model's output, or one made of its tensors."""
    if isinstance(output, torch.Tensor) and output.dim() == 0:
        return output
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss.sum()
    parts = [t.float().pow(2).mean() for t in tensors_in(output) if t.requires_grad]
    if not parts:
        raise PudicaError("the model's output holds no loss and no tensor that needs gradients")
    return torch.stack(parts).sum()


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)


class _Subject:
    """The model under check: runs steps that begin alike."""

    def __init__(self, model: nn.Module, batch: Any, autocast: torch.dtype | None) -> None:
        self.model = model
        self.batch = batch
        self.autocast = autocast
        self._buffers = [(b, b.detach().clone()) for b in model.buffers()]
        self.device = next((p.device for p in model.parameters()), torch.device("cpu"))

    def loss(self) -> torch.Tensor:
        if isinstance(self.batch, dict):
            return loss_of(self.model(**self.batch))
        if isinstance(self.batch, (tuple, list)):
            return loss_of(self.model(*self.batch))
        if isinstance(self.batch, torch.Tensor):
            return loss_of(self.model(self.batch))
        return loss_of(self.batch(self.model))

    def reset(self) -> None:
        with torch.no_grad():
            for buffer, copy in self._buffers:
                buffer.copy_(copy)
        self.model.zero_grad(set_to_none=True)
        _seed(1234)

    def mixed(self) -> contextlib.AbstractContextManager[Any]:
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)

    def step(self) -> dict[str, torch.Tensor]:
        """The loss and all gradients of one step."""
        self.reset()
        with self.mixed():
            loss = self.loss()
        found = {"loss": loss.detach().clone()}
        torch.autograd.backward([loss])
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None:
                found[name] = parameter.grad
        self.model.zero_grad(set_to_none=True)
        found.update({f"buffer {name}": b.clone() for name, b in self.model.named_buffers()})
        return found


def _same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return left.layout != torch.strided or torch.equal(
        left.contiguous().view(-1).view(torch.uint8), right.contiguous().view(-1).view(torch.uint8)
    )


def _difference(
    expected: dict[str, torch.Tensor], seen: dict[str, torch.Tensor], owners: dict[str, str]
) -> str:
    names = [n for n in expected if n not in seen] + [n for n in seen if n not in expected]
    if names:
        return f"{names[0]} has a gradient in one run only"
    names = [n for n in expected if not _same_bits(expected[n], seen[n])]
    if not names:
        return ""
    first = names[0]
    owner = f" of layer {owners[first]}" if first in owners else ""
    return f"{len(names)} of {len(expected)} tensors, the first is {first}{owner}"


def _owners(model: nn.Module, layers: Sequence[nn.Module]) -> dict[str, str]:
    names = {id(module): name for name, module in model.named_modules()}
    return {
        f"{names[id(layer)]}.{name}": names[id(layer)]
        for layer in layers
        if id(layer) in names
        for name, _ in layer.named_parameters()
    }


class _Check:
    def __init__(
        self, subject: _Subject, layers: list[nn.Module], expected: dict[str, torch.Tensor]
    ) -> None:
        self.subject = subject
        self.layers = layers
        self.expected = expected
        self.owners = _owners(subject.model, layers)
        self.kept: list[str] = []

    def run(self, name: str, policy: str, steps: int, budget: int = _AMPLE) -> Run:
        with plans_of(policy):
            handle = attach(self.subject.model, budget, self.layers, daemon=False)
        difference = ""
        with handle, _kept_layers(self.kept):
            for _ in range(steps):
                difference = difference or self._step(name)
        stats = handle.stats()
        return Run(name, steps, stats["recomputed_layers"], stats["revocations"], difference)

    def _step(self, name: str) -> str:
        try:
            return _difference(self.expected, self.subject.step(), self.owners)
        except Exception as error:  # the report is the place for it
            first = str(error).split("\n", 1)[0]
            return f"{type(error).__name__}: {first}"

    def peak_over_base(self, steps: int) -> int:
        """Bytes that a step without plans adds to what lives when it begins."""
        with plans_of("none"):
            handle = attach(self.subject.model, _AMPLE, self.layers, daemon=False)
        with handle:
            for _ in range(steps):
                self._step("none")
        last = handle.stats()["last_step"]
        return int(last["peak_bytes"]) - int(last["base_bytes"])

    def revoked(self, share: float, steps: int) -> Run:
        over_base = self.peak_over_base(2)
        in_use = int(_native.ops.bytes_in_use(str(self.subject.device)))
        name = f"given back {share:g}"
        if over_base < _PLENTY_OF_BYTES:
            return Run(name, 0, 0, 0)
        return self.run(name, "reactive", steps, in_use + int(share * over_base))


@contextlib.contextmanager
def _kept_layers(found: list[str]) -> Iterator[None]:
    """Collects what the log says of layers that are kept for good."""
    import logging

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if "kept from now on" in message and message not in found:
                found.append(message)

    log = logging.getLogger("pudica")
    listener = Listener()
    log.addHandler(listener)
    try:
        yield
    finally:
        log.removeHandler(listener)


def check(
    factory: Factory,
    *,
    autocast: torch.dtype | None = None,
    layers: Selector | Iterable[Selector] | None = None,
    steps: int = 3,
) -> Report:
    """Trains `steps` steps with no plan, every layer recomputed, random plans and layers given
    back in mid-step, and compares loss, gradients and buffers with the model's own bit by bit.

    The model stays as it was but for its gradients. `autocast`: run forwards under it. `layers`:
    as attach()'s. Raises AttachError, and PudicaError where the model does not give the same
    gradients twice without pudica.
    """
    model, batch = factory()
    subject = _Subject(model, batch, autocast)
    chosen = find_layers(model, layers)
    subject.step()  # the first step of a process may differ from the later ones without us
    expected = subject.step()
    again = _difference(expected, subject.step(), {})
    if again:
        raise PudicaError(
            f"this {type(model).__name__} gives other gradients from equal seeds without pudica "
            f"({again}); expected a model that can be compared with itself"
        )
    task = _Check(subject, chosen, expected)
    report = Report(type(model).__name__, len(chosen))
    report.runs.append(task.run("no plan", "none", steps))
    report.runs.append(task.run("every layer", "full", steps))
    for seed in range(_RANDOM_PLANS):
        report.runs.append(task.run(f"random plan {seed}", f"random:seed={seed}", steps + 2))
    report.runs.append(task.revoked(0.7, steps))
    report.runs.append(task.revoked(0.4, steps))
    report.findings = probe(subject, chosen)
    report.kept = task.kept
    subject.reset()
    return report


def _load(target: str) -> Factory:
    module, _, name = target.partition(":")
    if not module or not name:
        raise PudicaError(f"{target!r} names no factory; expected package.module:factory")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise PudicaError(f"{target!r} cannot be loaded: {error}") from None
    factory: Factory = found
    return factory


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pudica.parity", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("factory", help="package.module:factory")
    parser.add_argument("--bf16", action="store_true", help="forwards under bfloat16 autocast")
    parser.add_argument("--layers", help="class names of the layers, joined by commas")
    parser.add_argument("--steps", type=int, default=3, help="steps of each run")
    given = parser.parse_args(arguments)
    try:
        report = check(
            _load(given.factory),
            autocast=torch.bfloat16 if given.bf16 else None,
            layers=given.layers.split(",") if given.layers else None,
            steps=max(2, given.steps),
        )
    except Exception as error:
        print(f"pudica.parity: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    print(report)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
