"""What is asked of a model before one of its steps rests."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import budgets
import pytest
from torch import nn

from pudica._resting import Anatomy

Each = Callable[[Any, int], Any]


def changes() -> dict[str, Each]:
    def put(model: Any, _: int) -> None:
        model.layers[2].inner[0] = nn.Linear(32, 128)

    def add(model: Any, _: int) -> None:
        model.layers[2].inner[1].adapter = nn.Linear(2, 2)

    def swap(model: Any, _: int) -> None:
        model.layers[0], model.layers[1] = model.layers[1], model.layers[0]

    return {
        "a module put in another's place": put,
        "a module in one that had none": add,
        "two layers swapped": swap,
        "one less": lambda model, _: model.layers.pop(-1),
        "dropout off": lambda model, _: model.layers[3].inner[2].eval(),
        "a parameter frozen": lambda model, _: model.layers[3].norm.bias.requires_grad_(False),
        "a hook put on": lambda model, _: model.layers[3].norm.register_forward_hook(print),
        "a parameter taken": lambda model, _: setattr(model.layers[3].norm, "bias", None),
    }


@pytest.mark.parametrize("change", changes())
def test_anatomy_tells_a_changed_model(change: str) -> None:
    model = budgets.Stack()
    anatomy = Anatomy(model)
    assert anatomy.is_of(model)
    assert not anatomy.is_of(copy.deepcopy(model))
    changes()[change](model, 0)
    assert not anatomy.is_of(model)
    assert Anatomy(model).is_of(model)


def test_anatomy_keeps_nothing_alive() -> None:
    model: Any = budgets.Stack()
    anatomy = Anatomy(model)
    left = [weakref.ref(model.layers[4]), weakref.ref(model.layers[4].norm.weight)]
    del model.layers[4]
    gc.collect()
    assert [ref() for ref in left] == [None, None]
    assert not anatomy.is_of(model)
