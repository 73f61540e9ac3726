"""kill -9 of the daemon under running clients, 180 times, and of clients, 180 times.

The runs do what they do without a daemon, the database opens each time, no ghost of a run stays.
No torch: tests/integration/kill_training_test.py has the real trainings.

What the kills cost in time is printed, not judged: the machine may be busy with other things."""

import bisect
import json
import os
import sqlite3
import statistics
import subprocess
import time

import pytest

from daemon_support import daemon, instants, processes
from waiting import wait_for

PROGRAM = os.environ["PUDICA_SIMULATED_RUNS"]
KILLS = 180
RUNS = 20
MOST_STEPS = 1_000_000
PATIENCE_S = 300


@pytest.fixture
def start(daemon, processes):
    """start(words...) starts simulated runs, which do not outlive the test."""
    def start_one(*words):
        return processes(simulated(daemon, "--paced", *words), stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE)

    return start_one


def simulated(daemon, *words):
    return [PROGRAM, "--socket", str(daemon.socket), *map(str, words)]


def begin_round(process):
    """A step of each run; `--paced` ones wait for it."""
    process.stdin.write("x")
    process.stdin.flush()


def end_round(process):
    assert process.stdout.readline() == "\n", "the runs ended"


def make_rounds(process, count):
    for _ in range(count):
        begin_round(process)
        end_round(process)


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def check_database(daemon):
    with sqlite3.connect(daemon.folder / "db") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def time_after_kills(path, kills):
    """Median seconds of a step in the second after a kill, and of all others."""
    after, others = [], []
    for line in path.read_text().splitlines():
        when, took = map(float, line.split())
        last = bisect.bisect_right(kills, when) - 1
        (after if last >= 0 and when - kills[last] < 1 else others).append(took)
    return statistics.median(after), statistics.median(others) if others else None


def test_killing_the_daemon_changes_no_run(daemon, start, instants, tmp_path):
    arguments = ["--runs", RUNS, "--seed", 1, "--wait-ms", 5000]
    times = tmp_path / "times"
    process = start("--steps", MOST_STEPS, "--times", times, *arguments)
    wait_for("all runs", lambda: len(daemon.runs()) == RUNS, PATIENCE_S)
    kills = []
    for _ in range(KILLS):
        wait_for("a run to come back", daemon.runs, PATIENCE_S)
        make_rounds(process, instants.randrange(12))
        begin_round(process)
        kills.append(time.monotonic())
        daemon.kill()
        end_round(process)
        make_rounds(process, instants.randrange(3))
        daemon.start()  # fails where the database does not open
    wait_for("all runs to come back", lambda: len(daemon.runs()) == RUNS, PATIENCE_S)
    output, _ = process.communicate(timeout=600)  # without a next round they end
    assert process.returncode == 0
    runs = lines_of(output)
    quiet = subprocess.run(
        simulated(daemon, *arguments, "--steps", runs[0]["steps"], "--steps-per-second", 0,
                  "--no-report"), text=True, capture_output=True, check=True)
    for seen, alone in zip(runs, lines_of(quiet.stdout), strict=True):
        for field in ("steps", "digest", "largest_peak_bytes", "budget_bytes", "learning_steps"):
            assert seen[field] == alone[field], (field, seen, alone)
        assert seen["failures"] == 0
    assert sum(run["reconnects"] for run in runs) > 0
    check_database(daemon)
    ends = [run for run in daemon.runs(everything=True) if run["state"] == "ended"]
    known = sum(run["end_known"] for run in runs)
    assert len(ends) >= known
    after, others = time_after_kills(times, kills)
    print(f"{len(kills)} kills, {sum(run['reconnects'] for run in runs)} registrations again, "
          f"{sum(run['dropped'] for run in runs)} records dropped, {known} of {RUNS} ends known; "
          f"median step {after * 1e6:.0f} us in the second after a kill, "
          f"{(others or 0) * 1e6:.0f} us else")
    wait_for("ghosts to leave", lambda: not daemon.runs())


def test_killed_clients_leave_no_ghost(daemon, start, instants):
    for batch in range(KILLS // 12):
        # Some before they register, some after.
        clients = [start("--runs", 1, "--steps", MOST_STEPS, "--seed", 100 * batch + i,
                         "--wait-ms", instants.choice((0, 5000))) for i in range(12)]
        for client in clients:
            make_rounds(client, instants.randrange(10))
            client.kill()
            client.wait()
    began = time.monotonic()
    wait_for("ghosts to leave", lambda: not daemon.runs())
    seen = daemon.runs(everything=True)
    print(f"{KILLS} clients killed, {len(seen)} had registered, the last ghost left after "
          f"{time.monotonic() - began:.1f} s")
    assert {run["state"] for run in seen} <= {"lost", "ended"}
    check_database(daemon)
