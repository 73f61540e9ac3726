"""The snippets of docs/python.md and the examples run as they are printed."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def need(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def snippets(text: str) -> list[tuple[int, str]]:
    """(line of its first line, code) of each block of Python."""
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in found]


@pytest.mark.filterwarnings("ignore")
def test_the_guide(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("transformers", "accelerate", "lightning")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PUDICA_SOCKET", str(tmp_path / "no-daemon.sock"))
    guide = ROOT / "docs" / "python.md"
    blocks = snippets(guide.read_text(encoding="utf-8"))
    assert len(blocks) >= 10
    session: dict[str, Any] = {"__name__": "guide"}
    for line, code in blocks:
        # Line numbers of a failure are those of the guide.
        exec(compile("\n" * (line - 1) + code, str(guide), "exec"), session)  # noqa: S102


EXAMPLES = {
    "train_loop.py": ["torch"],
    "finetune_trainer.py": ["transformers", "accelerate"],
    "finetune_lightning.py": ["transformers", "lightning"],
}


def test_every_example_is_run() -> None:
    assert sorted(path.name for path in (ROOT / "examples").glob("*.py")) == sorted(EXAMPLES)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_example(name: str, tmp_path: pathlib.Path) -> None:
    need(*EXAMPLES[name])
    path = ROOT / "examples" / name
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60
    output = [] if name == "train_loop.py" else ["--output", str(tmp_path / "out")]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PUDICA_SOCKET": str(tmp_path / "no")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(path), "--steps", "10", "--longest", "64",
         "--budget", "64MiB", *output],
        capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "MiB" in done.stdout
