"""What other code puts on a model's layers for their forwards to read, and changes before the
backward: conditioning, banks of references, which parameters train."""

from __future__ import annotations

import types
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from training import assert_equal, attached

from pudica import _rerun

LAYERS, WIDTH = 4, 16
POLICIES = ("none", "full", "random:seed=1")
WAYS = ("tensor", "of a graph", "list", "dictionary", "tuple", "object")


class Conditioned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.keys = nn.Linear(WIDTH, WIDTH)
        self.condition: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = self.condition
        if isinstance(given, types.SimpleNamespace):
            given = given.value
        elif isinstance(given, dict):
            given = given["value"]
        elif isinstance(given, (list, tuple)):
            given = given[0]
        return x + self.own(x) * torch.sigmoid(self.keys(given))


class Model(nn.Module):
    """`after`: what is done with the layers' conditions behind their forward."""

    def __init__(self, way: str, after: str) -> None:
        super().__init__()
        self.way, self.after = way, after
        self.sees = nn.Linear(3, WIDTH)
        self.layers = nn.ModuleList(Conditioned() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 1)
        self.bank: list[torch.Tensor] = []
        self.words: dict[str, torch.Tensor] = {}

    def put(self, value: torch.Tensor) -> None:
        self.bank[:] = [value]
        self.words["value"] = value
        of_way = {
            "list": self.bank, "dictionary": self.words, "tuple": (value,),
            "object": types.SimpleNamespace(value=value),
        }
        for layer in self.layers:
            layer.condition = of_way.get(self.way, value)

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        value = self.sees(seen)
        self.put(value if self.way == "of a graph" else value.detach().clone())
        for layer in self.layers:
            x = layer(x)
        if self.after == "cleared":
            self.bank.clear()
            self.words.clear()
            for layer in self.layers:
                layer.condition = None
        if self.after == "deleted":
            for layer in self.layers:
                del layer.condition
        return self.head(x).square().mean()


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    """Summed over all steps."""
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def model_of(way: str, after: str) -> Model:
    torch.manual_seed(0)
    return Model(way, after)


def train(model: Model, forwards: int = 2) -> dict[str, torch.Tensor]:
    for step in range(4):
        random = torch.Generator().manual_seed(step)
        total = sum(
            model(
                torch.randn(2, 5 + step, WIDTH, generator=random),
                torch.randn(2, 1, 3, generator=random),
            )
            for _ in range(forwards)
        )
        assert isinstance(total, torch.Tensor)
        total.backward()
    return gradients(model)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("after", ["replaced", "cleared", "deleted"])
@pytest.mark.parametrize("way", WAYS)
def test_a_rerun_reads_what_the_forward_read(way: str, after: str, policy: str) -> None:
    expected = train(model_of(way, after))
    model = model_of(way, after)
    with attached(model, policy) as handle:
        seen = train(model)
        stats = handle.stats()
    assert_equal(seen, expected)
    assert stats["failures"] == 0
    if policy == "full":
        assert stats["recomputed_layers"] > 0
    present = [getattr(layer, "condition", None) for layer in model.layers]
    if after != "replaced":
        assert present == [None] * LAYERS, "as it was before the rerun"
        assert after != "deleted" or not hasattr(model.layers[0], "condition")
    if way == "list":
        assert len(model.bank) == (0 if after == "cleared" else 1)


def test_what_is_written_in_place_is_told() -> None:
    model = model_of("tensor", "replaced")
    with attached(model, "full"):
        train(model)
        loss = model(torch.randn(2, 600, WIDTH), torch.randn(2, 600, 3))  # which is not small
        with torch.no_grad():
            model.layers[1].condition.add_(1)
        with pytest.raises(RuntimeError, match="attribute condition of a layer"):
            loss.backward()


def test_a_small_tensor_that_a_hook_writes_is_as_it_was() -> None:
    """A norm, a count: whether the forward read it is not known."""

    def watch(layer: Any, _: Any, out: torch.Tensor) -> None:
        layer.norm.copy_(out.detach().norm())

    def run(model: Model) -> dict[str, torch.Tensor]:
        for layer in model.layers:
            layer.norm = torch.zeros(())
            layer.register_forward_hook(watch)
        return train(model)

    expected = run(model_of("tensor", "replaced"))
    model = model_of("tensor", "replaced")
    with attached(model, "full") as handle:
        assert_equal(run(model), expected)
        assert handle.stats()["recomputed_layers"] > 0
    assert all(layer.norm > 0 for layer in model.layers), "what hooks wrote stays"


def test_odd_attributes_are_let_be() -> None:
    class Refuses(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, *_: Any, **__: Any) -> Any:
            raise NotImplementedError(function)

    model = model_of("tensor", "replaced")
    expected = train(model_of("tensor", "replaced"))
    for layer in model.layers:
        vars(layer)["late"] = [nn.parameter.UninitializedParameter()]
        vars(layer)["odd"] = torch.zeros(2).as_subclass(Refuses)
        vars(layer)["itself"] = loop = [1]
        loop.append(loop)
    with attached(model, "full"):
        assert_equal(train(model), expected)


class Gathers(nn.Module):
    """What its layers gave, in something that all of them name."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind
        self.layers = nn.ModuleList(Conditioned() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gathered: list[torch.Tensor] = []
        given = {"a list": gathered, "a dictionary": {"v": gathered},
                 "an object": types.SimpleNamespace(v=gathered)}[self.kind]
        for layer in self.layers:
            layer.gathered, layer.condition = given, torch.ones(2, 1, WIDTH)
            x = layer(x)
            gathered.append(x)
        return x.square().mean()


@pytest.mark.parametrize("kind", ["a list", "a dictionary", "an object"])
def test_steps_without_a_backward_do_not_pile_up(kind: str) -> None:
    """The graph of what a layer gave holds the layer's call, which holds what that was put into."""
    model = Gathers(kind)
    with attached(model, "full"):
        for _ in range(3):
            model(torch.randn(2, 5, WIDTH)).backward()
        for _ in range(100):
            model(torch.randn(2, 5, WIDTH))
        assert _rerun.live_calls() < 40 * LAYERS


@pytest.mark.parametrize("way", ["tensor", "of a graph"])
def test_nothing_of_it_outlives_its_step(way: str) -> None:
    """Also where no backward comes: what a step read must not hold the graph of the one before."""
    model = model_of(way, "replaced")
    with attached(model, "full"):
        train(model)
        refs = []
        for _ in range(6):
            loss = model(torch.randn(2, 5, WIDTH), torch.randn(2, 1, 3))
            refs.append(weakref.ref(loss))
            for layer in model.layers:
                layer.condition = loss  # which other code keeps there
            del loss
        assert [ref() is None for ref in refs[:-2]] == [True] * 4


@pytest.mark.parametrize("wants", [False, True])
def test_a_layer_is_frozen_or_thawed_before_the_backward(wants: bool) -> None:
    def run(model: Model) -> dict[str, torch.Tensor]:
        for step in range(4):
            torch.manual_seed(step)
            model.layers[1].requires_grad_(not wants)
            loss = model(torch.randn(2, 5 + step, WIDTH), torch.randn(2, 1, 3))
            model.layers[1].requires_grad_(wants)
            loss.backward()
        assert all(p.requires_grad is wants for p in model.layers[1].parameters())
        return gradients(model)

    expected = run(model_of("tensor", "replaced"))
    model = model_of("tensor", "replaced")
    with attached(model, "full") as handle:
        assert_equal(run(model), expected)
        assert handle.stats()["recomputed_layers"] > 0


class Initialised(nn.Module):
    """By its first batch, as ActNorm is."""

    def __init__(self) -> None:
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(WIDTH))
        self.inner = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(64, WIDTH))
        self.ready = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.ready:
            with torch.no_grad():
                self.loc.copy_(x.mean((0, 1)))
            self.ready = True
        return x + self.inner(x - self.loc)


class Unsettled(Initialised):
    """In each of its forwards."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.ready = False
        return super().forward(x)


def test_a_layer_that_initialises_itself_is_recomputed_later() -> None:
    def run(model: nn.Module) -> dict[str, torch.Tensor]:
        for step in range(5):
            torch.manual_seed(step)
            model(torch.randn(2, 5 + step, WIDTH)).square().mean().backward()
        return gradients(model)

    for kind, is_recomputed in ((Initialised, True), (Unsettled, False)):
        results = []
        for policy in ("", "full"):
            torch.manual_seed(0)
            model = nn.Sequential(*(kind() for _ in range(LAYERS)))
            if not policy:
                results.append(run(model))
                continue
            with attached(model, policy) as handle:
                results.append(run(model))
                assert (handle.stats()["recomputed_layers"] > 0) is is_recomputed
        assert_equal(*results)


def test_under_forward_mode_a_layer_runs_as_it_is() -> None:
    """Its tangents are not there any more in the backward; other calls are planned all the same."""
    forward_ad = torch.autograd.forward_ad

    def run(model: nn.Module) -> dict[str, torch.Tensor]:
        for step in range(6):
            torch.manual_seed(step)
            x = torch.randn(2, 5, WIDTH)
            if step % 2 == 0:
                model(x).square().mean().backward()
                continue
            with forward_ad.dual_level():
                out = model(forward_ad.make_dual(x, torch.ones_like(x)))
                tangent = forward_ad.unpack_dual(out).tangent
                (out.square().mean() + tangent.square().mean()).backward()
        return gradients(model)

    results = []
    for policy in ("", "full"):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, WIDTH))
                                for _ in range(LAYERS)))
        if not policy:
            results.append(run(model))
            continue
        with attached(model, policy) as handle:
            results.append(run(model))
            assert handle.stats()["recomputed_layers"] > 0
    assert_equal(*results)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.parametrize("as_buffer", [False, True])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_sparse_matrix_beside_the_input(layout: torch.layout, as_buffer: bool) -> None:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)
            dense = torch.eye(12).roll(1, 0) + torch.eye(12)
            self.register_buffer("edges", dense.to_sparse(layout=layout))

        def forward(self, x: torch.Tensor, edges: torch.Tensor | None = None) -> torch.Tensor:
            return torch.sparse.mm(self.edges if edges is None else edges, self.linear(x)).tanh()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Graph() for _ in range(LAYERS))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            edges = None if as_buffer else self.layers[0].edges
            for layer in self.layers:
                x = layer(x) if edges is None else layer(x, edges)
            return x.square().mean()

    def run(model: nn.Module) -> dict[str, torch.Tensor]:
        for step in range(4):
            torch.manual_seed(step)
            model(torch.randn(12, WIDTH)).backward()
        return gradients(model)

    results = []
    for policy in ("", *POLICIES):
        torch.manual_seed(0)
        model = Net()
        if not policy:
            results.append(run(model))
            continue
        with attached(model, policy) as handle:
            results.append(run(model))
            assert handle.stats()["failures"] == 0
            assert policy != "full" or handle.stats()["recomputed_layers"] > 0
        assert_equal(results[0], results[-1])
