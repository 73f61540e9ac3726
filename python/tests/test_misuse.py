"""What a user may get wrong: the error names the thing, the value seen and the value expected."""

from __future__ import annotations

import copy
import json
import pathlib
import pickle
import re
from typing import Any

import pytest
import small
import torch
from torch import nn

import pudica
from pudica import _native
from pudica._budget import format_apart


def attach(model: Any = None, budget: Any = "1GiB", **options: Any) -> pudica.Handle:
    options.setdefault("daemon", False)
    return pudica.attach(small.make() if model is None else model, budget, **options)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([], "layers= is empty; expected class names"),
        (3, "layers= is 3; expected class names"),
        ("", "layers= names '', which matches no module of this Model"),
        ([None], "layers= holds None; expected class names"),
        (small.Block(), "layers= names a Block, which matches no module of this Model"),
        ([lambda module: True], r"does not take \(name, module\).*expected a predicate"),
        (lambda name, module: True, "names the whole model; expected layers inside it"),
    ],
)
def test_wrong_layers(layers: Any, words: str) -> None:
    with pytest.raises(pudica.AttachError, match=words):
        attach(layers=layers)


@pytest.mark.parametrize("layers", ["blocks", nn.ModuleList, "ModuleList"])
def test_a_list_of_modules_stands_for_what_is_in_it(layers: Any) -> None:
    model = small.make()
    with attach(model, layers=layers) as handle:
        assert handle.layers == list(model.blocks)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": 3}, "name is 3; expected a str"),
        ({"daemon": "no"}, "daemon is 'no'; expected True, False or None"),
        ({"daemon": 0}, "daemon is 0; expected True, False or None"),
        ({"enforce": None}, "enforce is None; expected"),
    ],
)
def test_wrong_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(pudica.AttachError, match=words):
        attach(**options)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"bugdet": 3}', "bugdet: unknown key .* nearest known key is budget"),
        ('{"budget": "lots"}', 'budget: "lots", expected'),
        ("{", "line 1"),
        ("[]", r"top level: \[\], expected an object"),
        ('{"policy": "nope"}', "unknown policy 'nope'; expected none, full"),
    ],
)
def test_wrong_configurations(text: str, words: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "pudica.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(pudica.ConfigError, match=words):
        attach(config=path)
    with pytest.raises(pudica.ConfigError, match="none.json: cannot be read"):
        attach(config=tmp_path / "none.json")
    with pytest.raises(pudica.ConfigError, match=r"config is \{'budget': 3\}; expected the path"):
        attach(config={"budget": 3})


@pytest.mark.filterwarnings("ignore")
def test_models_that_are_not_ready() -> None:
    lazy = nn.Sequential(*[nn.Sequential(nn.LazyLinear(3)) for _ in range(3)])
    with pytest.raises(pudica.AttachError, match=r"'0\.0\.weight' has no shape yet; run one"):
        attach(lazy)
    with pytest.raises(pudica.AttachError, match="is on device meta; expected cpu or cuda"):
        attach(small.make().to("meta"))


def test_wrong_shapes() -> None:
    model = small.make()
    with attach(model, "4GiB") as handle:
        small.train(model, 6)
        wrong: Any
        for wrong in (4, None, b"4x64", (4.7, 64), ("a", 3), {"batch": "x", "length": 1}):
            with pytest.raises(pudica.ShapeError) as caught:
                handle.explain(wrong)
            assert repr(wrong) in str(caught.value) and "expected whole sizes" in str(caught.value)
        assert handle.explain(torch.Size([4, 64]))["key"] == "batch=4,length=64"


def test_files_that_are_no_state(tmp_path: pathlib.Path) -> None:
    model = small.make()
    with attach(model) as handle:
        handle.save(tmp_path / "good.json")
        torch.save(model.state_dict(), tmp_path / "weights.pt")
        good = json.loads((tmp_path / "good.json").read_text(encoding="utf-8"))
        states = {"a": {**good, "schema": 3}, "b": {**good, "learned": "x"}, "c": []}
        for name, state in states.items():
            (tmp_path / name).write_text(json.dumps(state), encoding="utf-8")
        for name, words in (
            ("weights.pt", "no JSON .* expected what save"),
            ("a", "schema is 3; expected 'pudica"),
            ("b", "begins with 'x', expected"),
            ("c", "state is a list; expected a dict of state_dict"),
        ):
            with pytest.raises(pudica.StateError, match=f"{name}: .*{words}"):
                handle.load(tmp_path / name)
        (tmp_path / "folder").mkdir()
        with pytest.raises(OSError, match="folder"):
            handle.save(tmp_path / "folder")
        assert not list(tmp_path.glob("*.new")), "nothing half done is left"


def test_a_copy_of_a_handle_is_not_attached() -> None:
    class Owner(nn.Module):
        """Keeps the handle with the model, as training classes do."""

    owner = Owner()
    owner.model = small.make()
    with attach(owner.model) as handle:
        owner.handle = handle
        small.train(owner.model, 2)
        pickled = pickle.loads(pickle.dumps(handle))
        for inert in (copy.deepcopy(owner).handle, copy.copy(handle), pickled):
            assert not inert.attached and "copy" in repr(inert)
            with pytest.raises(pudica.NotLearnedError, match="a copy"):
                inert.explain((4, 64))
        assert handle.attached


def test_a_detached_handle_answers_but_does_not_begin_again(tmp_path: pathlib.Path) -> None:
    model = small.make()
    with attach(model, "4GiB") as handle:
        small.train(model, 6)
    assert handle.stats()["steps"] == 6 and handle.explain((4, 64))["fits"]
    handle.save(tmp_path / "learned.json")
    handle.detach()
    with pytest.raises(pudica.AttachError, match="this handle is detached"):
        handle.__enter__()


def test_a_budget_just_below_the_floor_is_shown_apart_from_it() -> None:
    assert format_apart(3 << 20, 2 << 20) == ("3.0 MiB", "2.0 MiB")
    assert format_apart((3 << 20) + 1, 3 << 20) == ("3145729 bytes", "3145728 bytes")


@pytest.mark.parametrize("other", ["2.10.0", "2.99.1+cu130", "3.11.0"])
def test_a_torch_of_another_minor_version_is_refused_with_what_to_install(
    other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    minor = ".".join(other.split(".")[:2])
    monkeypatch.setattr(torch, "__version__", other)
    expected = rf"for torch 2\.11\.0, and torch {re.escape(other)} is"
    with pytest.raises(ImportError, match=expected) as refused:
        _native._check_version("2.11.0")
    assert f"+torch{minor})" in str(refused.value)
    _native._check_version(f"{minor}.7+cpu")  # the same minor version
