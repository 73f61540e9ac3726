"""What pudica raises. Every message names the thing, the value seen and the value expected."""

from __future__ import annotations


class PudicaError(Exception):
    """Base of pudica's own errors."""


class AttachError(PudicaError, RuntimeError):
    """The model cannot be attached to; the message says why and what to do."""


class BudgetError(PudicaError, ValueError):
    """A budget that cannot be read, or is out of range."""


class ConfigError(PudicaError, ValueError):
    """A configuration file or environment variable with an error."""


class ShapeError(PudicaError, ValueError):
    """A shape that does not fit the dimensions that the model's inputs have."""


class NotLearnedError(PudicaError, LookupError):
    """Nothing is known yet: run training steps first."""


class StateError(PudicaError, ValueError):
    """A learned state that is damaged, or of another model."""


class RehearsalError(PudicaError, RuntimeError):
    """A rehearsal without an answer; the message says why."""


_BY_KIND = {
    "attach": AttachError,
    "budget": BudgetError,
    "config": ConfigError,
    "shape": ShapeError,
    "state": StateError,
    "unlearned": NotLearnedError,
}


def from_native(error: RuntimeError, fallback: type[PudicaError] = PudicaError) -> PudicaError:
    """The error that a native `kind: message` stands for."""
    text = str(error).split("\n", 1)[0]
    kind, _, message = text.partition(": ")
    known = _BY_KIND.get(kind)
    if known is not None and message:
        return known(message)
    return fallback(text)
