"""What a run learnt and leaves behind: --state, --record, and pudica switched off."""

import json
import re

import pytest

RUN = {"steps": 8, "max_length": 64, "policy": "full,pudica", "budget": 0.5}


@pytest.fixture(scope="module")
def learnt(train, tmp_path_factory):
    """The first run with --state: the Run and the file that it made."""
    path = tmp_path_factory.mktemp("state") / "learnt.state"
    done = train(state=path, **RUN)
    assert done.code == 0, done.stderr
    return done, path


def test_the_first_run_learns_and_writes_the_state(learnt):
    done, path = learnt
    assert done.policies["pudica"]["warmup_steps"] > 0
    assert path.stat().st_size > 0
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_second_run_with_it_does_not_learn_again(train, learnt, tmp_path):
    first, path = learnt
    copy = tmp_path / "copy.state"
    copy.write_bytes(path.read_bytes())
    second = train(state=copy, **RUN)
    assert second.code == 0, second.stderr
    assert second.policies["pudica"]["warmup_steps"] == 0
    assert second.policies["pudica"]["overruns"] == 0
    assert second.policies["pudica"]["budget_used"] <= 1
    assert second.digests() == first.digests()
    assert len(second.digests()) == 1
    # Nor does a third, with what the second wrote.
    assert train(state=copy, **RUN).policies["pudica"]["warmup_steps"] == 0


@pytest.mark.parametrize("change", [
    {"model": "mini,hidden=32,layers=3"}, {"model": "mini,hidden=32,layers=4,dtype=bf16"}],
    ids=lambda change: change["model"].removeprefix("mini,"))
def test_the_state_of_another_model_is_refused(train, learnt, change):
    _, path = learnt
    before = path.read_bytes()
    done = train(state=path, **{**RUN, "policy": "pudica", **change})
    assert done.code == 2, done.stderr
    assert "--state" in done.stderr and str(path) in done.stderr
    assert "layers=4" in done.stderr and "expected" in done.stderr
    assert "step 1/" not in done.stderr
    assert path.read_bytes() == before


def flip(content, index):
    return content[:index] + bytes([content[index] ^ 1]) + content[index + 1:]


@pytest.mark.parametrize("damage", [
    lambda content: flip(content, len(content) // 2),
    lambda content: flip(content, 0),
    lambda content: content[:len(content) // 2],
    lambda content: content + b"\n1",
    lambda content: b"",
], ids=["middle", "first", "half", "longer", "empty"])
def test_a_damaged_state_is_refused_and_left_alone(train, learnt, tmp_path, damage):
    path = tmp_path / "damaged.state"
    path.write_bytes(damage(learnt[1].read_bytes()))
    before = path.read_bytes()
    done = train(state=path, **{**RUN, "policy": "pudica"})
    assert done.code == 2, done.stderr
    assert "--state" in done.stderr and str(path) in done.stderr
    assert "step 1/" not in done.stderr
    assert path.read_bytes() == before


def test_the_record_has_one_valid_line_a_step(train, tmp_path):
    path = tmp_path / "record.jsonl"
    done = train(record=path, **RUN)
    assert done.code == 0, done.stderr
    records = [json.loads(line) for line in path.read_text().splitlines()]
    rows = done.rows["pudica"]
    assert len(records) == len(rows) == RUN["steps"]
    for record, row in zip(records, rows):
        assert {"schema", "run", "step", "key", "plan_id", "modes", "predicted_bytes",
                "measured_bytes", "budget_bytes", "seconds", "revocations",
                "overrun"} <= set(record)
        assert record["step"] == int(row["step"]) + 1
        assert record["measured_bytes"] == int(row["peak_bytes"])
        assert record["budget_bytes"] == done.result["budget_bytes"]
        assert record["overrun"] == bool(int(row["overrun"]))
        assert "x".join(re.findall(r"=(\d+)", record["key"])) == row["shape"]
    assert len({(record["schema"], record["run"]) for record in records}) == 1


# The first policy's; nothing measures `none`, but its metered row.
@pytest.mark.parametrize("policy, recorded", [
    ("full,sqrt", "full"), ("none,full", "none (metered)")])
def test_the_record_is_of_the_first_row_that_is_measured_where_none_plans(
        train, tmp_path, policy, recorded):
    path = tmp_path / "record.jsonl"
    done = train(record=path, steps=3, max_length=32, policy=policy)
    assert done.code == 0, done.stderr
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["measured_bytes"] for record in records] == [
        int(row["peak_bytes"]) for row in done.rows[recorded]]


def test_switched_off_it_trains_alike_and_measures_nothing(train, learnt, result_validator):
    done = train(env={"PUDICA_DISABLE": "1"}, **{**RUN, "policy": "none,full,static,pudica"})
    assert done.code == 0, done.stderr
    result_validator.validate(done.result)
    assert "PUDICA_DISABLE=1" in done.stderr
    assert {policy["status"] for policy in done.result["policies"]} == {"ok"}
    assert done.digests() == learnt[0].digests()
    assert done.result["budget_bytes"] == learnt[0].result["budget_bytes"]
    for policy in done.result["policies"]:
        assert policy["peak_bytes"] is policy["budget_used"] is policy["recomputed_share"] is None


def test_sheltered_learning_trains_alike_within_the_budget(train, learnt):
    done = train(warmup_mode="sheltered", **{**RUN, "policy": "pudica"})
    assert done.code == 0, done.stderr
    policy = done.policies["pudica"]
    assert policy["warmup_steps"] > 0 and policy["overruns"] == 0 and policy["budget_used"] <= 1
    assert done.digests() == learnt[0].digests()


def test_without_a_daemon_it_trains_on_and_says_so_once(train, learnt, tmp_path):
    socket = tmp_path / "none.sock"
    done = train(daemon=True, env={"PUDICA_SOCKET": str(socket)},
                 **{**RUN, "policy": "full,pudica,pudica:menu=full"})
    assert done.code == 0, done.stderr
    assert done.digests() == learnt[0].digests()
    assert len(re.findall(re.escape(str(socket)), done.stderr)) == 1, done.stderr
