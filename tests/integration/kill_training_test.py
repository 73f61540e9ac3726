"""kill -9 of the daemon 20 times under real trainings, and of trainings.

The same parameters come out, the database opens, no ghost stays. tests/inspect/kill_clients_test.py
does it without torch.
"""

import os
import pathlib
import signal
import sqlite3
import subprocess

import pytest

import conftest
from daemon_support import daemon, instants, processes
from paced import PacedRecord, paced_record
from waiting import wait_for

RUN = {"steps": 1200, "max_length": 64, "policy": "pudica", "budget": 0.5}
KILLS = 20


@pytest.fixture
def start(daemon, processes):
    """start(out, ...) starts a training that does not outlive the test: its worker ends with it."""
    def start_one(out, **options):
        environment = conftest.environment(PUDICA_SOCKET=str(daemon.socket))
        return processes(
            conftest.arguments_of(out, {"daemon": True, **RUN, **options}), env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)

    return start_one


def check_database(daemon):
    with sqlite3.connect(daemon.folder / "db") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def gone(pid):
    """Ended, whether or not somebody has asked how."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rsplit(")", 1)[1].split()[0] == "Z"


def test_killing_the_daemon_changes_no_training(train, daemon, start, paced_record, instants,
                                                tmp_path):
    alone = train(**RUN)
    assert alone.code == 0, alone.stderr
    out = tmp_path / "out"
    training = start(out, record=paced_record.path)
    paced_record.pass_steps(1)
    wait_for("the run", daemon.only_run)
    for _ in range(KILLS):
        paced_record.pass_steps(instants.randrange(40))
        daemon.kill()
        paced_record.pass_steps(instants.randrange(15))
        daemon.start()
    assert training.poll() is None, "it ended before the kills"
    paced_record.let_go()
    stdout, stderr = training.communicate(timeout=conftest.TIMEOUT_S)
    done = conftest.Run(training.returncode, stdout, stderr, out)
    assert done.code == 0, done.stderr
    assert done.digests() == alone.digests()
    assert done.policies["pudica"]["overruns"] == 0
    wait_for("the run to leave", lambda: not daemon.runs())
    check_database(daemon)


def test_killed_trainings_leave_no_ghost(daemon, start, instants, tmp_path):
    killed = set()
    for i in range(KILLS // 4):
        folder = tmp_path / str(i)
        folder.mkdir()
        record = PacedRecord(folder)
        training = start(folder / "out", record=record.path)
        record.pass_steps(1 + instants.randrange(100))
        run = wait_for("the run", lambda: next(
            (run for run in daemon.runs() if run["pid"] not in killed), None))
        os.kill(run["pid"], signal.SIGKILL)  # the one that trains is in no group of its parent's
        os.killpg(training.pid, signal.SIGKILL)
        training.communicate()
        record.close()
        killed.add(run["pid"])
    wait_for("the ghosts to leave", lambda: not daemon.runs())
    seen = daemon.runs(everything=True)
    assert {run["pid"] for run in seen} == killed
    assert {run["state"] for run in seen} == {"lost"}
    check_database(daemon)


def test_a_training_whose_parent_is_killed_ends_and_says_so(daemon, start, tmp_path):
    training = start(tmp_path / "out", steps=20000)
    run = wait_for("the run", daemon.only_run)
    training.kill()
    training.communicate()
    wait_for("the run to end", lambda: not daemon.runs())
    (ended,) = daemon.runs(everything=True)
    assert (ended["state"], ended["status"]) == ("ended", "interrupted")
    wait_for("the process that trained to be gone", lambda: gone(run["pid"]))
