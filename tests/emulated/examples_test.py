"""The examples train on a device, under their budgets, as users start them there."""

import importlib.util
import re
import sys

import pytest

from emulated_run import ROOT, emulated


def on_device(folder, name, *arguments):
    for package in ("transformers", "accelerate", "lightning"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    done = emulated(
        sys.executable, "-W", "ignore", ROOT / "examples" / name, "--device", "cuda", "--steps",
        "40", *arguments, cwd=folder, PUDICA_SOCKET=str(folder / "no-daemon.sock"))
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_trainer_stays_within_its_budget_by_recomputing(tmp_path):
    said = on_device(tmp_path, "finetune_trainer.py", "--budget", "120MiB", "--output", "out")
    numbers = re.search(r"(\d+) steps, highest peak ([\d.]+) MiB of 120.0, (\d+) overruns, "
                        r"(\d+) of 160 layer calls recomputed", said)
    assert numbers, said
    steps, peak, overruns, recomputed = map(float, numbers.groups())
    assert (steps, overruns) == (40, 0)
    assert recomputed > 0  # without it the longest lines need more than there is
    assert peak <= 120


@pytest.mark.parametrize("name, arguments", [
    ("finetune_lightning.py", ["--budget", "120MiB", "--output", "out"]),
    ("train_loop.py", ["--budget", "90MiB"]),
])
def test_the_others_recompute_there(name, arguments, tmp_path):
    said = on_device(tmp_path, name, *arguments)
    # By the plan's words or, where the last step was still learning, by what it did.
    assert re.search(r"[1-9]\d* of \d layers recomputed|[1-9]\d* recomputed in part"
                     r"|'recomputed_layers': [1-9]", said), said
