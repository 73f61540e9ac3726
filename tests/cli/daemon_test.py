"""Every command against pudicad itself: a run registers by POST and pushes a recorded training."""

import contextlib
import http.client
import json
import os
import pwd
import signal
import socket
import subprocess
import threading

import jsonschema
import pytest

from conftest import DEADLINE_S, RECORD, ROOT, Cli, a_plan, clean_environment
from waiting import wait_for

DAEMON = os.environ["PUDICAD"]
STATE_OF_RECORD = os.environ["PUDICA_STATE_OF_RECORD"]
FINGERPRINT = "squad mini"
QUESTIONS = {"explain": ["explain", "4x397"], "estimate": ["estimate", "4x397"]}


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("pudica", timeout=DEADLINE_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Training:
    """What a training process says to the daemon."""

    def __init__(self, path, **description):
        self.path = path
        records = [json.loads(line) for line in RECORD.read_text().splitlines()]
        self.records = records
        described = {
            "protocol": 1, "protocol_min": 1, "name": "train", "pid": os.getpid(), "user": "ada",
            "command": "pudica-train --daemon", "device": "cpu", "model": "mini",
            "policy": "pudica", "fingerprint": FINGERPRINT, "group": "", "versions": {},
            "budget_bytes": records[0]["budget_bytes"], "floor_bytes": 27_000_000,
            "keep_all_bytes": 62_900_000, "steps_total": 100, **description}
        self.id = self.ask("POST", "/v1/runs", described)["id"]

    def ask(self, method, target, body=None):
        status, answer = self.request(self.path, method, target, body)
        assert status < 300, answer
        return answer

    @staticmethod
    def request(path, method, target, body=None):
        connection = Connection(path)
        with contextlib.closing(connection):
            connection.request(method, target, None if body is None else json.dumps(body),
                               {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())

    def push(self, *events):
        self.ask("POST", f"/v1/runs/{self.id}/events", {"dropped": 0, "events": list(events)})

    def train(self):
        """The recorded steps, the learned state and a snapshot with one plan."""
        state = subprocess.run([STATE_OF_RECORD, str(RECORD), FINGERPRINT], check=True,
                               capture_output=True, text=True).stdout
        plan = a_plan(key="batch=4,source=397", fits_up_to=[], predicted_peak_bytes=36_846_000,
                      measured_peak_bytes=36_847_008)
        plan["plan"].update(key=plan["key"], modes=["full", "full", "keep", "keep"])
        snapshot = {
            "schema": "pudica.snapshot/1", "state": "planning", "state_reason": "learned",
            "budget_bytes": 41335556, "margin_bytes": 1000, "margin_fraction": 0.01,
            "base_bytes": 8985984, "structure": self.records[0]["profiles"]["structure"],
            "counters": {"steps": 30, "learning_steps": 24, "plans_made": 28,
                         "infeasible_steps": 0, "revoked_steps": 0, "revocations": 0,
                         "overruns": 0, "drifts": 0},
            "cache": {"hits": 0, "misses": 28, "plans": 1}, "plans": [plan], "learned": [],
            "recent_peaks": []}
        steps = [{"type": "step", "record": record, "learning": "profiles" in record,
                  "recomputed": record["modes"].count("full")} for record in self.records]
        self.push(*steps, {"type": "model", "state": state},
                  {"type": "snapshot", "snapshot": snapshot})


@contextlib.contextmanager
def running_daemon(folder):
    """pudicad with its socket and database in `folder`; the socket's path."""
    path = str(folder / "run" / "pudicad.sock")
    process = subprocess.Popen([DAEMON, "--socket", path, "--database", str(folder / "db")],
                               env=clean_environment({}), stderr=subprocess.PIPE, text=True)

    def answers():
        assert process.poll() is None, process.stderr.read()
        return Cli(path)("status").code != 3

    wait_for("pudicad to answer", answers)
    yield path
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=DEADLINE_S) == 0, process.stderr.read()


@pytest.fixture
def pudicad(folder):
    with running_daemon(folder) as path:
        yield path


@pytest.fixture
def cli(pudicad):
    return Cli(pudicad)


@pytest.fixture
def training(pudicad):
    training = Training(pudicad)
    training.train()
    return training


def test_doctor_before_and_after_the_first_run(cli, pudicad):
    before = cli("doctor")
    assert before.code == 0 and "no training has registered" in before.stdout
    Training(pudicad)
    after = cli("doctor")
    assert after.code == 0 and "1 live, 1 in all" in after.stdout


def test_status_shows_what_was_pushed(cli, training):
    row = cli("status").rows[0]
    assert (row["id"], row["name"], row["step"]) == (training.id, "train", "30")
    assert int(row["peak_bytes"]) == max(r["measured_bytes"] for r in training.records)
    assert cli("status", "train", "--json").json["runs"][0]["id"] == training.id
    assert "30/100" in cli.shown("status")
    user = pwd.getpwuid(os.geteuid()).pw_name  # whatever the registration says
    assert f"{user}, process" in cli.shown("status", training.id)
    assert cli("top", "--once").rows[0]["id"] == training.id


def test_plans_follow_their_schema(cli, training):
    schema = json.loads((ROOT / "docs/schemas/plans.schema.json").read_text())
    plans = cli("plans", "--json").json
    jsonschema.Draft202012Validator(schema).validate(plans)
    assert plans["plans"][0]["key"] == "batch=4,source=397"
    assert "full*2 keep*2" in cli.shown("plans")


def test_explain_and_estimate_agree_with_what_was_measured(cli, training):
    for record in training.records[2:]:
        shape = record["key"]
        estimate = cli("estimate", shape, "--json").json
        if record["modes"] == ["keep"] * 4:
            assert estimate["keep_all_peak_bytes"] == pytest.approx(record["measured_bytes"], 0.002)
    explained = cli("explain", "4x397", "--json").json
    assert [layer["layer"] for layer in explained["layers"]] == [0, 1, 2, 3]
    assert explained["fits"] and explained["predicted_peak_bytes"] <= explained["budget_bytes"]
    tight = cli("estimate", "4x512", "--budget", "1MiB", "--json").json
    assert not tight["fits"]
    assert cli.shown("explain", "4x397") and cli.shown("estimate", "4x397")


def test_a_run_that_has_learned_nothing_says_so(cli, pudicad):
    Training(pudicad, fingerprint="another")
    output = cli("explain", "4x397")
    assert output.code == 1 and output.stdout == "" and output.stderr


def test_models_are_listed(cli, training):
    assert [row["fingerprint"] for row in cli("models").rows] == [FINGERPRINT]


def test_a_budget_is_taken_up(cli, training):
    asked = cli("budget", "train", "36MiB", "--no-wait")
    assert asked.code == 0, asked.stderr
    commands = training.ask("GET", f"/v1/runs/{training.id}/commands?after=0&wait=0")["commands"]
    budget = next(command for command in commands if command["type"] == "set_budget")
    assert budget["budget_bytes"] == 36 << 20
    row = cli("status").rows[0]
    assert row["budget_pending_bytes"] == str(36 << 20)
    record = {**training.records[-1], "step": 31, "budget_bytes": 36 << 20}
    training.push({"type": "budget", "seq": budget["seq"], "step": 31, "budget_bytes": 36 << 20},
                  {"type": "step", "record": record})
    row = cli("status").rows[0]
    assert (row["budget_bytes"], row["budget_source"]) == (str(36 << 20), "operator")
    assert row["budget_pending_bytes"] == "-"
    change = cli("status", "train", "--json").json["runs"][0]["budgets"][-1]
    assert change["step"] == 31 and change["measured_bytes"] == record["measured_bytes"]
    assert "36.0 MiB" in cli.shown("status", "train")


# Below its floor the run takes that: what the daemon was asked for is not what is printed.
def test_budget_tells_what_the_run_made_of_it(cli, training):
    answers = []
    asking = threading.Thread(target=lambda: answers.append(cli("budget", "train", "10MiB",
                                                                "--wait", "60")))
    asking.start()
    ask = f"/v1/runs/{training.id}/commands?after=0&wait=20"
    order = next(command for command in training.ask("GET", ask)["commands"]
                 if command["type"] == "set_budget")
    record = {**training.records[-1], "step": 31, "budget_bytes": 27_000_000,
              "measured_bytes": 26_500_000, "recompute_seconds": 0.01}
    training.push({"type": "budget", "seq": order["seq"], "step": 31, "budget_bytes": 27_000_000},
                  {"type": "step", "record": record})
    asking.join(timeout=DEADLINE_S)
    (output,) = answers
    assert output.code == 0, output.stderr
    row = output.rows[0]
    assert (row["taken_bytes"], row["measured_bytes"]) == ("27000000", "26500000")
    assert row["step"] == "31" and float(row["recompute_seconds"]) == 0.01
    assert "below the floor" in output.stderr


def test_bad_input_is_exit_code_2(cli, training):
    assert cli("status", "nobody").code == 2
    assert cli("plans", "nobody").code == 2
    assert cli("budget", "nobody", "1GiB").code == 2
    assert cli("explain", "4x5x6x7").code == 2


def test_report_of_the_run(cli, training, folder):
    output = cli("report", "train", "--out", str(folder / "run.html"))
    assert output.code == 0, output.stderr
    page = (folder / "run.html").read_text()
    assert f'"peak":[{training.records[0]["measured_bytes"]},' in page


def test_names_that_would_break_a_terminal(cli, pudicad):
    Training(pudicad, name="evil\x1b[2J\n\u202e", command="x" * 3000)
    shown = cli.shown("status", "--no-color", columns=240)
    assert "evil\\x1B[2J\\n\\u{202E}" in shown and "\x1b" not in shown


def test_groups_share_a_total(cli, pudicad):
    Training(pudicad, group="gpu0", budget_bytes=30 << 20)
    assert cli("group", "gpu0", "40MiB").code == 0
    row = cli("group").rows[0]
    assert row["name"] == "gpu0" and row["total_bytes"] == str(40 << 20)
    assert int(row["assigned_bytes"]) <= 40 << 20


# Of a run that a daemon before this one saw: what was learned of its model is kept by fingerprint.
def test_a_run_that_ended_before_a_restart_still_answers(folder):
    with running_daemon(folder) as path:
        training = Training(path)
        training.train()
        before = {name: Cli(path)(*words, "--json").json for name, words in QUESTIONS.items()}
        training.push({"type": "end", "status": "ok"})
    with running_daemon(folder) as path:
        cli = Cli(path)
        for name, words in QUESTIONS.items():
            for run in ("train", training.id):
                answer = cli(*words, run, "--json")
                assert answer.code == 0, (name, answer.stderr)
                for field in ("key", "keep_all_peak_bytes", "predicted_peak_bytes", "fits"):
                    assert answer.json[field] == before[name][field], (name, field)
        budget = cli("budget", "train", "1GiB")
        assert budget.code == 1 and "has ended (ok): it takes no budget" in budget.stderr
        status, answer = Training.request(path, "PUT", f"/v1/runs/{training.id}/budget",
                                          {"budget": "1GiB"})
        assert status == 409 and "has ended" in answer["error"]["message"]
        unnamed = cli("explain", "4x397")
        assert unnamed.code == 2 and f"{training.id} (train)" in unnamed.stderr


def test_an_ended_run_of_which_nothing_was_kept_says_so(folder):
    with running_daemon(folder) as path:
        training = Training(path, fingerprint="")
        training.train()
        training.push({"type": "end", "status": "ok"})
    with running_daemon(folder) as path:
        answer = Cli(path)("estimate", "4x397", "train")
        assert answer.code == 1 and "has ended, and what it learned was not kept" in answer.stderr


def test_an_ambiguous_name_is_a_usage_error_that_lists_the_ids(cli, pudicad):
    runs = [Training(pudicad).id for _ in range(2)]
    for words in (["status"], ["plans"], ["explain", "4x397"], ["estimate", "4x397"], ["report"]):
        output = cli(*words, "train")
        assert output.code == 2, (words, output.stderr)
        assert all(run in output.stderr for run in runs)
    budget = cli("budget", "train", "1GiB")
    assert budget.code == 2 and "2 runs are named 'train'" in budget.stderr
    assert cli("status", runs[0]).code == 0


# Before: 144.7 MiB told, 148.8 measured, for a shape that the run had met.
def test_a_shape_that_the_run_has_met_is_answered_as_it_was_measured(cli, training):
    answer = cli("estimate", "4x397", "--json").json
    plan = cli("plans", "--json").json["plans"][0]
    assert answer["plan_id"] == plan["plan"]["id"]
    assert answer["predicted_peak_bytes"] == plan["measured_peak_bytes"]
    assert answer["modes"] == {"keep": 2, "full": 2}
    explained = cli("explain", "4x397", "--json").json
    for field in ("predicted_peak_bytes", "keep_all_peak_bytes", "floor_peak_bytes", "fits"):
        assert explained[field] == answer[field], field
    assert f"as measured in the run's plan {plan['plan']['id']}" in cli.shown("estimate", "4x397")
    other = cli("estimate", "4x397", "--budget", "50MiB", "--json").json
    assert other["plan_id"] is None, "under another budget it would be another"


def test_the_doubt_of_an_estimate_is_a_number(cli, training):
    for shape in ("4x300", "4x900", "9x500"):
        answer = cli("estimate", shape, "--json").json
        assert answer["upper_peak_bytes"] >= answer["predicted_peak_bytes"]
        shown = cli.shown("estimate", shape)
        assert "an upper bound" not in shown
        sure = answer["settled"] and (answer["upper_peak_bytes"]
                                      <= 1.002 * answer["predicted_peak_bytes"])
        assert ("yes: what was measured" if sure else "no: up to ") in shown
