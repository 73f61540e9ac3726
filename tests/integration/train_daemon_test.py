"""pudica-train --daemon with a real pudicad: what the daemon says is what the run measured, its
budget holds from the next step on, and nothing that happens to it changes what is trained."""

import json
import re
import signal
import subprocess

import pytest

import conftest
from daemon_support import daemon, instants, processes
from paced import paced_record
from waiting import wait_for

RUN = {"steps": 24, "max_length": 64, "policy": "pudica", "budget": 0.5}
LONG = {**RUN, "steps": 400}


@pytest.fixture(scope="module")
def alone(train):
    """The long run, without a daemon."""
    done = train(**LONG)
    assert done.code == 0, done.stderr
    return done


class Training:
    """pudica-train under way, as far as `record` is read."""

    def __init__(self, start, daemon, record, out, **options):
        self.out, self.record = out, record
        environment = conftest.environment(PUDICA_SOCKET=str(daemon.socket))
        words = conftest.arguments_of(out, {"daemon": True, "record": record.path, **options})
        self.process = start(words, env=environment, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, cwd=out.parent)

    def end(self):
        self.record.let_go()
        stdout, stderr = self.process.communicate(timeout=conftest.TIMEOUT_S)
        return conftest.Run(self.process.returncode, stdout, stderr, self.out)


@pytest.fixture
def start(processes, daemon, paced_record, tmp_path):
    """start(...) starts a training, which does not outlive the test."""
    return lambda **options: Training(processes, daemon, paced_record, tmp_path / "out", **options)


def reached(daemon, step):
    def look():
        run = daemon.only_run()
        return run if run is not None and (run["step"] or 0) >= step else None
    return look


def test_what_the_daemon_says_is_what_the_run_measured(train, daemon):
    done = train(daemon=True, env={"PUDICA_SOCKET": str(daemon.socket)}, **RUN)
    assert done.code == 0, done.stderr
    assert "registered with pudicad" in done.stderr
    (run,) = daemon.runs(everything=True)
    policy = done.policies["pudica"]
    assert run["name"] == "pudica-train:pudica"
    assert run["policy"] == "pudica" and run["device"] == "cpu"
    assert run["state"] == "ended" and run["status"] == "ok"
    assert run["step"] == run["steps_total"] == RUN["steps"]
    assert run["peak_bytes"] == policy["peak_bytes"]
    assert run["budget_bytes"] == done.result["budget_bytes"]
    assert run["floor_bytes"] == done.result["floor_bytes"]
    assert run["keep_all_bytes"] == done.result["keep_all_bytes"]
    assert run["learning_steps"] == policy["warmup_steps"]
    assert run["revocations"] == policy["revocations"]
    assert run["overruns"] == policy["overruns"] == 0
    assert run["dropped_records"] == 0
    assert run["cache"] == policy["cache"]
    assert run["recomputed_share"] == pytest.approx(policy["recomputed_share"])
    assert run["recomputed_calls_share"] == pytest.approx(policy["recomputed_calls_share"])
    assert run["budget_used"] == policy["budget_used"]
    assert "--daemon" in run["command"] and "--worker" not in run["command"]
    steps = daemon.get("/v1/runs/" + run["id"])["steps"]
    assert [step["step"] for step in steps] == list(range(1, RUN["steps"] + 1)), "from the first"
    for step, row in zip(steps, done.rows["pudica"]):
        assert step["measured_bytes"] == int(row["peak_bytes"])
        assert (step["predicted_bytes"] or 0) == int(row["predicted_bytes"] or 0)
        assert step["budget_bytes"] == int(row["budget_bytes"])


def step_by_step(training, condition):
    """One step a look: what the daemon hears of comes with steps."""
    def look():
        training.record.pass_steps(1)
        return condition()
    return look


def in_effect(training, daemon, budget):
    return step_by_step(training, lambda: daemon.only_run()["budget_bytes"] == budget)


def test_a_budget_holds_from_the_next_step_on(daemon, alone, start):
    training = start(**LONG)
    training.record.pass_steps(60)
    run = wait_for("step 60", reached(daemon, 60))
    lower = (run["budget_bytes"] + run["floor_bytes"]) // 2
    status, answer = daemon.request("PUT", f"/v1/runs/{run['id']}/budget", {"budget": lower})
    assert status == 202, answer
    wait_for("the budget to be taken", in_effect(training, daemon, lower))
    done = training.end()
    assert done.code == 0, done.stderr
    rows = done.rows["pudica"]
    first = next(i for i, row in enumerate(rows) if int(row["budget_bytes"]) == lower)
    assert all(int(row["budget_bytes"]) == run["budget_bytes"] for row in rows[:first])
    assert all(int(row["budget_bytes"]) == lower for row in rows[first:])
    assert all(int(row["peak_bytes"]) <= lower for row in rows[first:])
    assert done.policies["pudica"]["status"] == "ok"
    assert done.digests() == alone.digests(), "a budget changes memory, not what is trained"
    (ended,) = daemon.runs(everything=True)
    assert ended["budget_bytes"] == lower and ended["budget_pending_bytes"] is None
    change = daemon.get("/v1/runs/" + ended["id"])["budgets"][-1]
    assert change["step"] == first + 1 and change["budget_bytes"] == lower
    assert change["measured_bytes"] == int(rows[first]["peak_bytes"])


# A peak is judged by the budget of its own step: by the sentence at the end, and by the daemon.
def test_what_is_said_of_a_budget_that_changed(daemon, start):
    training = start(**LONG)
    training.record.pass_steps(60)
    run = wait_for("step 60", reached(daemon, 60))
    lower = (run["budget_bytes"] + run["floor_bytes"]) // 2
    assert daemon.request("PUT", f"/v1/runs/{run['id']}/budget", {"budget": lower})[0] == 202
    wait_for("the budget to be taken", in_effect(training, daemon, lower))
    done = training.end()
    policy = done.policies["pudica"]
    assert policy["overruns"] == 0 and policy["budget_used"] <= 1
    assert policy["peak_bytes"] > lower, "those before it was cut"
    first, second = policy["budgets"]
    assert (first["budget_bytes"], second["budget_bytes"]) == (run["budget_bytes"], lower)
    assert f"from step {second['step'] + 1} on, pudica stayed within the budget of every step" in (
        done.stdout)
    (ended,) = daemon.runs(everything=True)
    assert ended["budget_used"] == policy["budget_used"]


def test_the_record_tells_the_recomputation_that_the_results_tell(train, tmp_path):
    record = tmp_path / "record.jsonl"
    done = train(record=record, **LONG)
    steps = [json.loads(line) for line in record.read_text().splitlines()]
    policy = done.policies["pudica"]
    again = sum(step["recompute_seconds"] for step in steps)
    assert again / sum(step["seconds"] for step in steps) == pytest.approx(
        policy["recomputed_share"])
    ran_again = sum(mode == "full" or mode.startswith("selective") for step in steps[1:]
                    for mode in step["modes"])
    calls = sum(len(step["modes"]) for step in steps[1:])
    assert ran_again / calls == pytest.approx(policy["recomputed_calls_share"], abs=0.01)


def test_a_budget_below_the_floor_does_not_end_the_run(daemon, start):
    training = start(**LONG)
    training.record.pass_steps(40)
    run = wait_for("step 40", reached(daemon, 40))
    status, answer = daemon.request("PUT", f"/v1/runs/{run['id']}/budget", {"budget": 1000})
    assert status == 202, answer
    # Raised by the run to what it cannot do without.
    wait_for("the floor", in_effect(training, daemon, run["floor_bytes"]))
    done = training.end()
    assert done.code == 0, done.stderr
    assert done.policies["pudica"]["status"] == "ok"
    assert int(done.rows["pudica"][-1]["budget_bytes"]) == done.result["floor_bytes"]


def test_a_second_run_learns_nothing_again(train, daemon):
    where = {"PUDICA_SOCKET": str(daemon.socket)}
    first = train(daemon=True, env=where, **RUN)
    assert first.policies["pudica"]["warmup_steps"] > 0
    assert len(daemon.get("/v1/models")["models"]) == 1
    second = train(daemon=True, env=where, **RUN)
    assert second.code == 0, second.stderr
    assert second.policies["pudica"]["warmup_steps"] == 0
    assert second.digests() == first.digests()


def test_the_runs_own_state_goes_before_the_daemons(train, daemon, tmp_path):
    state = tmp_path / "own.state"
    first = train(state=state, **RUN)
    assert first.policies["pudica"]["warmup_steps"] > 0
    again = train(daemon=True, state=state, env={"PUDICA_SOCKET": str(daemon.socket)}, **RUN)
    assert again.policies["pudica"]["warmup_steps"] == 0
    (run,) = daemon.runs(everything=True)
    assert run["learning_steps"] == 0


def test_the_configurations_state_file_is_kept_and_read(train, tmp_path):
    state = tmp_path / "kept.state"
    config = tmp_path / "pudica.json"
    config.write_text(f'{{"state_file": "{state}"}}')
    assert train(config=config, **RUN).policies["pudica"]["warmup_steps"] > 0
    assert state.stat().st_size > 0
    assert train(config=config, **RUN).policies["pudica"]["warmup_steps"] == 0


def test_killing_the_daemon_changes_nothing(daemon, alone, start, instants):
    training = start(**LONG)
    training.record.pass_steps(1)
    identity = wait_for("the run", daemon.only_run)["id"]
    for _ in range(8):
        training.record.pass_steps(instants.randrange(30))
        daemon.kill()
        training.record.pass_steps(instants.randrange(15))
        daemon.start()
    assert training.process.poll() is None
    done = training.end()
    assert done.code == 0, done.stderr
    assert done.digests() == alone.digests()
    assert done.policies["pudica"]["status"] == "ok"
    assert done.policies["pudica"]["overruns"] == 0
    assert [run["id"] for run in daemon.runs(everything=True)].count(identity) <= 1


def test_a_run_comes_back_to_a_new_daemon(daemon, start):
    training = start(**{**LONG, "steps": 4000})
    training.record.pass_steps(5)
    identity = wait_for("step 5", reached(daemon, 5))["id"]
    daemon.kill()
    daemon.start()
    again = wait_for("the run to come back", step_by_step(training, reached(daemon, 6)))
    assert again["id"] == identity
    training.process.send_signal(signal.SIGINT)
    done = training.end()
    assert done.code == 130
    (ended,) = [run for run in daemon.runs(everything=True) if run["id"] == identity]
    assert ended["status"] == "interrupted"


def test_only_policies_that_plan_register(train, daemon):
    done = train(daemon=True, env={"PUDICA_SOCKET": str(daemon.socket)},
                 **{**RUN, "steps": 6, "policy": "none,full,mimose,pudica,pudica:menu=full"})
    assert done.code == 0, done.stderr
    names = sorted(run["name"] for run in daemon.runs(everything=True))
    assert names == ["pudica-train:pudica", "pudica-train:pudica:menu=full"]


def test_nothing_registers_unasked_or_switched_off(train, daemon):
    where = {"PUDICA_SOCKET": str(daemon.socket)}
    short = {**RUN, "steps": 4}
    assert train(env=where, **short).code == 0
    assert train(daemon=True, env={**where, "PUDICA_DISABLE": "1"}, **short).code == 0
    assert daemon.runs(everything=True) == []


def test_the_argument_wins_over_the_file(train, daemon, tmp_path):
    config = tmp_path / "pudica.json"
    config.write_text('{"daemon": {"enabled": false, "group": "a40"}}')
    done = train(daemon=True, config=config, env={"PUDICA_SOCKET": str(daemon.socket)},
                 **{**RUN, "steps": 4})
    assert done.code == 0, done.stderr
    (run,) = daemon.runs(everything=True)
    assert run["group"] == "a40"


def test_without_a_daemon_it_says_so_once(train, tmp_path):
    where = tmp_path / "none.sock"
    done = train(daemon=True, env={"PUDICA_SOCKET": str(where)},
                 **{**RUN, "steps": 4, "policy": "pudica,pudica:menu=full"})
    assert done.code == 0, done.stderr
    assert len(re.findall(re.escape(str(where)), done.stderr)) == 1, done.stderr
    assert "pudicad is not running here" in done.stderr
