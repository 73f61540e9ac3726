"""GET /metrics by a strict reader of the Prometheus text format (and promtool where it is)."""

import re
import subprocess

import pudicad
import unpacked
from pudicad import Daemon

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')
VALUE = re.compile(r"[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|Inf|NaN)")


def parse(text):
    """{name: (type, {labels: value})}; every rule of the format that is broken is an error."""
    assert text.endswith("\n")
    families = {}
    name = None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert NAME.fullmatch(name) and name.startswith("pudica_"), line
            assert name not in families, f"{name} twice"
            families[name] = None
            continue
        if line.startswith("# TYPE "):
            _, _, typed, kind = line.split(" ")
            assert typed == name and families[name] is None, line
            assert kind in ("counter", "gauge"), line
            assert (kind == "counter") == name.endswith("_total"), line
            families[name] = (kind, {})
            continue
        match = re.fullmatch(r"([^{ ]+)(?:\{(.*)\})? (\S+)", line)
        assert match, line
        assert match[1] == name, f"{line}: not of the family {name}"
        assert VALUE.fullmatch(match[3]), line
        labels, rest = [], match[2] or ""
        while rest:
            label = LABEL.match(rest)
            assert label, line
            labels.append((label[1], label[2]))
            rest = rest[label.end():]
            assert not rest or (rest[0] == "," and len(rest) > 1), line
            rest = rest[1:]
        assert len({key for key, _ in labels}) == len(labels), line
        samples = families[name][1]
        assert tuple(labels) not in samples, f"{line}: twice"
        samples[tuple(labels)] = float(match[3])
    assert all(families.values())
    return families


def test_metrics_of_runs_come_and_go():
    odd = 'tr"ai\\n\n \u00e4{}'
    with Daemon() as daemon:
        run = daemon.register(odd)
        first = pudicad.step(1)
        first["record"]["host_peak_bytes"] = 4096
        first["record"]["recompute_seconds"] = 0.05
        daemon.events(run, first, pudicad.step(2, measured=7000), {
            "type": "snapshot", "snapshot": {"state": "planning", "base_bytes": 123,
                                             "cache": {"hits": 3, "misses": 2, "plans": 1}}})
        daemon.get("/v1/nothing")
        reply = daemon.get("/metrics")
        assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = reply.body.decode()
        metrics = parse(text)
        labels = (("run", run), ("name", 'tr\\"ai\\\\n\\n \u00e4{}'))
        for name, value in {"pudica_run_peak_bytes": 7000, "pudica_run_steps_total": 2,
                            "pudica_run_step_measured_bytes": 7000, "pudica_run_base_bytes": 123,
                            "pudica_run_host_peak_bytes": 4096,
                            "pudica_run_step_predicted_bytes": 5000, "pudica_run_step": 2,
                            "pudica_run_budget_bytes": 629145600,
                            "pudica_run_step_seconds_median": 0.25,
                            "pudica_run_recomputed_share": 0.2,
                            "pudica_run_recomputed_calls_share": 0.5,
                            "pudica_run_budget_used": 7000 / 629145600,
                            "pudica_run_cached_plans": 1}.items():
            assert metrics[name][1][labels] == value, name
        assert metrics["pudica_run_cache_lookups_total"][1][(*labels, ("result", "hit"))] == 3
        assert metrics["pudica_run_state"][1][(*labels, ("state", "planning"))] == 1
        assert metrics["pudica_run_state"][1][(*labels, ("state", "learning"))] == 0
        assert metrics["pudica_daemon_requests_total"][1][(("code", "404"),)] >= 1
        assert metrics["pudica_daemon_events_total"][1][()] == 3
        check_with_promtool(text)
        daemon.events(run, {"type": "end", "status": "ok"})
        metrics = parse(daemon.get("/metrics").body.decode())
        assert metrics["pudica_run_peak_bytes"][1] == {}
        assert metrics["pudica_runs"][1][()] == 0


def check_with_promtool(text):
    promtool = unpacked.promtool()
    if promtool is None:
        return  # the reader above is the check then
    done = subprocess.run([str(promtool), "check", "metrics"], input=text, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
