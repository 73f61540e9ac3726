"""`pudica run -- python ...`: programs that know nothing of pudica."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
PROGRAM = pathlib.Path(
    os.environ.get("PUDICA_BUILD_BIN", HERE.parents[1] / "build/release/bin")) / "pudica"
SCRIPT = str(HERE / "automatic_programs.py")

if not PROGRAM.exists():
    pytest.skip(f"there is no {PROGRAM}", allow_module_level=True)


def environment(**changes: str) -> dict[str, str]:
    path = os.pathsep.join([str(HERE.parent), str(HERE)])
    return {**os.environ, "PYTHONPATH": path, "PUDICA_SOCKET": "/nonexistent", **changes}


def run(*words: str, python: tuple[str, ...] = (sys.executable,), options: tuple[str, ...] = (),
        **changes: str) -> subprocess.CompletedProcess[str]:
    """What `pudica run -- python automatic_programs.py WORDS` did, its own note on the daemon
    left out."""
    done = subprocess.run(
        [str(PROGRAM), "run", *options, "--", *python, SCRIPT, *words], text=True, timeout=300,
        capture_output=True, check=False, env=environment(**changes))
    said = [line for line in done.stderr.splitlines() if "without the daemon" not in line]
    done.stderr = "\n".join(line for line in said if line.startswith("pudica: "))
    return done


def unplanned(*words: str) -> str:
    return subprocess.run([sys.executable, SCRIPT, *words], text=True, capture_output=True,
                          check=True, env=environment()).stdout


@pytest.mark.parametrize("program", ["plain", "two_models", "inner_is_called", "compiled"])
def test_the_results_are_those_without(program: str) -> None:
    done = run(program, options=("--budget", "64MiB"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == unplanned(program)


def test_a_layer_that_raises_as_it_is_attached_trains_without() -> None:
    done = run("odd", options=("--budget", "64MiB"))
    assert done.returncode == 0
    assert done.stdout == unplanned("odd")
    assert "Net is not planned: KeyError: 'they are elsewhere'" in done.stderr


def test_one_line_says_what_was_attached() -> None:
    assert run("plain", options=("--budget", "64MiB")).stderr == (
        "pudica: attached to Net: 3 layers (TransformerEncoderLayer), budget 64.0 MiB")


@pytest.mark.parametrize("program", ["two_models", "inner_is_called"])
def test_each_model_has_its_own_handle(program: str) -> None:
    lines = run(program).stderr.splitlines()
    assert [line.split(" layers")[0] for line in lines] == [
        "pudica: attached to Net: 3", "pudica: attached to Net: 2"]


def test_an_attach_of_the_program_wins() -> None:
    done = run("own_attach", options=("--budget", "64MiB"))
    assert (done.returncode, done.stdout) == (0, f"{1 << 30}\n"), done.stderr


def test_processes_that_the_program_starts_attach_nothing() -> None:
    done = run("subprocess_of_it")
    assert done.returncode == 0 and done.stdout.splitlines()[1].endswith("''"), done.stdout
    assert done.stderr.count("attached to") == 1
    workers = run("loader")
    assert workers.returncode == 0 and workers.stderr.count("attached to") == 2  # two models
    assert "nothing was attached" not in workers.stderr


def test_a_compiled_model_is_left_alone_and_said() -> None:
    assert "Net is not planned: it runs under torch.compile" in run("compiled").stderr


def test_a_model_without_layers_is_said() -> None:
    assert "Linear is not planned: no layers found" in run("no_layers").stderr


def test_trainer_gets_its_callback(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("transformers")
    done = run("trainer", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "attached to BertForSequenceClassification: 2 layers (BertLayer)" in done.stderr
    assert done.stderr.count("attached") == 1


def test_lightning_gets_its_callback() -> None:
    pytest.importorskip("lightning")
    done = run("lightning")
    assert done.returncode == 0, done.stderr
    assert "attached to Module: 3 layers" in done.stderr and done.stderr.count("attached") == 1


def test_ranks_of_torchrun_attach_and_it_does_not() -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone",
                "--nproc-per-node", "2")
    done = run("rank", python=launcher)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("attached to DistributedDataParallel") == 2, done.stderr


def test_a_sitecustomize_of_the_users_runs_as_ever(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.theirs = __file__\n")
    code = "import sys, sitecustomize; print(sys.theirs == sitecustomize.__file__)"
    path = os.pathsep.join([str(tmp_path), str(HERE.parent)])
    done = subprocess.run([str(PROGRAM), "run", "--", sys.executable, "-c", code], text=True,
                          capture_output=True, check=True, env=environment(PYTHONPATH=path))
    assert done.stdout == "True\n"


@pytest.mark.parametrize("changes", [{}, {"PUDICA_ATTACH": "0"}])
def test_a_program_without_torch_imports_nothing(changes: dict[str, str]) -> None:
    code = ("import sys; "
            "print(sorted(m for m in sys.modules if m in ('pudica', 'torch', 'logging')))")
    done = subprocess.run([str(PROGRAM), "run", "--", sys.executable, "-c", code], text=True,
                          capture_output=True, check=True, env=environment(**changes))
    assert done.stdout == "[]\n"


def test_torch_alone_does_not_import_pudica() -> None:
    code = "import sys, torch; print('pudica' in sys.modules)"
    done = subprocess.run([str(PROGRAM), "run", "--", sys.executable, "-c", code], text=True,
                          capture_output=True, check=True, env=environment())
    assert done.stdout == "False\n"


def test_a_python_that_sees_no_path_is_said() -> None:
    done = subprocess.run([str(PROGRAM), "run", "--", sys.executable, "-Im", "site"], text=True,
                          capture_output=True, check=False, env=environment())
    assert "python -I looks at no PYTHONPATH" in done.stderr


def test_signals_and_exit_codes_are_the_commands() -> None:
    code = ("import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); "
            "print('ready', flush=True); signal.pause()")
    with subprocess.Popen([str(PROGRAM), "run", "--", sys.executable, "-c", code],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          env=environment()) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 9
