"""Commands that need no daemon: replay, config, run, and how arguments are refused."""

import json
import os
import subprocess
import sys

import pytest

from conftest import PROGRAM, RECORD, Cli, clean_environment

cli = Cli()


def test_replay_compares_policies_with_what_was_recorded():
    rows = cli("replay", str(RECORD), "--policy", "pudica,none,full").rows
    by_name = {row["policy"]: row for row in rows}
    assert list(by_name) == ["(recorded)", "pudica", "none", "full"]
    assert by_name["pudica"]["peak_bytes"] == by_name["(recorded)"]["peak_bytes"]
    assert int(by_name["none"]["overruns"]) > 0
    assert by_name["full"]["recomputed"] == by_name["full"]["layer_calls"] == "120"


def test_replay_under_the_recorded_policy_repeats_the_record():
    steps = cli("replay", str(RECORD), "--steps", "--json").json["policies"][0]["steps"]
    recorded = [json.loads(line) for line in RECORD.read_text().splitlines()]
    assert len(steps) == len(recorded) == 30
    for step, record in zip(steps, recorded):
        assert step["measured"] and step["peak_bytes"] == record["measured_bytes"]
        assert step["predicted_bytes"] == record["predicted_bytes"]
        assert step["modes"] == (record["modes"] or step["modes"])


def test_replay_takes_fractions_and_bytes_as_budgets():
    half = cli("replay", str(RECORD), "--budget", "0.5", "--json").json
    whole = cli("replay", str(RECORD), "--budget", "1.0", "--json").json
    floor = cli("replay", str(RECORD), "--budget", "0.0", "--json").json
    ends = floor["budget_bytes"] + whole["budget_bytes"]
    assert 2 * half["budget_bytes"] == pytest.approx(ends, 1e-6)
    of_half, of_whole = (value["policies"][0]["totals"] for value in (half, whole))
    assert of_whole["recomputed"] <= of_half["recomputed"]
    assert of_half["peak_bytes"] <= half["budget_bytes"]
    given = cli("replay", str(RECORD), "--budget", "40MiB", "--json").json
    assert given["budget_bytes"] == 40 << 20


def test_replay_steps_are_rows():
    rows = cli("replay", str(RECORD), "--policy", "full", "--steps").rows
    assert len(rows) == 30 and rows[0]["policy"] == "full" and rows[0]["recomputed"] == "4"


def test_replay_of_a_run_that_began_from_a_learned_state_says_what_it_does_not_know(tmp_path):
    records = [json.loads(line) for line in RECORD.read_text().splitlines()]
    pooled = tmp_path / "pooled.jsonl"
    pooled.write_text("".join(json.dumps(record) + "\n" for record in records[23:]))
    output = cli("replay", str(pooled), "--json", "--policy", "pudica,none")
    assert output.code == 0
    assert "began from a learned state" in output.stderr and "1 of 7 steps tell" in output.stderr
    assert "steps are left out" in output.stderr
    assert output.json["began_learned"] and output.json["profiles"] == 1
    for policy in output.json["policies"]:
        totals = policy["totals"]
        assert totals["steps"] + totals["unknown_steps"] == 7
        assert totals["overruns"] == 0
        assert totals["seconds"] is None or totals["timed_steps"] > 0
    assert not cli("replay", str(RECORD), "--json").json["began_learned"]


def test_replay_tolerates_a_last_line_that_was_cut_off(tmp_path):
    cut = tmp_path / "cut.jsonl"
    cut.write_text(RECORD.read_text()[:-3000])
    output = cli("replay", str(cut))
    assert output.code == 0 and "the last line" in output.stderr and "cut off" in output.stderr
    assert output.rows[1]["steps"] == "29"
    assert cli("replay", str(cut), "--json").json["truncated"] is True


def test_replay_names_file_and_line_of_what_is_wrong(tmp_path):
    lines = RECORD.read_text().splitlines(keepends=True)
    bad = tmp_path / "bad.jsonl"
    bad.write_text(lines[0] + "{}\n" + lines[1])
    output = cli("replay", str(bad))
    assert output.code == 2 and f"{bad}:2: step record" in output.stderr and output.stdout == ""
    bad.write_text(lines[0] + lines[1].replace('"step":2', '"step":"2"'))
    assert f"{bad}:2: step record: step" in cli("replay", str(bad)).stderr
    bad.write_text("root:x:0:0\n")
    said = cli("replay", str(bad)).stderr
    assert f"{bad}:1: step record: not JSON" in said and "exception" not in said
    bad.write_text("")
    assert "no step record" in cli("replay", str(bad)).stderr
    without = [json.loads(line) for line in lines]
    for record in without:
        record.pop("profiles", None)
    bad.write_text("".join(json.dumps(record) + "\n" for record in without))
    refused = cli("replay", str(bad))
    assert refused.code == 2 and "no profile of a learning step" in refused.stderr


def test_replay_refuses_what_it_cannot_use(tmp_path):
    for words, text in (
            (["/nonexistent.jsonl"], "cannot read"), ([str(tmp_path)], "folder"),
            ([str(RECORD), "--policy", "pudcia"], "did you mean 'pudica'"),
            ([str(RECORD), "--budget", "auto"], "'auto' seen"),
            ([str(RECORD), "--budget", "12 apples"], "expected"),
            ([str(RECORD), "--device", "tpu"], "tpu"),
            (["/dev/null"], "regular file")):
        output = cli("replay", *words)
        assert output.code == 2 and text in output.stderr, output.stderr


@pytest.mark.parametrize("content, expected", [
    ({"policy": "pudcia"}, "policy: unknown policy 'pudcia'"),
    ({"policy": "every_n:n=0"}, "policy: "),
    ({"daemon": {"socket": "x" * 200}}, "a path of 200 characters, expected at most 107")])
def test_config_check_refuses_what_a_start_refuses(tmp_path, content, expected):
    file = tmp_path / "pudica.json"
    file.write_text(json.dumps(content))
    output = cli("config", "check", str(file))
    assert output.code == 2 and expected in output.stderr, output.stderr
    file.write_text(json.dumps({"policy": "mimose:rule=code"}))
    assert cli("config", "check", str(file)).code == 0


def test_config_check_prints_origins_or_every_error(tmp_path):
    good = tmp_path / "good.json"
    good.write_text('{"budget": "600MiB", "warmup": {"max_steps": 12}}')
    rows = {row["key"]: row for row in cli("config", "check", str(good)).rows}
    assert rows["budget"] == {"key": "budget", "value": "600MiB", "from": str(good)}
    assert rows["warmup.max_steps"]["value"] == "12"
    assert rows["cache.capacity"]["from"] == "default"

    bad = tmp_path / "bad.json"
    bad.write_text('{"budget": -1, "warmpu": {}, "cache": {"capacity": "x"}}')
    output = cli("config", "check", str(bad))
    assert output.code == 2 and output.stdout == ""
    assert all(word in output.stderr for word in ("budget", "warmpu", "cache.capacity"))
    assert len(output.stderr.splitlines()) == 3
    value = cli("config", "check", str(bad), "--json")
    assert value.code == 2 and len(value.json["errors"]) == 3
    assert cli("config", "check", str(tmp_path / "none.json")).code == 2


def test_config_show_lets_the_environment_win(tmp_path):
    file = tmp_path / "pudica.json"
    file.write_text('{"log": {"level": "error"}, "daemon": {"group": "gpu0"}}')
    env = {"PUDICA_CONFIG": str(file), "PUDICA_LOG": "debug", "PUDICA_BUDGET": "0.5",
           "PUDICA_SOCKET": "/s", "PUDICA_GROUP": "gpu1"}
    rows = {row["key"]: row for row in cli("config", "show", env=env).rows}
    assert rows["log.level"] == {"key": "log.level", "value": "debug", "from": "PUDICA_LOG"}
    assert rows["budget"]["from"] == "PUDICA_BUDGET"
    assert rows["daemon.socket"]["from"] == "PUDICA_SOCKET"
    assert rows["daemon.group"]["value"] == "gpu1"
    assert cli("config", "show").rows[0]["from"] == "default"
    refused = cli("config", "show", env={"PUDICA_LOG": "loud"})
    assert refused.code == 2 and "PUDICA_LOG" in refused.stderr


def test_run_sets_the_environment_and_becomes_the_command(tmp_path):
    config = tmp_path / "c.json"
    config.write_text("{}")
    show = "import os; print({k: v for k, v in os.environ.items() if k.startswith('PUDICA')})"
    output = cli("run", "--budget", "0.5", "--socket", "s.sock", "--config", "c.json", "--",
                 sys.executable, "-c", show, cwd=tmp_path)
    assert output.code == 0
    assert f"'PUDICA_SOCKET': '{tmp_path}/s.sock'" in output.stdout
    # A fraction as in pudica-train: the command's own longest batches are the measure.
    assert "'PUDICA_BUDGET': 'between(0.5)'" in output.stdout
    assert f"'PUDICA_CONFIG': '{config}'" in output.stdout
    assert "runs without the daemon" in output.stderr


@pytest.mark.parametrize("given, set_to", [("0.4", "between(0.4)"), ("between(0.25)",) * 2,
                                           ("18GiB", "19327352832B"), ("auto", "auto")])
def test_run_says_what_a_budget_means_to_a_training(given, set_to):
    show = "import os; print(os.environ['PUDICA_BUDGET'])"
    assert cli("run", "--budget", given, "--", sys.executable, "-c", show).stdout.strip() == set_to


def test_replay_takes_what_run_sets():
    fraction = cli("replay", str(RECORD), "--budget", "0.5", "--json").json
    between = cli("replay", str(RECORD), "--budget", "between(0.5)", "--json").json
    assert fraction["budget_bytes"] == between["budget_bytes"]


def test_run_passes_the_exit_code_and_refuses_bad_input(tmp_path):
    assert cli("run", "--", "sh", "-c", "exit 7").code == 7
    missing = cli("run", "--", "/nonexistent/program")
    assert missing.code == 2 and "cannot start" in missing.stderr
    assert cli("run", "--budget", "much", "--", "true").code == 2
    assert cli("run", "--config", "/nonexistent.json", "--", "true").code == 2
    off = cli("run", "--", "true", env={"PUDICA_DISABLE": "1"})
    assert off.code == 0 and "PUDICA_DISABLE" in off.stderr


def test_usage_errors_are_exit_code_2():
    for words in (["statsu"], ["status", "--nonsense"], ["budget"], ["explain"], ["--json"],
                  ["status", "a", "b"], ["completion", "tcsh"], ["config"], ["config", "other"],
                  ["run"], ["status", "--", "x"], ["top", "--interval", "never"]):
        output = cli(*words)
        assert output.code == 2 and output.stdout == "", words
        assert output.stderr.startswith("pudica: "), words
    assert "did you mean 'status'" in cli("statsu").stderr


def test_help_and_version():
    assert cli().code == 0 and "Subcommands" in cli().stdout
    for words in (["--help"], ["status", "--help"], ["config", "check", "-h"]):
        output = cli(*words)
        assert output.code == 0 and "Exit codes" in output.stdout, words
    assert cli("--version").stdout == "pudica 0.1.0, protocol 1\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_output_that_cannot_be_written_is_a_failure():
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, "config", "show"], stdout=full, stderr=subprocess.PIPE,
                              env=clean_environment({}))
    assert done.returncode == 1 and b"cannot be written" in done.stderr
