"""What is read of a layer at each call is what it has then, whatever was found at others."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

import pudica
from pudica import _rerun
from pudica._parts import Parts, Tree, parts_of


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        self.register_buffer("scale", torch.ones(4))
        self.kind = "plain"
        self.sizes = [1, 2]
        self.step: Any = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.drop(self.linear(x))) * self.scale


class Reader:
    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer
        self.trees: dict[int, Tree] = {}

    def __call__(self) -> Parts:
        """Twice: the second is what calls after the first find."""
        first, second = (parts_of(self.layer, self.trees) for _ in range(2))
        assert first.signature == second.signature
        assert first.attributes == second.attributes
        assert list(map(id, first.parameters)) == list(map(id, second.parameters))
        return second


@pytest.fixture()
def read() -> Reader:
    return Reader(Part())


def check(parts: Parts, layer: nn.Module, *, in_order: bool = True) -> None:
    modules = list(layer.modules())
    assert parts.modules == modules
    found, there = (list(map(id, these)) for these in (parts.parameters, layer.parameters()))
    assert found == there if in_order else sorted(found) == sorted(there)
    assert list(map(id, parts.buffers)) == list(map(id, layer.buffers()))
    assert parts.training == [module.training for module in modules]
    assert parts.owned.are_of(modules)
    assert parts.owned.by_module() == [dict(module._parameters) for module in modules]
    assert not parts.strange


def test_as_it_was_made(read: Reader) -> None:
    parts = read()
    check(parts, read.layer)
    assert parts.attributes[0] == {"kind": "plain", "sizes": [1, 2], "step": 1}
    assert parts.hooks == []


def swap_parameter(layer: Any) -> None:
    layer.linear.weight = nn.Parameter(torch.zeros(4, 4))


def take_parameter_out(layer: Any) -> None:
    layer.linear.bias = None


def rename_parameter(layer: Any) -> None:
    own = layer.linear._parameters
    own["other"] = own.pop("bias")


def swap_buffer(layer: Any) -> None:
    layer.scale = torch.zeros(4)


def put_module_in(layer: Any) -> None:
    layer.inner.append(nn.Linear(4, 2))


def swap_module(layer: Any) -> None:
    layer.inner[0] = nn.Linear(4, 4, bias=False)


def take_module_out(layer: Any) -> None:
    layer.drop = None


def move_a_parameter_on(layer: Any) -> None:
    """To the next module, which has none of its own: the values are the same, in this order."""
    own = layer.linear._parameters
    layer.drop._parameters["bias"] = own.pop("bias")


def move_a_module_on(layer: Any) -> None:
    layer.inner[0].last = layer.inner[1]
    del layer.inner[1]


MOVES = [move_a_parameter_on, move_a_module_on]
CHANGES = [swap_parameter, take_parameter_out, rename_parameter, swap_buffer, put_module_in,
           swap_module, take_module_out]


@pytest.mark.parametrize("change", [*CHANGES, *MOVES])
def test_a_change_is_found(read: Reader, change: Any) -> None:
    check(read(), read.layer)
    change(read.layer)
    check(read(), read.layer)


@pytest.mark.parametrize("change", [swap_parameter, move_a_parameter_on])
def test_parameters_that_went_are_told(read: Reader, change: Any) -> None:
    before = read()
    change(read.layer)
    assert not before.owned.are_of(before.modules)
    assert read().owned.are_of(before.modules)


@pytest.mark.parametrize(
    "change",
    [lambda m: m.drop.eval(), lambda m: m.linear.weight.requires_grad_(False),
     lambda m: m.inner.register_forward_hook(lambda *_: None), put_module_in],
    ids=["one module evaluates", "one is frozen", "a hook inside", "another module"],
)
def test_signatures_tell_operators_of_other_kinds(read: Reader, change: Any) -> None:
    before = read()
    change(read.layer)
    assert read().signature != before.signature


def test_the_mode_of_the_whole_layer_is_no_part_of_its_signature(read: Reader) -> None:
    before = read()
    read.layer.eval()
    assert read().signature == before.signature
    assert not any(read().training)


def test_attributes_are_those_of_now(read: Reader) -> None:
    layer: Any = read.layer
    read()
    layer.step = 1000 + int(torch.ones(1))
    layer.drop.p = 0.25
    layer.sizes.append(3)
    layer.added = True
    parts = read()
    assert parts.attributes[0] == {"kind": "plain", "sizes": [1, 2, 3], "step": 1001, "added": True}
    assert parts.attributes[2]["p"] == 0.25
    del layer.added
    layer.kind = torch.ones(1)
    layer.step = object()
    assert read().attributes[0] == {"sizes": [1, 2, 3]}
    layer.step = max
    layer.put, layer.kind = layer.kind, None
    assert read().attributes[0] == {"kind": None, "sizes": [1, 2, 3], "step": max}
    layer.step = min
    assert read().attributes[0]["step"] is min


def test_one_deleted_and_one_added(read: Reader) -> None:
    read()
    del read.layer.kind
    read.layer.other = "word"
    assert read().attributes[0] == {"other": "word", "sizes": [1, 2], "step": 1}


def test_parameters_that_are_lent(read: Reader) -> None:
    seen: list[str] = []
    layer = read.layer
    layer.register_forward_pre_hook(lambda *_: seen.append(parts_of(layer, read.trees).strange))
    x = torch.ones(2, 4)
    layer(x)
    torch.func.functional_call(layer, {k: v.detach() for k, v in layer.named_parameters()}, (x,))
    layer(x)
    assert [word.partition("(")[2] for word in seen] == ["", "torch.func.functional_call)", ""]


def test_a_module_that_occurs_twice(read: Reader) -> None:
    layer: Any = read.layer
    layer.again = layer.linear
    check(read(), layer)


def test_names_go_with_their_parameters(read: Reader) -> None:
    """Where a module has them in a dictionary with an order of its own."""
    linear: Any = read.layer.linear
    own: OrderedDict[str, Any] = OrderedDict(linear._parameters)
    own.move_to_end("weight")
    vars(linear)["_parameters"] = own
    check(read(), read.layer, in_order=False)
    assert read().owned.by_module()[1]["bias"] is linear.bias


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_inside(read: Reader) -> None:
    layer: Any = read.layer
    layer.inner = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1)))
    check(read(), layer)
    layer.inner.eval()
    check(read(), layer)


def test_reading_keeps_nothing_alive(read: Reader) -> None:
    layer: Any = read.layer
    layer.config = Part()  # an object of the user's
    layer.call = lambda: layer
    read()
    gone = [weakref.ref(p) for p in (layer.linear.weight, layer.config, layer.inner, layer.scale)]
    for change in CHANGES:
        change(layer)
        read()
    layer.config = layer.call = None
    read.layer, layer = nn.Identity(), None
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)


def test_a_call_leaves_little_for_the_collector() -> None:
    """Many objects that live until the backward bring the collector's slow rounds about."""
    model = nn.Sequential(*[Part() for _ in range(6)])
    for layer in model:
        layer.more = nn.ModuleList(nn.Linear(1, 1) for _ in range(40))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pudica.attach(model, 1 << 40, policy="full", daemon=False):
        for _ in range(3):
            loss = model(torch.ones(3, 4)).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        del loss
        _rerun.forget_dead()
        before = len(gc.get_objects())
        loss = model(torch.ones(3, 4)).sum()
        assert len(gc.get_objects()) - before < 6 * 20
