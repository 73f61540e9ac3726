"""Two real trainings that share a device's memory: what one does not use is lent, and comes back.

The lender's batches are short but for a very rare long one, which alone needs all of its share; the
borrower could always use more than its own. A need that falls counts after half a minute of
reports, so this takes minutes.
"""

import csv
import signal
import subprocess

import pytest

import conftest
from daemon_support import daemon, processes
from waiting import wait_for

LONG = 256
LENDER = [*range(12, 21)] * 1500 + [LONG]
BORROWER = [128] * 64
PATIENCE_S = 600
STEPS = 100000  # ended by a signal


@pytest.fixture
def start(daemon, processes, tmp_path):
    """start(name, lengths, budget) starts a training of the group "device"."""
    def start_one(name, lengths, budget):
        data = tmp_path / f"{name}.csv"
        data.write_text("len\n" + "".join(f"{length}\n" for length in lengths))
        words = conftest.arguments_of(tmp_path / name, {
            "daemon": True, "policy": "pudica", "steps": STEPS, "data": f"lengths:{data}",
            "budget": budget})
        environment = conftest.environment(PUDICA_SOCKET=str(daemon.socket), PUDICA_GROUP="device")
        return processes(words, env=environment, start_new_session=True,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    return start_one


def new_run(daemon, known):
    return next((run for run in daemon.runs() if run["id"] not in known), None)


class Group:
    """The group, look by look; each look checks the promise."""

    def __init__(self, daemon, total):
        self.daemon, self.total, self.looks = daemon, total, 0

    def budgets(self):
        answer = self.daemon.get("/v1/runs")
        (group,) = answer["groups"]
        in_effect = {run["id"]: run["budget_bytes"] for run in answer["runs"]}
        assert len(in_effect) == 2
        assert group["total_bytes"] == self.total and group["pending_total_bytes"] is None
        assert group["assigned_bytes"] <= self.total, group
        assert sum(in_effect.values()) <= self.total, answer
        self.looks += 1
        return in_effect


def end(process):
    process.send_signal(signal.SIGINT)
    assert process.wait(conftest.TIMEOUT_S) == 130


def rows_of(folder):
    with (folder / "steps.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_is_not_used_is_lent_and_comes_back(daemon, start, tmp_path):
    lending = start("lender", LENDER, "1.0")
    lender = wait_for("the lender", lambda: new_run(daemon, set()), PATIENCE_S)
    borrowing = start("borrower", BORROWER, "0.2")
    borrower = wait_for("the borrower", lambda: new_run(daemon, {lender["id"]}), PATIENCE_S)
    shares = {run["id"]: run["budget_bytes"] for run in (lender, borrower)}
    status, answer = daemon.request("PUT", "/v1/groups/device", {"total": sum(shares.values())})
    assert status == 200, answer
    group = Group(daemon, sum(shares.values()))

    def lent():
        budgets = group.budgets()
        return (budgets[borrower["id"]] > shares[borrower["id"]]
                and budgets[lender["id"]] < shares[lender["id"]])

    def returned():
        budgets = group.budgets()
        return (budgets[lender["id"]] == shares[lender["id"]]
                and budgets[borrower["id"]] <= shares[borrower["id"]])

    wait_for("something to be lent", lent, PATIENCE_S)
    wait_for("it to come back", returned, PATIENCE_S)
    end(lending)
    end(borrowing)
    for name in ("lender", "borrower"):
        for row in rows_of(tmp_path / name):
            assert int(row["peak_bytes"]) <= int(row["budget_bytes"]), (name, row)
    rows = rows_of(tmp_path / "lender")
    share = shares[lender["id"]]
    asked = [i for i, row in enumerate(rows) if row["shape"].endswith(f"x{LONG}")
             and int(row["budget_bytes"]) < share]
    assert asked, "a long batch came while the lender had less than its share"
    back = next(i for i in range(asked[-1], len(rows)) if int(rows[i]["budget_bytes"]) == share)
    print(f"{group.looks} looks; lent down to {rows[asked[-1]]['budget_bytes']} of {share} bytes; "
          f"whole again {back - asked[-1]} steps after the batch that needed it")
