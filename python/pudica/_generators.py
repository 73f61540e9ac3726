"""Objects that draw random numbers, and what they are at: a torch.Generator, Python's, numpy's."""

from __future__ import annotations

import pickle
import random
from typing import Any

import torch


def is_generator(kind: type) -> bool:
    """Of the type of a value."""
    if issubclass(kind, (torch.Generator, random.Random)):
        return True
    if kind.__module__.partition(".")[0] != "numpy":
        return False
    return hasattr(kind, "bit_generator") or hasattr(kind, "get_state")


def state_of(generator: Any) -> Any:
    """To be compared, and for set_state()."""
    if isinstance(generator, torch.Generator):
        return bytes(generator.get_state().numpy())
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return pickle.dumps(generator.bit_generator.state)
    return pickle.dumps(generator.get_state())


def set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = pickle.loads(state)  # noqa: S301  (our own bytes)
    else:
        generator.set_state(pickle.loads(state))  # noqa: S301
