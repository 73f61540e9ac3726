"""Completion scripts: valid for their shells, and what each of these offers by them."""

import os
import re
import shutil
import socket
import subprocess
import time

import pytest

from conftest import ROOT, Cli, a_run
from shells import SHELLS, complete, program_of


def script(shell):
    output = Cli()("completion", shell)
    assert output.code == 0
    return output.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_accepts_its_script(shell, tmp_path):
    program, needed = program_of(shell)
    file = tmp_path / "script"
    file.write_text(script(shell))
    variables = {**os.environ, **(needed if isinstance(needed, dict) else {})}
    done = subprocess.run([program, "-n", str(file)], capture_output=True, text=True,
                          env=variables)
    assert done.returncode == 0 and done.stderr == "", done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_completed(shell):
    text = script(shell)
    for line in Cli()("--help").stdout.split("Subcommands:\n")[1].splitlines():
        if line.startswith("  "):
            assert line.split()[0] in text


@pytest.fixture
def offered(tmp_path):
    """offered(shell, words, environment): what the shell offers for the last word."""
    count = iter(range(1000))
    return lambda shell, words, environment: complete(shell, words, environment,
                                                      tmp_path / f"shell{next(count)}")


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_options_and_runs_are_offered(cli, daemon, offered, shell):
    daemon.runs = [a_run(), a_run(id="zz9", name="eval")]

    def offers(*words):
        return offered(shell, words, cli.environment)

    assert offers("st") == ["status"]
    assert offers("re") == ["rehearse", "replay", "report"]
    assert {"--json", "--socket", "--version"} <= set(offers("--"))
    status, plans = offers("status", "--"), offers("plans", "--")
    assert "--all" in status and "--all" not in plans
    assert {"--json", "--socket", "--format"} <= set(status) & set(plans), "those of every command"
    assert set(offers("status", "")) >= {"k3v9q2", "train", "zz9", "eval"}
    assert offers("--json", "budget", "ev") == ["eval"]
    assert offers("config", "ch") == ["check"]
    assert offers("models", "r") == ["rm"]
    assert "--help" in offers("models", "--")
    assert offers("completion", "b") == ["bash"]
    assert offers("replay", "--device", "cu") == ["cuda"]
    assert offers("rehearse", "--device", "H") == ["H100", "H200"]
    assert offers("status", "--socket", "/nonexistent-") == []
    assert offers("run", "--", "st") == []


def test_a_daemon_that_hangs_holds_no_completion_up(folder, offered):
    hung = socket.socket(socket.AF_UNIX)
    path = str(folder / "hung.sock")
    hung.bind(path)
    hung.listen(64)
    began = time.monotonic()
    assert offered("bash", ["status", "--a"], {"PUDICA_SOCKET": path}) == ["--all"]
    assert time.monotonic() - began < 5, "it waits 200 ms, and took 30 s"
    hung.close()


@pytest.mark.parametrize("shell", SHELLS)
def test_files_are_offered_where_files_belong(cli, offered, shell):
    (found,) = offered(shell, ["replay", str(ROOT / "CHANGE")], cli.environment)
    assert found.endswith("CHANGELOG.md")


@pytest.mark.parametrize("shell", SHELLS)
def test_names_cannot_run_commands_in_the_shell(cli, daemon, offered, tmp_path, shell):
    mark = tmp_path / "mark"
    daemon.runs = [a_run(name=f"$(touch {mark})`touch {mark}`(touch {mark})")]
    offered(shell, ["status", ""], cli.environment)
    offered(shell, ["status", "$"], cli.environment)
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
