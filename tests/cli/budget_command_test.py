"""`pudica budget` against a daemon that answers with the examples of docs/http_api.md."""

import re

import pytest

from conftest import a_plan, a_run


def test_budget_waits_for_its_step_and_tells_what_was_taken(cli, daemon):
    output = cli("budget", "train", "18GiB")
    assert output.code == 0, output.stderr
    put = ("PUT", "/v1/runs/k3v9q2/budget", {}, {"budget": "18GiB"})
    assert put in daemon.requests, "by its id"
    row = output.rows[0]
    assert row["effective"] == "next step" and row["step"] == "42"
    assert (row["taken_bytes"], row["measured_bytes"]) == (str(18 << 30), str(17 << 30))
    assert float(row["recompute_seconds"]) == 0.031
    value = cli("budget", "train", "18GiB", "--json").json
    assert value["seq"] == 3 and value["taken"]["budget_bytes"] == 18 << 30
    shown = cli.shown("budget", "train", "18GiB")
    assert "18.0 GiB from step 42 on" in shown
    assert "17.0 GiB, 94.4 % of it in the first step under it" in shown
    assert "31 ms of 250 ms (12.4 %), before 20 ms of 250 ms (8.0 %)" in shown


def test_a_budget_below_the_floor_is_told_as_what_it_becomes(cli, daemon):
    daemon.runs = [a_run(floor_bytes=83 << 20)]
    daemon.taken = {**daemon.taken, "budget_bytes": 83 << 20, "measured_bytes": 82 << 20}
    output = cli("budget", "train", "10MiB", "--json")
    assert output.code == 0
    assert "10.0 MiB is below the floor of train" in output.stderr and "83.0 MiB" in output.stderr
    assert output.json["taken"]["budget_bytes"] == 83 << 20


def test_a_budget_need_not_be_waited_for(cli, daemon):
    daemon.taken = None
    for words in (["--no-wait"], ["--wait", "0"]):
        output = cli("budget", "train", "18GiB", *words)
        assert output.code == 0 and output.rows[0]["taken_bytes"] == "-"
        assert daemon.requests[-1][0] == "PUT", "nobody is asked afterwards"
    assert "from its next step on" in cli.shown("budget", "train", "18GiB", "--no-wait")
    assert "no step was over under it" in cli.shown("budget", "train", "18GiB", "--wait", "0.3")
    assert cli("budget", "train", "18GiB", "--wait", "-1").code == 2


def test_a_dry_run_changes_nothing(cli, daemon):
    output = cli("budget", "train", "16GiB", "--dry-run", "--json")
    assert output.code == 0, output.stderr
    assert all(request[0] == "GET" for request in daemon.requests)
    assert daemon.requests[-1][1:3] == (
        "/v1/runs/k3v9q2/estimate", {"shape": "batch=12,source=384", "budget": str(16 << 30)})
    assert output.json["would_take_bytes"] == 16 << 30
    assert output.json["estimate"]["predicted_peak_bytes"] == 612000
    below = cli("budget", "train", "1MiB", "--dry-run")
    assert below.rows[0]["would_take_bytes"] == "500000000" and "below the floor" in below.stderr
    assert "nothing was changed" in cli.shown("budget", "train", "16GiB", "--dry-run")


# The last step's shape may fit where the run does not.
def test_a_dry_run_answers_for_the_longest_shape(cli, daemon):
    daemon.longest_keys = ["batch=4,source=500", "batch=16,source=200", "batch=12,source=384"]
    daemon.plans = [a_plan(), a_plan(key="batch=4,source=512")]
    daemon.estimates = {
        "batch=12,source=384": {"key": "batch=12,source=384"},
        "batch=4,source=512": {"key": "batch=4,source=512", "floor_peak_bytes": 900 << 20,
                               "fits": False},
        "batch=16,source=200": {"key": "batch=16,source=200", "floor_peak_bytes": 400 << 20}}
    output = cli("budget", "train", "600MiB", "--dry-run", "--json")
    assert output.code == 0, output.stderr
    asked = [query["shape"] for _, path, query, _ in daemon.requests if path.endswith("/estimate")]
    assert sorted(asked) == ["batch=12,source=384", "batch=16,source=200", "batch=4,source=512"], (
        "no shape that another one covers, none twice")
    assert output.json["estimate"]["key"] == "batch=4,source=512"
    assert output.json["last_estimate"]["key"] == "batch=12,source=384"
    longest, last = cli("budget", "train", "600MiB", "--dry-run").rows
    assert (longest["key"], longest["fits"], longest["shape"]) == (
        "batch=4,source=512", "false", "longest")
    assert (last["key"], last["fits"], last["shape"]) == ("batch=12,source=384", "true", "last")
    shown = cli.shown("budget", "train", "600MiB", "--dry-run", "--no-color")
    assert re.search(r"Fits +no: the longest shape", shown)
    assert "batch=4,source=512: needs 900.0 MiB with every layer recomputed" in shown


@pytest.mark.parametrize("given, expected", [("-100MiB", 500 << 20), ("+1GiB", 1624 << 20)])
def test_a_budget_may_be_so_much_less_or_more_than_now(cli, daemon, given, expected):
    output = cli("budget", "train", given, "--dry-run", "--json")
    assert output.code == 0, output.stderr
    assert output.json["budget_bytes"] == expected
    cli("budget", "train", given, "--no-wait")
    assert daemon.requests[-1][3] == {"budget": expected}


def test_a_change_of_a_budget_that_makes_no_sense_is_refused(cli, daemon):
    for given in ("-", "-x", "--5", "-5", "+9", "-600MiB", "-1TiB", "+9e30", "+-5"):
        assert cli("budget", "train", given).code == 2, given
    daemon.runs = [a_run(budget_bytes=0)]
    unlimited = cli("budget", "train", "-1GiB")
    assert unlimited.code == 2 and "has no limit" in unlimited.stderr
    assert all(request[0] == "GET" for request in daemon.requests)


def test_bytes_in_two_words_are_named(cli):
    output = cli("budget", "train", "80", "MiB")
    assert output.code == 2 and "write 80MiB as one word" in output.stderr


@pytest.mark.parametrize("words", [("budget", "train"), ("group", "gpu0")])
def test_a_few_bytes_are_a_unit_that_was_forgotten(cli, daemon, words):
    output = cli(*words, "12")
    assert output.code == 2
    assert "BYTES: '12' without a unit is bytes" in output.stderr and "12GiB" in output.stderr
    assert all(request[0] == "GET" for request in daemon.requests)
    assert cli(*words, "12B").code == 0


def test_a_run_that_has_ended_takes_no_budget(cli, daemon):
    daemon.runs = [a_run(state="ended", status="ok")]
    output = cli("budget", "train", "1GiB")
    assert output.code == 1 and "has ended (ok)" in output.stderr
    assert all(request[0] == "GET" for request in daemon.requests)
