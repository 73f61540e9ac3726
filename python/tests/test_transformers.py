"""The callback for Hugging Face's Trainer, on a real Trainer."""

from __future__ import annotations

import gc
import json
import logging
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import pytest
import training_support as support

transformers = pytest.importorskip("transformers", reason="Hugging Face transformers is missing")
pytest.importorskip("accelerate", reason="Trainer needs accelerate, which is missing")

import pudica  # noqa: E402  (after the skips)
import pudica.transformers as under_test  # noqa: E402
from pudica._checkpointing import RunOnce  # noqa: E402


def make_trainer(folder: pathlib.Path, steps: int = 6, **arguments: Any) -> Any:
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": steps,
        "logging_steps": 2, "save_strategy": "no", "report_to": [], "use_cpu": True,
        "disable_tqdm": True, "seed": 5, "learning_rate": 1e-3, "dataloader_num_workers": 0,
    }
    settings.update(arguments)
    trainer = transformers.Trainer(
        model=support.bert(),
        args=transformers.TrainingArguments(output_dir=str(folder / "out"), **settings),
        train_dataset=support.Sentences(4 * steps),
        eval_dataset=support.Sentences(6, seed=2),
        data_collator=support.collate,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def train(trainer: Any, **attach: Any) -> under_test.PudicaCallback | None:
    callback = under_test.install(trainer, daemon=False, **attach) if attach else None
    trainer.train()
    return callback


def stats_of(callback: under_test.PudicaCallback | None) -> dict[str, Any]:
    assert callback is not None
    stats: dict[str, Any] = callback.handle.stats()
    return stats


def middle(folder: pathlib.Path, **arguments: Any) -> tuple[int, int, int]:
    def run(budget: int, config: str | None) -> list[dict[str, Any]]:
        trainer = make_trainer(folder, **arguments)
        callback = under_test.install(trainer, budget, config=config, daemon=False)
        steps = support.watch(callback.session)
        trainer.train()
        return steps

    return support.middle_budget(folder, run)


EVAL_AND_SAVE = {"eval_strategy": "steps", "eval_steps": 4, "save_strategy": "steps",
                 "save_steps": 5}


def checkpoint_keys(folder: pathlib.Path) -> dict[str, Any]:
    from safetensors import safe_open

    found: dict[str, Any] = {}
    for checkpoint in sorted((folder / "out").glob("checkpoint-*")):
        with safe_open(str(checkpoint / "model.safetensors"), "pt") as weights:
            found[checkpoint.name] = (
                sorted(weights.keys()),
                sorted(p.name for p in checkpoint.iterdir() if p.name != "pudica.json"),
            )
    return found


def test_parameters_are_bit_equal_under_a_budget_at_the_middle(tmp_path: pathlib.Path) -> None:
    steps = 40  # of two forwards each, of many lengths
    floor, budget, keep_all = middle(tmp_path, steps=steps)
    plain = make_trainer(tmp_path / "plain", steps=steps, **EVAL_AND_SAVE)
    train(plain)
    expected, expected_keys = support.digest(plain.model), checkpoint_keys(tmp_path / "plain")
    del plain
    gc.collect()
    trainer = make_trainer(tmp_path / "pudica", steps=steps, **EVAL_AND_SAVE)
    stats = stats_of(train(trainer, budget=budget, enforce="hard"))
    assert stats["failures"] == 0 and stats["overruns"] == 0
    assert stats["steps"] == 2 * steps
    assert floor < stats["highest_peak_bytes"] <= budget < keep_all
    assert 0 < stats["recomputed_layers"] < stats["layer_calls"]
    assert stats["recomputed_layers"] <= stats["recomputed_calls"] < stats["layer_calls"]
    assert 0 < stats["recompute_seconds"] < stats["step_seconds"]
    assert support.digest(trainer.model) == expected
    assert checkpoint_keys(tmp_path / "pudica") == expected_keys and expected_keys


def test_numbers_reach_every_logger(tmp_path: pathlib.Path) -> None:
    seen: list[dict[str, Any]] = []

    class Logger(transformers.TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            seen.append(dict(logs))

    trainer = make_trainer(tmp_path, steps=8, **EVAL_AND_SAVE)
    trainer.add_callback(Logger())
    train(trainer, budget="1 GiB")
    names = {"pudica/memory_of_budget", "pudica/recomputed", "pudica/recomputed_calls",
             "pudica/headroom_mib"}
    lines = [line for line in seen if "loss" in line]
    assert len(lines) == 4
    for line in lines:
        assert names <= line.keys()
        assert 0 < line["pudica/memory_of_budget"] <= 1 and 0 <= line["pudica/recomputed"] <= 1
    assert lines[0]["pudica/recomputed_calls"] > 0  # a layer of the class, to learn the menu
    assert not any(names & line.keys() for line in seen if "eval_loss" in line)
    history = [line for line in trainer.state.log_history if "loss" in line]
    assert all(names <= line.keys() for line in history)


def test_the_headroom_is_what_keeping_all_would_have_taken(tmp_path: pathlib.Path) -> None:
    floor, budget, keep_all = middle(tmp_path, steps=12)
    trainer = make_trainer(tmp_path, steps=12)
    train(trainer, budget=budget)
    logged = [line["pudica/headroom_mib"] for line in trainer.state.log_history if "loss" in line]
    assert 0 < max(logged) <= 1.1 * (keep_all - floor) / 2**20


def test_a_plain_callback_reaches_the_history(tmp_path: pathlib.Path) -> None:
    trainer = make_trainer(tmp_path, steps=2)
    trainer.add_callback(under_test.PudicaCallback("1 GiB", daemon=False))
    trainer.train()
    assert "pudica/recomputed" in trainer.state.log_history[0]


def test_the_progress_bar_shows_them(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = make_trainer(tmp_path, steps=4, disable_tqdm=False)
    train(trainer, budget="1 GiB")
    shown = capsys.readouterr()
    assert "pudica/memory_of_budget" in shown.out + shown.err
    assert "recomputed=" in shown.err


def test_detaches_at_the_end(tmp_path: pathlib.Path) -> None:
    trainer = make_trainer(tmp_path, steps=2)
    hooks = [len(m._forward_hooks) for m in trainer.model.modules()]
    callback = train(trainer, budget="1 GiB")
    assert callback is not None and not callback.handle.attached
    assert [len(m._forward_hooks) for m in trainer.model.modules()] == hooks


def test_a_run_that_threw_is_cleared_up_by_the_next(tmp_path: pathlib.Path) -> None:
    class Thrower(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            raise ZeroDivisionError

    first = make_trainer(tmp_path, steps=2)
    first.add_callback(Thrower())
    with pytest.raises(ZeroDivisionError):
        train(first, budget="1 GiB")
    second = make_trainer(tmp_path, steps=2)
    second.model = second.model_wrapped = first.model
    callback = train(second, budget="1 GiB")
    assert stats_of(callback)["steps"] == 4


def test_resume_restores_the_learned_model(tmp_path: pathlib.Path) -> None:
    whole = make_trainer(tmp_path / "whole", steps=10)
    train(whole)
    expected = support.digest(whole.model)
    trainer = make_trainer(tmp_path, steps=10, save_strategy="steps", save_steps=6)
    train(trainer, budget="1 GiB")
    saved = tmp_path / "out" / "checkpoint-6" / "pudica.json"
    assert json.loads(saved.read_text())["schema"] == "pudica.python-state/1"

    resumed = make_trainer(tmp_path, steps=10)
    callback = under_test.install(resumed, budget="1 GiB", daemon=False)
    steps = support.watch(callback.session)
    resumed.train(resume_from_checkpoint=str(saved.parent))
    assert stats_of(callback)["steps"] == 8
    assert steps[0]["predicted_peak_bytes"] and not steps[0]["learning"]
    assert support.digest(resumed.model) == expected


@pytest.mark.parametrize("how", ["argument", "option"])
def test_resume_from_a_folder_elsewhere(tmp_path: pathlib.Path, how: str) -> None:
    trainer = make_trainer(tmp_path / "a", steps=8, save_strategy="steps", save_steps=6)
    train(trainer, budget="1 GiB")
    folder = str(tmp_path / "a" / "out" / "checkpoint-6")
    arguments = {"resume_from_checkpoint": folder} if how == "argument" else {}
    resumed = make_trainer(tmp_path / "b", steps=8, **arguments)
    options = {"resume_from": folder} if how == "option" else {}
    callback = under_test.install(resumed, budget="1 GiB", daemon=False, **options)
    resumed.train(resume_from_checkpoint=folder)
    assert stats_of(callback)["learning_steps"] == 0


def test_a_damaged_learned_model_is_left(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = make_trainer(tmp_path, steps=4, save_strategy="steps", save_steps=2)
    train(trainer, budget="1 GiB")
    checkpoint = tmp_path / "out" / "checkpoint-2"
    (checkpoint / "pudica.json").write_text('{"schema": "another"}')
    resumed = make_trainer(tmp_path, steps=4)
    callback = under_test.install(resumed, budget="1 GiB", daemon=False)
    with caplog.at_level(logging.WARNING, logger="pudica"):
        resumed.train(resume_from_checkpoint=str(checkpoint))
    assert stats_of(callback)["steps"] == 4
    assert sum("is not used" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("every", [1, 2])
def test_gradient_checkpointing_is_taken_over_and_said_once(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, every: int
) -> None:
    plain = make_trainer(tmp_path, steps=4)
    train(plain)
    trainer = make_trainer(
        tmp_path, steps=4, gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"every_n_layers": every},
    )
    taken: list[bool] = []

    class Watch(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
            taken.append(all(isinstance(la._gradient_checkpointing_func, RunOnce)
                             for la in model.bert.encoder.layer if la.gradient_checkpointing))

    trainer.add_callback(Watch())
    with caplog.at_level(logging.WARNING, logger="pudica"):
        train(trainer, budget="1 GiB")
    assert taken == [True] * 4
    assert sum("pudica takes over" in record.message for record in caplog.records) == 1
    layers = trainer.model.bert.encoder.layer
    assert [la.gradient_checkpointing for la in layers] == [k % every == 0 for k in range(4)]
    assert not any(isinstance(la._gradient_checkpointing_func, RunOnce) for la in layers)
    assert support.digest(trainer.model) == support.digest(plain.model)


def test_refuses_what_it_cannot_plan(tmp_path: pathlib.Path) -> None:
    trainer = make_trainer(tmp_path, steps=2)
    under_test.install(trainer, budget="1 GiB", daemon=False)
    with pytest.raises(pudica.AttachError, match="already"):
        under_test.install(trainer, budget="1 GiB")
    trainer.args.torch_compile = True
    with pytest.raises(pudica.AttachError, match="torch_compile"):
        trainer.train()
    trainer.args.torch_compile = False
    trainer.args._n_gpu = 2
    with pytest.raises(pudica.AttachError, match="torchrun"):
        under_test._check(trainer.args)


def test_a_wrong_budget_is_said_when_training_begins(tmp_path: pathlib.Path) -> None:
    trainer = make_trainer(tmp_path, steps=2)
    with pytest.raises(pudica.BudgetError, match="lightyears"):
        train(trainer, budget="20 lightyears")


def test_the_callback_can_be_pickled(tmp_path: pathlib.Path) -> None:
    trainer = make_trainer(tmp_path, steps=2)
    callback = train(trainer, budget="1 GiB")
    assert pickle.loads(pickle.dumps(callback)).handle is None


def test_says_what_is_missing() -> None:
    program = "import sys; sys.modules['transformers'] = None; import pudica.transformers"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pudica.transformers needs" in done.stderr and "pip install" in done.stderr
