"""attach() and the Handle as a user meets them."""

import gc
import json
import logging
import pathlib
import weakref

import pytest
import small
import torch
from torch import nn

import pudica
from pudica import _native


@pytest.fixture(autouse=True)
def no_daemon(monkeypatch, tmp_path):
    monkeypatch.setenv("PUDICA_SOCKET", str(tmp_path / "nobody.sock"))
    monkeypatch.delenv("PUDICA_BUDGET", raising=False)
    monkeypatch.delenv("PUDICA_CONFIG", raising=False)


@pytest.fixture(scope="module")
def plain():
    model = small.make()
    small.train(model, 14)
    return model


def peak(steps=14, **kwargs):
    model = small.make()
    with pudica.attach(model, "4GiB", **kwargs) as handle:
        small.train(model, steps)
        return handle.stats()["highest_peak_bytes"]


def config(tmp_path, **keys):
    path = tmp_path / "pudica.json"
    path.write_text(json.dumps(keys), encoding="utf-8")
    return str(path)


def floor(tmp_path):
    return peak(config=config(tmp_path, policy="full"))


def test_training_is_the_same_to_the_bit_under_any_budget(plain, tmp_path):
    least, most = floor(tmp_path), peak()
    assert least < most
    for share in (0.0, 0.3, 0.6, 1.0):
        model = small.make()
        budget = int(least + share * (most - least)) + 4096
        with pudica.attach(model, budget) as handle:
            small.train(model, 14)
            stats = handle.stats()
        assert small.same(plain, model), share
        assert stats["failures"] == 0
        assert stats["overruns"] == 0, share
        assert stats["highest_peak_bytes"] <= budget
        assert (stats["recomputed_layers"] > 0) == (share < 1.0) or share == 1.0


def test_plans_after_few_steps_and_predicts_to_the_byte():
    model = small.make()
    off = []
    with pudica.attach(model, "4GiB") as handle:
        def compare(step):
            last = handle.stats()["last_step"]
            if step >= 8 and last["predicted_peak_bytes"] is not None:
                off.append(abs(last["predicted_peak_bytes"] / last["peak_bytes"] - 1))
        small.train(model, 20, each=compare)
        assert handle.stats()["state"] == "planning"
    assert len(off) >= 10
    assert sorted(off)[len(off) // 2] < 1e-3


def test_explains_and_estimates_in_words_and_numbers(tmp_path):
    least, most = floor(tmp_path), peak()
    model = small.make()
    with pudica.attach(model, (least + most) // 2) as handle:
        with pytest.raises(pudica.NotLearnedError):
            handle.explain((4, 64))
        small.train(model, 14)
        explanation = handle.explain((4, 120))
        assert [layer["layer"] for layer in explanation["layers"]] == [0, 1, 2, 3]
        assert "why" in str(explanation) and "MiB" in str(explanation)
        assert all(layer["why"] for layer in explanation["layers"])
        estimate = handle.estimate({"batch": 4, "length": 120}, "4GiB")
        assert estimate["fits"] and estimate["modes"] == {"keep": 4}
        assert "fits" in str(estimate)
        assert not handle.estimate("batch=4,length=120", 1)["fits"]
        points = handle.frontier((4, 120))
        assert points[0][1] <= points[-1][1] and points[0][0] >= points[-1][0]
        assert handle.plans() and handle.snapshot()["state"]
        for wrong in ((4,), (4, 5, 6), (0, 64), "4xmany", {"batch": 4, "width": 3}):
            with pytest.raises(pudica.ShapeError):
                handle.explain(wrong)
        with pytest.raises(pudica.ShapeError):
            handle.explain(object())


def test_a_shape_that_is_wrong_is_told_from_one_that_is_not_learned():
    model = small.make()
    with pudica.attach(model, "4GiB") as handle:
        with pytest.raises(pudica.NotLearnedError, match="no step was learned yet"):
            handle.explain((4,))
        small.train(model, 1)
        assert handle.stats()["learning_steps"] == 1
        with pytest.raises(pudica.NotLearnedError, match="not measured yet"):
            handle.explain((4, 64))
        with pytest.raises(pudica.ShapeError, match="1 size instead of 2"):
            handle.explain((4,))


def test_rules_of_the_menu_hold_for_its_modes(tmp_path):
    def modes(**planner):
        path = config(tmp_path, planner=planner)
        model = small.make()
        with pudica.attach(model, "1GiB", config=path) as handle:
            small.train(model, 6)
            return json.dumps(handle.snapshot())

    assert "addmm" in modes()
    assert "addmm" not in modes(keep_operators=["aten::addmm"])
    with pytest.raises(pudica.AttachError, match="'aten::ad_mm'"):
        pudica.attach(small.make(), "1GiB", config=config(
            tmp_path, planner={"keep_operators": ["aten::ad_mm"]}))


def test_offload_is_planned_where_the_menu_names_it(plain, tmp_path):
    least, most = floor(tmp_path), peak()
    budget = (least + most) // 2

    def planned(menu, **keys):
        path = config(tmp_path, planner={"menu": menu}, **keys)
        model = small.make()
        with pudica.attach(model, budget, config=path) as handle:
            small.train(model, 14)
            stats = handle.stats()
            text = handle.explain((4, 120))
            plans = handle.plans()
        assert small.same(plain, model)
        assert stats["overruns"] == stats["failures"] == 0
        assert stats["highest_peak_bytes"] <= budget
        used = {mode for plan in plans for mode in plan["plan"]["modes"]}
        assert (stats["host_peak_bytes"] > 0) == ("offload" in menu and "offload" in used)
        return used, str(text)

    modes, text = planned(["keep", "offload"])  # with `full` it depends on what copies cost here
    assert "offload" in modes
    assert "offload" in text
    modes, _ = planned(["keep", "offload", "full"], offload={"host_bytes": 0})
    assert "offload" not in modes
    modes, _ = planned(["keep", "full"])
    assert modes == {"keep", "full"}


def test_questions_to_a_policy_that_learns_nothing(tmp_path):
    with pudica.attach(small.make(), "4GiB", config=config(tmp_path, policy="full")) as handle:
        for call in (handle.explain, handle.estimate, handle.frontier):
            with pytest.raises(pudica.NotLearnedError, match="learns nothing"):
                call((4, 64))
        with pytest.raises(pudica.StateError, match="learns nothing"):
            handle.state_dict()


def test_the_budget_changes_at_the_next_step(tmp_path):
    least, most = floor(tmp_path), peak()
    model = small.make()
    with pudica.attach(model, "4GiB") as handle:
        optimizer = small.train(model, 14)
        before = handle.stats()["recomputed_layers"]
        handle.set_budget(least + 4096)
        assert handle.budget == least + 4096
        small.train(model, 6, optimizer, seed=3)
        assert handle.stats()["recomputed_layers"] > before
        assert most > least


@pytest.mark.parametrize(
    ("budget", "expected"),
    [(5000, 5000), ("20KiB", 20480), ("18 KB", 18000), ("4096", 4096), ("1.5MiB", 1572864)],
)
def test_budgets_in_bytes(budget, expected):
    with pudica.attach(small.make(), budget) as handle:
        assert handle.budget == expected


def test_budgets_as_shares_of_the_device(monkeypatch):
    monkeypatch.setattr("pudica._budget.device_bytes", lambda device: 1000)
    for budget, expected in [(0.5, 500), ("0.25", 250), ("auto", 900), (1.0, 1000), (None, 900)]:
        with pudica.attach(small.make(), budget) as handle:
            assert handle.budget == expected, budget
    monkeypatch.setenv("PUDICA_BUDGET", "7KiB")
    with pudica.attach(small.make()) as handle:
        assert handle.budget == 7168
    with pudica.attach(small.make(), 300) as handle:
        assert handle.budget == 300


@pytest.mark.parametrize(
    "budget", [0, -1, 0.0, 1.5, -0.1, "", "much", "12QiB", "12 QiB", "1.5", True, [], {}, 2**63]
)
def test_wrong_budgets_are_named(budget):
    with pytest.raises(pudica.BudgetError) as caught:
        pudica.attach(small.make(), budget)
    assert "expected" in str(caught.value) and "budget" in str(caught.value)
    assert repr(budget) in str(caught.value), "the value as it was written"


def test_wrong_models_are_refused_with_the_reason(tmp_path):
    frozen = small.make().requires_grad_(False)
    cases = [
        (lambda: pudica.attach("model", 1), "expected a torch.nn.Module"),
        (lambda: pudica.attach(nn.Linear(2, 2), 1), "layers="),
        (lambda: pudica.attach(frozen, 1), "requires gradients"),
        (lambda: pudica.attach(small.make(), 1, layers="Nothing"), "'Nothing'|Nothing"),
        (lambda: pudica.attach(small.make(), 1, layers=[3]), "expected class names"),
        (lambda: pudica.attach(small.make(), 1, layers=["Block", "Linear"]), "inside each other"),
        (lambda: pudica.attach(small.make(), 1, enforce="firm"), "soft"),
        (lambda: pudica.attach(nn.DataParallel(small.make()), 1), "DataParallel"),
        (lambda: pudica.attach(torch.compile(small.make()), 1), "compile"),
    ]
    for call, words in cases:
        with pytest.raises(pudica.AttachError, match=words):
            call()
    bad = tmp_path / "bad.json"
    bad.write_text('{"warmup": {"min_step": 3}}', encoding="utf-8")
    with pytest.raises(pudica.ConfigError, match="min_steps"):
        pudica.attach(small.make(), 1, config=bad)


def test_a_second_attach_is_refused_and_detach_frees_the_model():
    model = small.make()
    handle = pudica.attach(model, "1GiB")
    with pytest.raises(pudica.AttachError, match="attached already"):
        pudica.attach(model, "1GiB")
    handle.detach()
    handle.detach()
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
    with pudica.attach(model, "1GiB"):
        pass


def test_layers_can_be_named_in_every_way():
    for layers in ("Block", small.Block, lambda name, m: name.startswith("blocks.") and
                   name.count(".") == 1):
        model = small.make()
        with pudica.attach(model, "1GiB", layers=layers) as handle:
            assert handle.layers == list(model.blocks)
    model = small.make()
    with pudica.attach(model, "1GiB", layers=[model.blocks[1], model.blocks[3]]) as handle:
        assert handle.layers == [model.blocks[1], model.blocks[3]]
        small.train(model, 3)
        assert handle.stats()["layer_calls"] == 6
    model = small.make()
    with pudica.attach(model, "1GiB", layers=model.blocks) as handle:
        assert len(handle.layers) == 4


def test_what_was_learned_is_saved_and_spares_the_learning(tmp_path):
    model = small.make()
    path = tmp_path / "learned.json"
    with pudica.attach(model, "4GiB") as handle:
        small.train(model, 14)
        handle.save(path)
    model = small.make()
    with pudica.attach(model, "4GiB") as handle:
        handle.load(path)
        small.train(model, 3)
        stats = handle.stats()
        assert stats["learning_steps"] <= 1
        assert stats["last_step"]["predicted_peak_bytes"] is not None
    with pudica.attach(small.make(layers=3), "4GiB") as handle:
        with pytest.raises(pudica.StateError):
            handle.load(path)
        path.write_text("{}", encoding="utf-8")
        with pytest.raises(pudica.StateError, match="schema"):
            handle.load(path)
        path.write_text("no json", encoding="utf-8")
        with pytest.raises(pudica.StateError):
            handle.load(path)
        with pytest.raises(OSError):
            handle.load(tmp_path / "nothing.json")


def test_a_budget_below_the_floor_is_said_once_and_training_goes_on(plain, caplog):
    model = small.make()
    with caplog.at_level(logging.WARNING, logger="pudica"):
        with pudica.attach(model, 200_000) as handle:
            small.train(model, 14)
            assert handle.stats()["overruns"] > 0
    assert small.same(plain, model)
    said = [record.message for record in caplog.records if "needs at least" in record.message]
    assert len(said) == 1 and "MiB" in said[0] and "any plan" in said[0]


def test_hard_enforcement_raises_and_the_next_step_is_clean():
    model = small.make()
    with pudica.attach(model, 200_000, enforce="hard") as handle:
        with pytest.raises(RuntimeError, match="budget"):
            small.train(model, 2)
        handle.set_budget("4GiB")
        model.zero_grad()
        small.train(model, 4)
        assert handle.stats()["failures"] == 0


def test_switched_off_it_does_nothing(monkeypatch):
    import subprocess
    import sys

    here = str(pathlib.Path(__file__).resolve().parent)
    code = (
        f"import sys; sys.path.insert(0, {here!r});"
        "import small, pudica; m = small.make(); h = pudica.attach(m, '1KiB');"
        "small.train(m, 2); print(h.stats()['state'], len(m.blocks[0]._forward_hooks)); h.detach()"
    )
    monkeypatch.setenv("PUDICA_DISABLE", "1")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["disabled", "0"]


def test_nothing_is_printed(capfd):
    model = small.make()
    with pudica.attach(model, 200_000):
        small.train(model, 6)
    out, error = capfd.readouterr()
    assert out == "" and error == ""


def test_frames_die_with_their_graphs():
    from pudica import _rerun

    model = small.make()
    with pudica.attach(model, 400_000):
        small.train(model, 8)
        ids = small.batch(0, 64)
        for _ in range(3):
            model(ids)  # a forward that nobody goes back through
        gc.collect()
        assert _rerun.live_calls() == 0
    assert _native.ops.bytes_in_use("cpu") >= 0


def test_two_models_train_side_by_side(plain):
    first, second = small.make(), small.make(seed=5)
    alone = small.make(seed=5)
    small.train(alone, 14)
    with pudica.attach(first, 2_000_000) as one, pudica.attach(second, 1_500_000) as two:
        small.train(first, 14)
        small.train(second, 14)
        assert one.stats()["steps"] == two.stats()["steps"] == 14
    assert small.same(plain, first) and small.same(alone, second)


def test_a_model_that_was_trained_is_freed(tmp_path):
    def once():
        model = small.make()
        with pudica.attach(model, 1_500_000):
            small.train(model, 4)
        return weakref.ref(model.blocks[0].up.weight)

    weight = once()
    gc.collect()
    assert weight() is None
    before = _native.ops.bytes_in_use("cpu")
    once()
    gc.collect()
    assert _native.ops.bytes_in_use("cpu") == before
