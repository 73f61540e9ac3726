"""A Python process and the real daemon: registers by itself, and is steered."""

import json
import os
import pathlib
import socket as sockets
import subprocess

import pytest
import small
from waiting import wait_for

import pudica

BIN = pathlib.Path(os.environ.get("PUDICA_BUILD_BIN", "nowhere"))
DEADLINE_S = 20

pytestmark = pytest.mark.skipif(
    not (BIN / "pudicad").exists() or not (BIN / "pudica").exists(),
    reason="PUDICA_BUILD_BIN names no folder with pudicad and pudica",
)


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    socket = tmp_path / "private" / "pudicad.sock"
    process = subprocess.Popen(
        [BIN / "pudicad", "--socket", socket, "--database", tmp_path / "runs.db"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    monkeypatch.setenv("PUDICA_SOCKET", str(socket))
    wait_for("the daemon's socket", socket.exists)
    yield socket
    process.terminate()
    process.wait(DEADLINE_S)


def run(*words):
    return subprocess.run([BIN / "pudica", *words], capture_output=True, text=True, check=False)


def ask(*words):
    done = run(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_status_explain_and_budget_work_on_a_python_run(daemon):
    model = small.make()
    with pudica.attach(model, "4GiB", name="mine") as handle:
        wait_for("the registration", lambda: handle.stats()["daemon"]["registered"])
        optimizer = small.train(model, 12)
        runs = wait_for(
            "the first step",
            lambda: [r for r in json.loads(ask("status", "--json"))["runs"] if r["step"]],
        )
        assert runs[0]["name"] == "mine"

        def explained_by_the_daemon():  # once it has the learned model, seconds later
            small.train(model, 1, optimizer)
            done = run("explain", "4x100", "--json")
            return json.loads(done.stdout) if done.returncode == 0 else None

        explained = wait_for("the learned model", explained_by_the_daemon)
        assert len(explained["layers"]) == 4
        mine = handle.explain((4, 100))
        assert explained["predicted_peak_bytes"] == mine["predicted_peak_bytes"]
        ask("budget", "mine", "3MiB")

        def taken():
            small.train(model, 1, optimizer)
            return handle.budget == 3 << 20

        wait_for("the budget to be taken", taken)
    wait_for("the run to end", lambda: "mine" not in [
        r["name"] for r in json.loads(ask("status", "--json"))["runs"] if r["state"] != "ended"
    ])


def test_a_budget_that_follows_the_batches_is_seen_and_can_be_taken_over(daemon):
    model = small.make()
    with pudica.attach(model, pudica.between(0.4), name="mine") as handle:
        wait_for("the registration", lambda: handle.stats()["daemon"]["registered"])
        optimizer = small.train(model, 12)
        assert handle.stats()["budget_range"] is not None

        def seen():
            rows = json.loads(ask("status", "--json"))["runs"]
            return rows[0]["budget_bytes"] == handle.budget and rows[0]

        row = wait_for("the budget that it came to", seen)
        assert row["budget_fraction"] == 0.4 and row["budget_source"] == "run"
        handle.set_budget("1GiB")
        assert wait_for("the run's own change", seen)["budget_fraction"] is None
        handle.set_budget(pudica.between(0.2))
        ask("budget", "mine", "3MiB", "--no-wait")

        def taken():
            small.train(model, 1, optimizer)
            return handle.budget == 3 << 20

        wait_for("the operator's budget to be taken", taken)
        small.train(model, 2, optimizer)
        assert handle.budget == 3 << 20 and handle.stats()["budget_fraction"] is None


@pytest.mark.parametrize("script, word", [("jobs/train.py", "train.py"), ("-c", "python")])
def test_a_run_without_a_name_has_its_scripts(daemon, monkeypatch, script, word):
    monkeypatch.setattr("sys.argv", [script])
    model = small.make()
    with pudica.attach(model, "4GiB") as handle:
        wait_for("the registration", lambda: handle.stats()["daemon"]["registered"])
        small.train(model, 1)
        names = [run["name"] for run in json.loads(ask("status", "--json"))["runs"]]
        assert f"{word}:{type(model).__name__}" in names


def test_without_a_daemon_and_switched_off_nothing_is_said(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("PUDICA_SOCKET", str(tmp_path / "nobody.sock"))
    with pudica.attach(small.make(), "1GiB") as handle:
        assert not handle.stats()["daemon"]["registered"]
    with pudica.attach(small.make(), "1GiB", daemon=False) as handle:
        assert handle.stats()["daemon"] is None
    assert not caplog.records


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: gives a folder to another user")
def test_a_socket_of_another_user_is_told_nothing_and_said_once(tmp_path, monkeypatch, caplog):
    folder = tmp_path / "private"
    folder.mkdir(mode=0o711)
    place = folder / "pudicad.sock"
    monkeypatch.setenv("PUDICA_SOCKET", str(place))
    with sockets.socket(sockets.AF_UNIX) as trap:
        trap.bind(str(place))
        trap.listen()
        trap.settimeout(0)
        os.chown(folder, 20003, 20003)
        model = small.make()
        with pudica.attach(model, "1GiB") as handle:

            def reason():
                small.train(model, 1)
                return handle.stats()["daemon"]["reason"]

            wait_for("the reason", lambda: "belongs to user 20003" in reason())
            assert not handle.stats()["daemon"]["registered"]
            small.train(model, 3)
        with pytest.raises(BlockingIOError):
            trap.accept()
    said = [r.getMessage() for r in caplog.records]
    assert len(said) == 1 and f"reports nothing to {place}" in said[0], said
