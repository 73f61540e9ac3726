"""The callback for Lightning, on a real Trainer of each package that is installed."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import logging
import pathlib
import subprocess
import sys
from typing import Any

import pytest
import torch
import training_support as support

pytest.importorskip("transformers", reason="Hugging Face transformers is missing")
lightning_name = next(
    (n for n in ("lightning", "pytorch_lightning") if importlib.util.find_spec(n)), None)
if lightning_name is None:
    pytest.skip("neither lightning nor pytorch_lightning is installed", allow_module_level=True)
pl: Any = importlib.import_module(
    "lightning.pytorch" if lightning_name == "lightning" else lightning_name)

import pudica  # noqa: E402  (after the skips)
import pudica.lightning as under_test  # noqa: E402

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
pytestmark = pytest.mark.filterwarnings("ignore")


class Module(pl.LightningModule):  # type: ignore[misc]
    def __init__(self, manual: bool = False, checkpointing: bool = False) -> None:
        super().__init__()
        self.net = support.bert()
        if checkpointing:
            self.net.gradient_checkpointing_enable()
        self.automatic_optimization = not manual

    def training_step(self, batch: Any, index: int) -> Any:
        loss = self.net(**batch).loss
        if self.automatic_optimization:
            return loss
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return None

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val", self.net(**batch).loss)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), 1e-3)


def loader(count: int, batch: int = 2, seed: int = 1) -> Any:
    return torch.utils.data.DataLoader(
        support.Sentences(count, seed=seed), batch, collate_fn=support.collate)


class Fit:
    """One fit; what it left."""

    def __init__(
        self, folder: pathlib.Path, callback: Any = None, steps: int = 4, manual: bool = False,
        accumulate: int = 1, resume: str | None = None, checkpointing: bool = False,
        extra: Any = (), package: Any = None, **arguments: Any,
    ) -> None:
        package = package or pl
        package.seed_everything(3, verbose=False)
        self.module = Module(manual, checkpointing)
        saver = package.callbacks.ModelCheckpoint(
            dirpath=folder / "saved", every_n_train_steps=2, save_top_k=-1)
        settings: dict[str, Any] = {
            "val_check_interval": 2 * accumulate, "limit_val_batches": 1, "log_every_n_steps": 1,
            "num_sanity_val_steps": 1, "enable_progress_bar": False, "precision": "32-true",
        }
        settings.update(arguments)
        self.trainer = package.Trainer(
            max_steps=steps, accelerator="cpu", devices=1, enable_model_summary=False,
            logger=package.loggers.CSVLogger(str(folder)), accumulate_grad_batches=accumulate,
            callbacks=[*([callback] if callback else []), *extra, saver], **settings)
        self.trainer.fit(
            self.module, loader(2 * steps * accumulate), loader(2, seed=2), ckpt_path=resume)
        self.digest = support.digest(self.module)
        self.saved = {p.name: p for p in sorted((folder / "saved").glob("*.ckpt"))}


def callback(budget: Any = "1 GiB", **options: Any) -> Any:
    return under_test.PudicaCallback(budget, daemon=False, **options)


def middle(folder: pathlib.Path, **arguments: Any) -> tuple[int, int, int]:
    def run(budget: int, config: str | None) -> list[dict[str, Any]]:
        with_pudica = callback(budget, config=config)
        steps = support.watch(with_pudica.session)
        Fit(folder / "measure", with_pudica, **arguments)
        return steps

    return support.middle_budget(folder, run)


def keys(path: pathlib.Path) -> list[str]:
    return list(torch.load(path, weights_only=False)["state_dict"])


def test_parameters_are_bit_equal_under_a_budget_at_the_middle(tmp_path: pathlib.Path) -> None:
    floor, budget, keep_all = middle(tmp_path, steps=30, accumulate=2)
    plain = Fit(tmp_path / "plain", steps=30, accumulate=2)
    expected, names = plain.digest, sorted(plain.saved)
    expected_keys = keys(plain.saved[names[0]])
    del plain
    gc.collect()
    with_pudica = callback(budget, enforce="hard")
    fit = Fit(tmp_path / "pudica", with_pudica, steps=30, accumulate=2)
    stats = with_pudica.handle.stats()
    assert stats["failures"] == 0 and stats["overruns"] == 0
    assert stats["steps"] == 60
    assert floor < stats["highest_peak_bytes"] <= budget < keep_all
    assert 0 < stats["recomputed_layers"] < stats["layer_calls"]
    assert fit.digest == expected
    assert sorted(fit.saved) == names and keys(fit.saved[names[0]]) == expected_keys
    assert not with_pudica.handle.attached


@pytest.mark.parametrize("arguments", [{"manual": True}, {"precision": "bf16-mixed"}])
def test_bit_equal_in_other_ways_to_train(tmp_path: pathlib.Path, arguments: Any) -> None:
    plain = Fit(tmp_path / "plain", **arguments).digest
    everything = callback(config=support.config_file(tmp_path, policy="full"))
    assert Fit(tmp_path / "pudica", everything, **arguments).digest == plain
    stats = everything.handle.stats()
    assert stats["recomputed_layers"] >= 12 and stats["failures"] == 0


def test_numbers_in_the_logger_and_the_progress_bar(tmp_path: pathlib.Path) -> None:
    fit = Fit(tmp_path, callback())
    names = {"pudica/memory_of_budget", "pudica/recomputed", "pudica/recomputed_calls",
             "pudica/headroom_mib"}
    assert names <= set(fit.trainer.logged_metrics)
    assert names <= set(fit.trainer.progress_bar_metrics)
    table = next(tmp_path.rglob("metrics.csv")).read_text().splitlines()
    assert names <= set(table[0].split(","))


def test_resume_restores_the_learned_model(tmp_path: pathlib.Path) -> None:
    first = Fit(tmp_path / "a", callback(), steps=8)
    checkpoint = next(str(path) for name, path in first.saved.items() if "step=6" in name)
    expected = Fit(tmp_path / "plain", steps=8, resume=checkpoint).digest
    resumed = callback()
    fit = Fit(tmp_path / "b", resumed, steps=8, resume=checkpoint)
    stats = resumed.handle.stats()
    assert stats["steps"] == 2 and stats["learning_steps"] == 0
    assert fit.digest == expected


def test_gradient_checkpointing_is_taken_over_and_said_once(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = Fit(tmp_path / "plain", steps=2).digest
    with caplog.at_level(logging.WARNING, logger="pudica"):
        fit = Fit(tmp_path / "pudica", callback(), steps=2, checkpointing=True)
    assert sum("pudica takes over" in record.message for record in caplog.records) == 1
    assert fit.digest == plain
    assert all(la.gradient_checkpointing for la in fit.module.net.bert.encoder.layer)


def test_detaches_after_an_exception(tmp_path: pathlib.Path) -> None:
    class Thrower(pl.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, *unused: Any) -> None:
            raise ZeroDivisionError

    with_pudica = callback()
    with pytest.raises(ZeroDivisionError):
        Fit(tmp_path, with_pudica, extra=[Thrower()])
    assert not with_pudica.handle.attached


def test_refusals_are_raised_when_fitting_begins(tmp_path: pathlib.Path) -> None:
    with pytest.raises(pudica.AttachError, match="no_such_layer"):
        Fit(tmp_path, callback(layers="no_such_layer"))


def test_the_other_package(tmp_path: pathlib.Path) -> None:
    if lightning_name != "lightning" or not importlib.util.find_spec("pytorch_lightning"):
        pytest.skip("only one of lightning and pytorch_lightning is installed")
    program = (
        "import sys, pathlib; import pytorch_lightning; sys.modules['lightning'] = None\n"
        "import pudica.lightning\n"
        "assert issubclass(pudica.lightning.PudicaCallback, pytorch_lightning.Callback)\n"
        "import test_lightning as t\n"
        "with_pudica = t.callback()\n"
        "t.Fit(pathlib.Path(sys.argv[1]), with_pudica, steps=2)\n"
        "assert with_pudica.handle.stats()['steps'] == 2\n"
    )
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)], check=True,
        cwd=pathlib.Path(__file__).parent)


def test_says_what_is_missing() -> None:
    program = (
        "import sys; sys.modules['lightning'] = sys.modules['pytorch_lightning'] = None\n"
        "sys.modules['lightning.pytorch'] = None\n"
        "import pudica.lightning\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert "neither is installed: pip install lightning" in done.stderr
