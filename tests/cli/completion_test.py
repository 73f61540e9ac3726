"""Completion scripts: valid for their shells, and right in bash."""

import os
import re
import shutil
import socket
import subprocess
import time

import pytest

from conftest import PROGRAM, ROOT, Cli, a_run, clean_environment


def script(shell):
    output = Cli()("completion", shell)
    assert output.code == 0
    return output.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_accepts_its_script(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    file = tmp_path / "script"
    file.write_text(script(shell))
    done = subprocess.run([shell, "-n", str(file)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_is_completed(shell):
    text = script(shell)
    for line in Cli()("--help").stdout.split("Subcommands:\n")[1].splitlines():
        if line.startswith("  "):
            assert line.split()[0] in text


def complete(words, environment):
    """What bash offers for the last of the words."""
    program = """
source <("$PROGRAM" completion bash)
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_pudica
printf '%s\\n' "${COMPREPLY[@]}"
"""
    done = subprocess.run(["bash", "-c", program, "bash", "pudica", *words], capture_output=True,
                          text=True, env=clean_environment({
                              **environment, "PROGRAM": PROGRAM,
                              "PATH": os.path.dirname(PROGRAM) + ":" + os.environ["PATH"]}))
    assert done.stderr == "", done.stderr
    return done.stdout.split()


def test_bash_offers_commands_options_and_runs(cli, daemon):
    daemon.runs = [a_run(), a_run(id="zz9", name="eval")]
    env = cli.environment
    assert complete(["st"], env) == ["status"]
    assert set(complete(["re"], env)) == {"rehearse", "replay", "report"}
    assert "--all" in complete(["status", "--"], env)
    assert "--all" not in complete(["plans", "--"], env)
    assert set(complete(["status", ""], env)) >= {"k3v9q2", "train", "zz9", "eval"}
    assert complete(["--json", "budget", "ev"], env) == ["eval"]
    assert complete(["config", "ch"], env) == ["check"]
    assert complete(["models", "r"], env) == ["rm"]
    assert "--help" in complete(["models", "--"], env)
    assert complete(["completion", "b"], env) == ["bash"]
    assert complete(["replay", "--device", "cu"], env) == ["cuda"]
    assert complete(["rehearse", "--device", "H"], env) == ["H100", "H200"]
    assert complete(["status", "--socket", "/nonexistent-"], env) == []
    assert complete(["run", "--", "st"], env) == []


def test_a_daemon_that_hangs_holds_no_completion_up(folder):
    hung = socket.socket(socket.AF_UNIX)
    path = str(folder / "hung.sock")
    hung.bind(path)
    hung.listen(64)
    began = time.monotonic()
    offered = complete(["status", "--a"], {"PUDICA_SOCKET": path})
    assert offered == ["--all"]
    assert time.monotonic() - began < 5, "it waits 200 ms, and took 30 s"
    hung.close()


def test_bash_offers_files_where_files_belong(cli):
    offered = complete(["replay", str(ROOT / "CHANGE")], cli.environment)
    assert offered == [str(ROOT / "CHANGELOG.md")]


def test_names_cannot_run_commands_in_the_shell(cli, daemon, tmp_path):
    mark = tmp_path / "mark"
    daemon.runs = [a_run(name=f"$(touch {mark})`touch {mark}`")]
    complete(["status", ""], cli.environment)
    assert not mark.exists()


@pytest.mark.parametrize("document", ["docs/man/pudica.1", "docs/cli.md"])
def test_the_documents_name_every_command_and_option(document):
    text = (ROOT / document).read_text().replace("\\-", "-")
    lines = script("fish").splitlines()
    commands = {re.search(r" -a (\S+) -d", line)[1] for line in lines if " -a " in line
                and " -d " in line and " -l " not in line}
    options = {"--" + re.search(r" -l (\S+)", line)[1] for line in lines if " -l " in line}
    assert {"status", "check", "completion"} <= commands and {"--json", "--policy"} <= options
    assert [name for name in commands | options if name not in text] == []


@pytest.mark.skipif(shutil.which("man") is None, reason="no man here")
@pytest.mark.parametrize("page, words", [
    ("pudica.1", "pudica - show and steer"), ("pudica-train.1", "pudica-train - train a small"),
    ("pudicad.8", "pudicad - "),
])
def test_the_man_page_has_no_warnings(page, words):
    done = subprocess.run(["man", "--warnings", "-l", str(ROOT / "docs/man" / page)],
                          capture_output=True, text=True, env={**os.environ, "MANWIDTH": "100",
                                                               "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert words in done.stdout
