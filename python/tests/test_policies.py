"""attach(policy=...): rivals plan users' models, with the same bits, and hold what they hold."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import pytest
import small
import torch
import training_support as support
from budgets import Course, Training
from torch import nn

import pudica

STEPS = 14
WARMUP = 4
# Each policy that attach() takes, and options of those that have some.
SPECS = [
    *(name for name in pudica.policies() if name != "mimose"),
    "every_n:n=3", f"mimose:warmup={WARMUP}", f"mimose:warmup={WARMUP}:rule=code",
    "pudica:menu=keep+full",
]
MODELS = ("bert", "gpt2", "t5", "vit")  # an encoder, a decoder, both, and no text


def batch_of(name: str, k: int) -> dict[str, torch.Tensor]:
    """The k-th batch of a run: lengths vary, of images their number."""
    import zoo

    drawn = torch.Generator().manual_seed(1000 + k)

    def words(length: int) -> torch.Tensor:
        return torch.randint(3, zoo.VOCABULARY, (3, length), generator=drawn)

    length = int(torch.randint(6, 60, (), generator=drawn)) if k else 60
    if name == "vit":
        rows = 1 + length // 8
        return {"pixel_values": torch.randn(rows, 3, 16, 16, generator=drawn),
                "labels": torch.randint(0, 3, (rows,), generator=drawn)}
    return {"input_ids": words(length), "labels": words(length // 2 if name == "t5" else length)}


def training(name: str) -> Training:
    def make() -> nn.Module:
        import zoo

        return zoo.build(name)[0]

    def step(model: nn.Module, k: int) -> None:
        torch.manual_seed(50 + k)
        model(**batch_of(name, k)).loss.backward()

    return Training(make, step, STEPS)


@functools.cache
def ends(name: str) -> tuple[int, int, str]:
    """Floor, keep-all, and the bits of the model trained without pudica."""
    one = training(name)
    one.plain()  # the first T5 of a process differs from later ones
    floor, keep_all, _ = one.ends()
    assert floor < 0.8 * keep_all
    return floor, keep_all, one.plain()


@functools.cache
def run(name: str, spec: str) -> tuple[int, Course]:
    floor, keep_all, _ = ends(name)
    budget = (floor + keep_all) // 2
    return budget, training(name).run(budget, spec)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", MODELS)
def test_every_policy_leaves_the_bits_as_they_are(name: str, spec: str) -> None:
    pytest.importorskip("transformers")
    _, course = run(name, spec)
    assert course.bits == ends(name)[2]
    assert course.stats["policy"] == spec and course.stats["failures"] == 0
    assert course.stats["unplanned_steps"] == 0
    assert {plan["policy"] for plan in course.plans} <= {spec}
    policy = spec.split(":")[0]
    if policy != "pudica":
        assert {plan["key"] for plan in course.plans} == {step["shape"] for step in course.steps}
        assert all(plan["reason"].startswith(f"policy {policy}") for plan in course.plans)


@pytest.mark.parametrize("name", MODELS)
def test_what_fixed_policies_recompute(name: str) -> None:
    pytest.importorskip("transformers")
    kept = run(name, "none")[1]
    calls = kept.steps[0]["layer_calls"]
    assert calls > 0 and kept.stats["recomputed_layers"] == 0
    # The first call of each class is kept, to try whether it can be run again.
    for spec, recomputed in (("full", calls), ("every_n", -(-calls // 2)),
                             ("every_n:n=3", -(-calls // 3))):
        seen = {step["recomputed_layers"] for step in run(name, spec)[1].steps[1:]}
        assert seen == {recomputed}, spec
    whole = {step["recomputed_calls"] for step in run(name, "sqrt")[1].steps[1:]}
    assert whole == {calls}


@pytest.mark.parametrize("name", MODELS)
def test_reactive_holds_the_budget_by_giving_back(name: str) -> None:
    pytest.importorskip("transformers")
    budget, course = run(name, "reactive")
    assert course.stats["overruns"] == 0 and not course.over(budget)
    assert course.stats["revocations"] > 0
    spared = [step for step in course.steps[1:] if step["recomputed_layers"] == 0]
    assert spared and max(step["peak_bytes"] for step in spared) <= budget


@pytest.mark.parametrize("name", [name for name in MODELS if name != "vit"])
def test_mimose_recomputes_all_to_learn_and_then_what_a_length_needs(name: str) -> None:
    pytest.importorskip("transformers")
    _, course = run(name, f"mimose:warmup={WARMUP}")
    calls = course.steps[0]["layer_calls"]
    warm, planned = course.steps[1:WARMUP], course.steps[WARMUP:]
    assert {step["recomputed_layers"] for step in warm} == {calls}
    by_length = sorted(planned, key=lambda step: int(step["shape"].split("=")[-1]))
    assert by_length[0]["recomputed_layers"] == 0
    assert 0 < by_length[-1]["recomputed_layers"] <= calls
    assert all("rule paper" in step["reason"] for step in planned)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("mimoze", "unknown policy 'mimoze'; expected none, full.*; did you mean 'mimose'"),
        ("mimose:rul=code", "policy 'mimose': unknown option 'rul=code'.* did you mean 'rule'"),
        ("every_n:n=0", "option 'n' is '0'; expected a whole number of at least 1"),
        ("full:n=2", "policy 'full': unknown option 'n=2'; it takes no options"),
        ("", "unknown policy ''"),
        ("static", "policy 'static' needs the costs .*attach.. measures none beforehand; expected "
                   "one of none, full, .*pudica"),
    ],
)
def test_a_policy_that_cannot_be(policy: str, words: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(pudica.AttachError, match=words):
        pudica.attach(small.make(), "1GiB", policy=policy, daemon=False)
    config = support.config_file(tmp_path, policy=policy)
    with pytest.raises(pudica.ConfigError):
        pudica.attach(small.make(), "1GiB", config=config, daemon=False)


def test_a_policy_that_is_no_text() -> None:
    wrong: Any = 3
    with pytest.raises(pudica.AttachError, match="policy is 3; expected None or one of none, full"):
        pudica.attach(small.make(), "1GiB", policy=wrong, daemon=False)


def test_policies_with_costs_measured_beforehand_are_not_offered() -> None:
    assert "pudica" in pudica.policies() and "mimose" in pudica.policies()
    assert "static" not in pudica.policies()


def test_the_argument_wins_over_the_configuration(tmp_path: pathlib.Path) -> None:
    config = support.config_file(tmp_path, policy="full")
    for policy, expected in ((None, "full"), ("reactive", "reactive")):
        with pudica.attach(small.make(), "1GiB", config=config, policy=policy) as handle:
            assert handle.stats()["policy"] == expected
            assert f"policy {expected}" in repr(handle)
    with pudica.attach(small.make(), "1GiB") as handle:
        assert handle.stats()["policy"] == "pudica" and "policy" not in repr(handle)


def test_what_a_rival_cannot_answer_names_it() -> None:
    with pudica.attach(small.make(), "1GiB", policy="sqrt", daemon=False) as handle:
        with pytest.raises(pudica.NotLearnedError, match="policy 'sqrt' learns nothing that can"):
            handle.explain((4, 64))


def test_callbacks_take_a_policy() -> None:
    pytest.importorskip("transformers")
    import pudica.transformers

    model = small.make()
    callback = pudica.transformers.PudicaCallback("1GiB", policy="every_n", daemon=False)
    callback.session.begin(model)
    small.train(model, 3)
    callback.session.end()
    assert callback.handle.stats()["policy"] == "every_n"
    assert callback.handle.stats()["recomputed_layers"] > 0


def test_lightning_s_callback_takes_a_policy() -> None:
    pytest.importorskip("lightning")
    from pudica.lightning import PudicaCallback

    model = small.make()
    callback = PudicaCallback("1GiB", policy="full", daemon=False)
    callback.session.begin(model)
    callback.session.end()
    assert callback.handle.stats()["policy"] == "full"
