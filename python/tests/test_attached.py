"""A model that is attached is the same model: copies, state, evaluation, refusals."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
from stacks import run, stack
from torch import nn
from training import assert_equal, attach, attached, call, check, gradients

import pudica

pytest.importorskip("transformers")
import zoo  # noqa: E402


# -- 9 copies, pickles, state --------------------------------------------------------------------


def test_a_deep_copy_is_not_attached() -> None:
    model = stack()
    expected = gradients(model, run)
    with attached(model) as handle:
        gradients(model, run)
        steps = handle.stats()["steps"]
        twin = copy.deepcopy(model)
        assert_equal(gradients(twin, run), expected)
        assert handle.stats()["steps"] <= steps + 1
        assert_equal(gradients(model, run), expected)
        with attached(twin) as second:
            assert_equal(gradients(twin, run), expected)
            assert second.stats()["layers"] == 3


def test_a_pickle_is_not_attached() -> None:
    model = stack()
    expected = gradients(model, run)
    with attached(model):
        gradients(model, run)
        twin = pickle.loads(pickle.dumps(model))
        buffer = io.BytesIO()
        torch.save(model, buffer)
    buffer.seek(0)
    saved = torch.load(buffer, weights_only=False)
    for loaded in (twin, saved):
        assert_equal(gradients(loaded, run), expected)


def test_a_pickle_needs_no_pudica_to_be_loaded(tmp_path: Any) -> None:
    model, batch = zoo.build("bert")
    with attached(model):
        (tmp_path / "model.pickle").write_bytes(pickle.dumps((model, batch)))
    program = (
        "import pickle, sys\n"
        "model, batch = pickle.load(open('model.pickle', 'rb'))\n"
        "model(**batch).loss.backward()\n"
        "assert 'pudica' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


def test_state_dict_and_classes_are_unchanged() -> None:
    model, _ = zoo.build("bert")
    keys, kinds = list(model.state_dict()), [type(m) for m in model.modules()]
    names = [name for name, _ in model.named_parameters()]
    with attached(model):
        assert list(model.state_dict()) == keys
        assert [type(m) for m in model.modules()] == kinds
        assert [name for name, _ in model.named_parameters()] == names
        model.load_state_dict(model.state_dict())


def test_save_pretrained_while_attached(tmp_path: Any) -> None:
    model, batch = zoo.build("bert")
    with attached(model):
        model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).train()
    assert_equal(gradients(loaded, call(batch)), gradients(model, call(batch)))


def _traces(model: nn.Module) -> list[Any]:
    return [
        {
            key: len(value) if key.startswith("_") and hasattr(value, "__len__") else id(value)
            for key, value in vars(module).items()
        }
        for module in model.modules()
    ]


def test_detach_leaves_no_trace() -> None:
    model, batch = zoo.build("bert")
    expected = gradients(model, call(batch))
    before = _traces(model)
    for policy in ("full", "reactive"):
        handle = attach(model, policy)
        gradients(model, call(batch))
        handle.detach()
        handle.detach()
        assert not handle.attached
        assert _traces(model) == before
    assert_equal(gradients(model, call(batch)), expected)


def test_a_forward_before_detach_has_its_backward_after_it() -> None:
    model = stack()
    expected = gradients(model, run)
    handle = attach(model)
    for _ in range(2):
        gradients(model, run)
    torch.manual_seed(3)
    loss = run(model)
    handle.detach()
    loss.backward()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.grad, expected[name]), name


def test_attaching_twice_is_refused() -> None:
    model = stack()
    with attached(model):
        with pytest.raises(pudica.AttachError, match="attached already"):
            pudica.attach(model, "1GiB", daemon=False)
        with pytest.raises(pudica.AttachError, match="attached already"):
            pudica.attach(nn.Sequential(model), "1GiB", daemon=False)
    attach(model).detach()


def test_a_model_that_is_dropped_is_freed() -> None:
    import gc
    import weakref

    model = stack()
    handle = attach(model)
    gradients(model, run)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None or True  # hooks and handle may form a cycle until detach()
    handle.detach()
    gc.collect()
    assert alive() is None


# -- 10 no gradients -----------------------------------------------------------------------------


def test_forwards_without_gradients_are_left_alone() -> None:
    model, batch = zoo.build("gpt2")
    expected = gradients(model, call(batch))
    with attached(model) as handle:
        for _ in range(3):
            assert_equal(gradients(model, call(batch)), expected)
            calls = handle.stats()["layer_calls"]
            with torch.no_grad():
                model(**batch)
            with torch.inference_mode():
                model(**batch)
            model.generate(batch["input_ids"], max_new_tokens=3, do_sample=False)
            assert handle.stats()["layer_calls"] == calls


def test_evaluation_in_between() -> None:
    model, batch = zoo.build("bert")
    expected = gradients(model, call(batch))
    model.eval()
    with torch.no_grad():
        logits = model(**batch).logits
    evaluated = gradients(model, call(batch))
    model.train()
    with attached(model) as handle:
        for _ in range(3):
            assert_equal(gradients(model, call(batch)), expected)
            model.eval()
            with torch.no_grad():
                assert torch.equal(model(**batch).logits, logits)
            assert_equal(gradients(model, call(batch)), evaluated)
            model.train()
        assert handle.stats()["recomputed_layers"] > 8


@pytest.mark.parametrize("policy", ["full", "reactive", "random:seed=1"])
def test_eval_between_forward_and_backward(policy: str) -> None:
    model = stack()

    def loss(model: nn.Module) -> torch.Tensor:
        model.train()
        value = run(model)
        model.eval()
        return value

    assert check(model, loss, policy, steps=4)["layer_calls"] > 0
    model.train()


# -- 11 refusals ---------------------------------------------------------------------------------


def test_data_parallel_is_refused() -> None:
    with pytest.raises(pudica.AttachError, match="DistributedDataParallel"):
        pudica.attach(nn.DataParallel(stack()), "1GiB", daemon=False)


def test_compiled_models_are_refused() -> None:
    with pytest.raises(pudica.AttachError, match=r"torch\.compile"):
        pudica.attach(torch.compile(stack()), "1GiB", daemon=False)  # type: ignore[arg-type]
    model = stack()
    model.compile()
    with pytest.raises(pudica.AttachError, match=r"torch\.compile"):
        pudica.attach(model, "1GiB", daemon=False)
    model = stack()
    model.layers[1].compile()
    with pytest.raises(pudica.AttachError, match="compiled"):
        pudica.attach(model, "1GiB", daemon=False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("what", "said"), [("model", "a Stack runs"), ("layer", "a Layer runs"), ("inside", "")]
)
def test_what_is_compiled_after_attach_is_said_once(
    what: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    torch._dynamo.reset()
    model = stack()
    expected = gradients(model, run)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with attached(model) as handle:
        ours: Any = torch.compile(model, backend="eager") if what == "model" else model
        if what == "layer":
            model.layers[1].compile(backend="eager")
        if what == "inside":
            for layer in model.layers:
                layer.inner.compile(backend="eager")
        for _ in range(4):
            torch.manual_seed(3)
            run(ours).backward()
            optimizer.step()
            seen = {name: p.grad.clone() for name, p in model.named_parameters()}
            assert all(torch.equal(seen[name], expected[name]) for name in seen)
            model.zero_grad()
        calls = {"model": 0, "layer": 8, "inside": 12}[what]
        assert handle.stats()["layer_calls"] == calls
        assert (handle.stats()["recomputed_layers"] > 0) == (calls > 0)
    lines = [record.getMessage() for record in caplog.records if record.name == "pudica"]
    assert sum("torch.compile" in line for line in lines) == (1 if said else 0)
    assert said in caplog.text and "none of the" not in caplog.text
