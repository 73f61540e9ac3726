"""Every command against a daemon that answers with the examples of docs/http_api.md."""

import json
import os
import pathlib
import socket
import time

import jsonschema
import pytest

from conftest import ROOT, Cli, a_plan, a_run, api_example

HOSTILE = "evil\x1b[2J\x1b]0;title\x07\nname\t\u202e\u009b31m" + "x" * 5000


def test_status_is_a_stable_table_when_piped(cli):
    output = cli("status")
    assert output.code == 0 and output.stderr == ""
    header = output.stdout.splitlines()[0].split("\t")
    assert header[:8] == ["id", "name", "state", "status", "step", "steps_total", "policy",
                          "budget_bytes"]
    row = output.rows[0]
    assert (row["id"], row["name"], row["budget_bytes"]) == ("k3v9q2", "train", "629145600")
    assert row["budget_pending_bytes"] == "-"


def test_status_json_is_the_daemons(cli, daemon):
    value = cli("status", "--json").json
    assert value == {"runs": daemon.runs, "groups": []}
    one = cli("status", "train", "--json").json
    assert one["runs"][0]["budgets"][0]["source"] == "operator"


def test_status_all_asks_for_ended_runs(cli, daemon):
    daemon.runs.append(a_run(id="old", state="ended", status="oom"))
    assert len(cli("status").rows) == 1
    rows = cli("status", "--all").rows
    assert [row["status"] for row in rows] == ["-", "oom"]


def test_status_without_runs_points_to_the_doctor(cli, daemon):
    daemon.runs.clear()
    assert cli("status").rows == []
    assert cli("status").code == 0
    assert "pudica doctor" in cli.shown("status")


def test_an_unreachable_daemon_is_exit_code_3(folder):
    nobody = Cli(str(folder / "nothing.sock"))
    for words in (["status"], ["plans"], ["explain", "12x384"], ["estimate", "12x384"], ["models"],
                  ["budget", "train", "1GiB"], ["group"], ["top", "--once"], ["report", "train"]):
        output = nobody(*words)
        assert output.code == 3, words
        assert "no such socket" in output.stderr and output.stdout == "", words


def test_a_socket_where_nobody_listens_is_exit_code_3(folder):
    path = str(folder / "left.sock")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    output = Cli(path)("status")
    assert output.code == 3 and "nobody listens" in output.stderr


def test_rubbish_for_an_answer_is_a_failure(cli, daemon):
    for body in (b"", b"<html>", b"[]", b'"text"', b"\xff\xfe", b'{"runs":'):
        daemon.override["/v1/runs"] = (200, body)
        output = cli("status")
        assert output.code == 1, body
        assert "expected a JSON object" in output.stderr, body


@pytest.mark.parametrize("value", [
    {}, {"runs": None}, {"runs": {}}, {"runs": [1, None, "x", [], {}]},
    {"runs": [{"id": 5, "name": [], "state": {}, "budget_bytes": "x", "last": 3, "step": 1.5}]},
    {"runs": [{"id": "a", "budget_bytes": 1 << 70, "peak_bytes": -5, "cache": []}], "groups": [7]},
])
def test_fields_of_other_types_are_passed_over(cli, daemon, value):
    daemon.override["/v1/runs"] = (200, json.dumps(value).encode())
    assert cli("status").code == 0
    assert cli("top", "--once").code == 0
    assert cli.shown("status")


@pytest.mark.parametrize("status, code", [(400, 2), (404, 2), (409, 1), (413, 2), (426, 1),
                                          (500, 1), (503, 1)])
def test_refusals_have_their_exit_codes(cli, daemon, status, code):
    body = {"error": {"code": "x", "message": "the daemon's own words"}}
    daemon.override["/v1/runs/k3v9q2/budget"] = (status, json.dumps(body).encode())
    output = cli("budget", "train", "1GiB")
    assert output.code == code and "the daemon's own words" in output.stderr


def test_plans_are_those_of_the_only_run(cli):
    output = cli("plans")
    row = output.rows[0]
    assert row["key"] == "batch=12,source=384" and row["fits_up_to"] == "batch=12,source=390"
    assert row["plan.modes"] == "full,full,keep,keep,keep,keep,keep,keep"
    assert "full*2 keep*6" in cli.shown("plans")


def test_plans_json_follows_its_schema(cli, daemon):
    schema = json.loads((ROOT / "docs/schemas/plans.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    daemon.plans.append(a_plan(measured_peak_bytes=None, fits_up_to=[]))
    validator.validate(cli("plans", "--json").json)
    for wrong in (a_plan(key=5), a_plan(plan=None, key=""), a_plan(hits=-1),
                  {"key": "batch=1"}, a_plan(plan={"id": 1, "modes": ["kept"]})):
        assert not validator.is_valid({"run": "a", "plans": [wrong]}), wrong


def test_several_runs_need_a_name(cli, daemon):
    daemon.runs.append(a_run(id="zz", name="other\x1b[2J"))
    for words in (["plans"], ["explain", "12x384"], ["estimate", "12x384"], ["report"]):
        output = cli(*words)
        assert output.code == 2
        assert "k3v9q2 (train), zz (other\\x1B[2J)" in output.stderr
    assert cli("plans", "zz").code == 0


def test_no_run_is_a_failure_that_points_to_the_doctor(cli, daemon):
    daemon.runs.clear()
    output = cli("plans")
    assert output.code == 1 and "pudica doctor" in output.stderr


def test_explain_asks_with_shape_and_budget(cli, daemon):
    output = cli("explain", "batch=12,source=384", "train", "--budget", "600MiB", "--json")
    assert output.json == {**api_example("explain"), "run": "k3v9q2"}
    assert daemon.requests[-1][1:3] == ("/v1/runs/train/explain",
                                        {"shape": "batch=12,source=384", "budget": "600MiB"})
    rows = cli("explain", "12x384").rows
    assert rows[0]["mode"] == "full" and rows[0]["held_bytes"] == "1000"
    shown = cli.shown("explain", "12x384")
    assert "Keeping all" in shown and "encoder" in shown
    assert "Selective modes" in shown and "selective:0" in shown


def test_estimate_tells_what_a_shape_needs(cli, daemon):
    assert cli("estimate", "12x512", "--json").json["frontier"]
    assert "budget" not in daemon.requests[-1][2]
    row = cli("estimate", "12x512", "--budget", "6GiB").rows[0]
    assert row["fits"] == "true" and row["floor_peak_bytes"] == "500000"
    assert "3 keep, 5 full" in cli.shown("estimate", "12x512")


def test_bad_shapes_and_budgets_never_reach_the_daemon(cli, daemon):
    for words in (["explain", "12x"], ["estimate", "a b"], ["explain", "12x384", "--budget", "big"],
                  ["budget", "train", "lots"], ["budget", "train", "0"], ["budget", "train", "-5"],
                  ["budget", "train", "0.5"], ["group", "gpu0", "0.5"],
                  ["group", "gpu0", "-1GiB"]):
        output = cli(*words)
        assert output.code == 2, words
        assert "expected" in output.stderr, output.stderr
    assert daemon.requests == []


def test_a_file_that_is_no_socket_is_named(folder):
    (folder / "file").write_text("")
    output = Cli(str(folder / "file"))("status")
    assert output.code == 3 and "this is no socket" in output.stderr


def test_names_are_escaped_in_paths(cli, daemon):
    cli("budget", "../../v1/groups/x?a=b#c%2f", "1GiB")
    assert daemon.requests[-1][1] == "/v1/runs/../../v1/groups/x?a=b#c%2f"


def test_groups(cli, daemon):
    daemon.groups.append({"name": "gpu0", "total_bytes": 40 << 30, "assigned_bytes": 30 << 30,
                          "runs": [{"id": "k3v9q2", "share_bytes": 20 << 30, "need_bytes": 1,
                                    "budget_bytes": 30 << 30, "pending_bytes": None}]})
    assert cli("group").rows[0]["assigned_bytes"] == str(30 << 30)
    assert cli("group", "gpu0").rows[0]["id"] == "k3v9q2"
    assert cli("group", "--json").json["groups"] == daemon.groups
    unknown = cli("group", "gpu1")
    assert unknown.code == 2 and "expected one of: gpu0" in unknown.stderr
    assert cli("group", "gpu0", "40GiB").code == 0
    assert daemon.requests[-1] == ("PUT", "/v1/groups/gpu0", {}, {"total": "40GiB"})


def test_models(cli, daemon):
    assert cli("models").rows == []
    daemon.models.append({"fingerprint": "a b\n", "bytes": 4096, "recorded_steps": 3,
                          "distinct_shapes": 2, "runs": 1, "updated_at": "2026-01-01T12:00:00Z"})
    assert cli("models").rows[0]["fingerprint"] == "a b\\n"
    assert cli("models", "--json").json["models"] == daemon.models
    assert "4.0 KiB" in cli.shown("models")


def test_prune(cli, daemon):
    assert cli("prune", "--days", "30").rows[0] == {"removed_runs": "3", "database_bytes": "4096"}
    assert daemon.requests[-1] == ("POST", "/v1/prune", {}, {"older_than_seconds": 30 * 86400})
    assert "Removed 3 ended runs; the database holds 4.0 KiB." in cli.shown("prune", "--days", "0")
    assert cli("prune").code == cli("prune", "--days", "-1").code == 2


def test_models_rm(cli, daemon):
    daemon.models = [{"fingerprint": name} for name in ("3f9a", "3f9b", "a b\n", "3f9a81")]
    for given, meant in (("3f9a", "3f9a"), ("3f9a8", "3f9a81"), ("a", "a b\n")):
        output = cli("models", "rm", given)
        assert output.code == 0 and output.rows[0]["fingerprint"] == meant.replace("\n", "\\n")
        assert daemon.requests[-1][:2] == ("DELETE", f"/v1/models/{meant}")
    assert "Forgotten: 3f9b" in cli.shown("models", "rm", "3f9b")
    many, none = cli("models", "rm", "3f"), cli("models", "rm", "x")
    assert many.code == none.code == 2
    assert "3f9a, 3f9b, 3f9a81" in many.stderr and "begins with 'x'" in none.stderr
    assert [request[0] for request in daemon.requests].count("DELETE") == 4
    assert cli("models", "rm").code == 2


def control_characters(text):
    return [c for c in text if (ord(c) < 32 and c != "\n") or 0x7F <= ord(c) <= 0x9F
            or c in "\u202e\u2066\u200b"]


@pytest.mark.parametrize("words", [["status"], ["status", "k3v9q2"], ["plans"], ["explain", "1x2"],
                                   ["estimate", "1x2"], ["models"], ["group"], ["top", "--once"]])
def test_hostile_strings_reach_no_terminal(cli, daemon, words):
    daemon.runs = [a_run(**{name: HOSTILE for name in (
        "name", "user", "command", "model", "policy", "state", "state_reason", "group", "device",
        "budget_source")})]
    daemon.plans = [a_plan(key=HOSTILE, reason=HOSTILE, fits_up_to=[HOSTILE],
                           plan={"modes": [HOSTILE, HOSTILE]})]
    daemon.groups = [{"name": HOSTILE, "total_bytes": 5, "assigned_bytes": 4, "runs": []}]
    daemon.models = [{"fingerprint": HOSTILE, "updated_at": HOSTILE}]
    answer = {"key": HOSTILE, "reason": HOSTILE, "modes": {HOSTILE: 2},
              "layers": [{"class": HOSTILE, "mode": HOSTILE, "why": HOSTILE}]}
    for question in ("explain", "estimate"):
        daemon.override[f"/v1/runs/k3v9q2/{question}"] = (200, json.dumps(answer).encode())
    shown = cli.shown(*words, "--no-color")
    assert not control_characters(shown), shown
    assert all(len(line) <= 6000 for line in shown.splitlines())
    piped = cli(*words).stdout.replace("\t", " ")
    assert not control_characters(piped)
    assert cli(*words, "--json").stdout.isascii()


LONG_WHY = "recomputed: frees " + "1.5 MiB for 4.1 ms; " * 20 + "and that is the end of it"


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_reason_of_a_layer_is_never_cut(cli, daemon, columns):
    answer = api_example("explain")
    answer["layers"][0]["why"] = LONG_WHY
    daemon.override["/v1/runs/k3v9q2/explain"] = (200, json.dumps(answer).encode())
    shown = cli.shown("explain", "12x384", "--no-color", columns=columns)
    layers = shown.split("WHY", 1)[1].split("Selective modes")[0]
    assert " ".join(LONG_WHY.split()) in " ".join(
        word for word in layers.split() if word not in ("0", "encoder", "full", "1000", "B"))
    assert max(len(line) for line in layers.splitlines()) <= max(columns, 70)


def test_no_trunc_cuts_nothing(cli, daemon):
    daemon.runs = [a_run(name="n" * 300)]
    assert "n" * 300 not in cli.shown("status", columns=80)
    assert "n" * 300 in cli.shown("status", "--no-trunc", columns=80)


class HungDaemon:
    """A socket that takes connections and never answers."""

    def __init__(self, folder):
        self.socket = socket.socket(socket.AF_UNIX)
        self.path = str(folder / "hung.sock")
        self.socket.bind(self.path)
        self.socket.listen(64)


@pytest.fixture
def hung(folder):
    daemon = HungDaemon(folder)
    yield daemon
    daemon.socket.close()


# It took 30 seconds; the limits here are for a machine under load.
@pytest.mark.parametrize("words", [
    ["status"], ["status", "train"], ["plans"], ["explain", "12x384"], ["estimate", "12x384"],
    ["models"], ["budget", "train", "1GiB"], ["group"], ["group", "g", "1GiB"], ["top", "--once"],
    ["report", "train"], ["doctor"]])
def test_a_daemon_that_hangs_is_told_at_once(hung, words):
    began = time.monotonic()
    output = Cli(hung.path)(*words)
    assert time.monotonic() - began < 8
    assert output.code == 3, output
    assert "1500 ms" in output.stderr + output.stdout


def test_the_time_to_wait_is_the_users(hung):
    output = Cli(hung.path)("--timeout", "0.05", "status")
    assert output.code == 3 and "more than 50 ms" in output.stderr
    assert Cli(hung.path)("--timeout", "0", "status").code == 2


def test_names_that_are_not_utf8_are_shown(cli, daemon):
    body = json.dumps({"runs": [a_run(name="NAME")]}).encode().replace(b"NAME", b"a\xff\xfeb")
    daemon.override["/v1/runs"] = (200, body)
    assert cli("status").rows[0]["name"] == "a\ufffd\ufffdb"
    assert cli("status", "--json").json["runs"][0]["name"] == "a\ufffd\ufffdb"


def test_messages_of_the_daemon_cannot_break_the_terminal(cli, daemon):
    body = {"error": {"code": "x", "message": "no \x1b[2J\x07"}}
    daemon.override["/v1/runs"] = (404, json.dumps(body).encode())
    output = cli("status")
    assert output.code == 2 and "no \\x1B[2J\\x07" in output.stderr


def test_doctor_is_content_with_a_healthy_daemon(cli):
    output = cli("doctor")
    assert output.code == 0, output.stdout
    assert [row["level"] for row in output.rows] == ["ok"] * len(output.rows)
    assert "PUDICA_SOCKET" in output.stdout and "mode 0600" in output.stdout
    assert f"process {os.getpid()}" in output.stdout
    value = cli("doctor", "--json").json
    assert value["healthy"] and value["socket_from"] == "PUDICA_SOCKET"


def test_doctor_notes_that_no_run_was_registered(cli, daemon):
    daemon.runs.clear()
    output = cli("doctor")
    assert output.code == 0
    assert "no training has registered" in output.stdout
    assert "pudica-train --daemon" in output.stdout


def found(output, check):
    return next(row for row in output.rows if row["check"] == check)


def test_doctor_finds_each_problem(cli, daemon, folder):
    off = cli("doctor", env={"PUDICA_DISABLE": "1"})
    assert off.code == 1 and found(off, "enabled")["level"] == "problem"

    config = folder / "off.json"
    config.write_text('{"daemon": {"enabled": false}}')
    disabled = cli("doctor", "--config", str(config))
    assert disabled.code == 1 and "daemon.enabled is false" in disabled.stdout

    config.write_text('{"daemon": {"socket": "/elsewhere.sock"}}')
    elsewhere = cli("doctor", "--socket", daemon.socket, env={"PUDICA_CONFIG": str(config),
                                                              "PUDICA_SOCKET": None})
    assert elsewhere.code == 1 and "/elsewhere.sock" in elsewhere.stdout

    config.write_text('{"bugdet": 5}')
    assert "bugdet" in cli("doctor", "--config", str(config)).stdout

    daemon.version |= {"protocol": 9, "protocol_min": 7, "version": "9.0.0"}
    newer = cli("doctor")
    assert newer.code == 1
    assert "9.0.0, protocol 9" in newer.stdout and "protocol 1 to 1" in newer.stdout

    daemon.version["name"] = "nginx"
    assert "not that of pudicad" in cli("doctor").stdout


def test_doctor_tells_a_dead_socket_from_a_missing_one(folder):
    missing = Cli(str(folder / "none" / "x.sock"))("doctor")
    assert missing.code == 3 and "there is no directory" in missing.stdout
    assert "pudicad" in found(missing, "listener")["advice"]
    assert "no socket" in Cli(str(folder / "x.sock"))("doctor").stdout
    pathlib.Path(folder / "file").write_text("")
    assert "this is no socket" in Cli(str(folder / "file"))("doctor").stdout
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / "left.sock"))
    assert "has stopped" in Cli(str(folder / "left.sock"))("doctor").stdout
    long = Cli(str(folder / ("x" * 200)))("doctor")
    assert long.code == 3 and "expected at most 107" in long.stdout


def test_doctor_names_where_the_socket_comes_from(folder):
    runtime = Cli()("doctor", "--json", env={"XDG_RUNTIME_DIR": str(folder)}).json
    assert runtime["socket"] == f"{folder}/pudica/pudicad.sock"
    assert runtime["socket_from"] == "XDG_RUNTIME_DIR"
    argument = Cli()("doctor", "--json", "--socket", "/a.sock").json
    assert argument["socket_from"] == "--socket"


def test_doctor_warns_of_a_directory_that_others_may_write(folder, daemon, cli):
    os.chmod(folder, 0o777)
    output = cli("doctor")
    assert output.code == 3 and "stay away" in found(output, "directory")["advice"]
    assert "may be written by every user" in found(output, "directory")["found"]


def test_top_once_prints_once(cli):
    assert cli("top", "--once").rows[0]["id"] == "k3v9q2"
    assert cli("top", "--once", "--json").json["runs"][0]["id"] == "k3v9q2"
    shown = cli.shown("top", "--once")
    assert "pudicad 0.1.0, up 1 h 00 min, 1 run" in shown and "\x1b[?1049h" not in shown
