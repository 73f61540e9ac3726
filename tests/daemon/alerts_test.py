"""configs/prometheus-rules.yml over what the daemon really serves, by Prometheus's own promtool."""

import json
import os
import pathlib
import re
import subprocess

import pudicad
import pytest
import unpacked
from metrics_test import parse
from pudicad import Daemon
from waiting import wait_for

RULES = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"]) / "configs/prometheus-rules.yml"
METRIC = re.compile(r"\bpudica_[a-z0-9_]+\b")
STATE = re.compile(r'state="([a-z_]+)"')
EXPRESSIONS = re.findall(r"expr: (?:\|\n((?: {10,}.*\n)+)|(.*\n))", RULES.read_text())
# What fires has the labels of its metric too.
ALERTS = {"PudicaRunOverBudget": "", "PudicaRunRevoking": "",
          "PudicaRunStandingDown": ', state="standing_down"', "PudicaRunLost": ', state="lost"'}


@pytest.fixture(scope="module")
def promtool():
    found = unpacked.promtool()
    if found is None:
        pytest.skip("no promtool: scripts/test unpacks it (Debian package prometheus)")
    return str(found)


def scraped(daemon):
    """{series: value} as a scrape has them."""
    families = parse(daemon.get("/metrics").body.decode())
    series = {}
    for name, (_, samples) in families.items():
        for labels, value in samples.items():
            inner = ",".join(f'{key}="{text}"' for key, text in labels)
            series[f"{name}{{{inner}}}" if inner else name] = value
    return series


def test_every_metric_and_every_state_is_served():
    texts = [one or other for one, other in EXPRESSIONS]
    assert len(texts) == len(ALERTS)
    with Daemon() as daemon:
        run = daemon.register("named")
        daemon.events(run, pudicad.step(1))
        served = scraped(daemon)
    names = {series.split("{")[0] for series in served}
    for text in texts:
        wanted = set(METRIC.findall(text))
        assert wanted and wanted <= names, text
    states = {state for text in texts for state in STATE.findall(text)}
    assert states == {"standing_down", "lost"}
    for state in states:
        assert any(f'state="{state}"' in series for series in served), state


def check(promtool, tmp_path, series, at, firing):
    """The alerts that fire at `at`, as (alert, severity, run, name): exactly these."""
    samples = [{"labels": f'{{__name__="ALERTS", alertname="{alert}", alertstate="firing", '
                          f'name="{name}", run="{run}", severity="{severity}"{ALERTS[alert]}}}',
                "value": 1}
               for alert, severity, run, name in firing]
    test = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [{
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": 'ALERTS{alertstate="firing"}', "eval_time": at,
                              "exp_samples": samples}]}]}
    file = tmp_path / "alerts.json"  # JSON is YAML
    file.write_text(json.dumps(test))
    done = subprocess.run([promtool, "test", "rules", str(file)], text=True, check=False,
                          capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_well_formed(promtool):
    done = subprocess.run([promtool, "check", "rules", str(RULES)], text=True, check=False,
                          capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


def test_metrics_of_real_runs_fire_each_alert_for_its_run_only(promtool, tmp_path):
    def revoked(number):
        step = pudicad.step(number)
        step["record"]["revocations"] = 2
        return step

    overrun = pudicad.step(11)
    overrun["record"]["overrun"] = True
    more = [pudicad.step(number) for number in range(11, 51)]
    down = {"type": "snapshot", "snapshot": {"state": "standing_down", "state_reason": "odd"}}
    then = {"well": more, "over": [overrun, *more[1:]], "down": [*more, down],
            "revoking": [revoked(number) if number % 5 == 0 else pudicad.step(number)
                         for number in range(11, 51)]}
    with Daemon() as daemon:
        runs = {name: daemon.register(name) for name in then}
        for run in runs.values():
            daemon.events(run, *(pudicad.step(number) for number in range(1, 11)))
        before = scraped(daemon)
        for name, run in runs.items():
            daemon.events(run, *then[name])
        after = scraped(daemon)
    series = {name: (f"{before[name]}+0x4" if name in before else "_x5") + f" {value}+0x40"
              for name, value in after.items()}
    series["pudica_daemon_uptime_seconds"] = "86400+60x45"
    check(promtool, tmp_path, series, "4m", [])
    check(promtool, tmp_path, series, "11m", [
        ("PudicaRunOverBudget", "critical", runs["over"], "over"),
        ("PudicaRunRevoking", "warning", runs["revoking"], "revoking"),
        ("PudicaRunStandingDown", "warning", runs["down"], "down")])


def test_a_real_run_that_falls_silent_is_named(promtool, tmp_path):
    with Daemon(config={"run_timeout_seconds": 1}) as daemon:
        run = daemon.register("silent")
        before = scraped(daemon)
        wait_for("the run to be lost", lambda: not daemon.get("/v1/runs").json()["runs"])
        after = scraped(daemon)
    series = {name: f"{before[name]}+0x4" + (f" {after[name]}+0x9" if name in after else "")
              for name in before}
    check(promtool, tmp_path, series, "4m", [])
    check(promtool, tmp_path, series, "6m", [("PudicaRunLost", "warning", run, "silent")])


def of(metric, name):
    return f'{metric}{{run="{name}1",name="{name}"}}'


def test_a_tenth_is_not_more_than_a_tenth_and_a_few_steps_tell_nothing(promtool, tmp_path):
    series = {}
    for name, steps, revoked in (("tenth", 10, 1), ("more", 10, 2), ("few", 1, 1)):
        series[of("pudica_run_steps_total", name)] = f"0+{steps}x40"
        series[of("pudica_run_revoked_steps_total", name)] = f"0+{revoked}x40"
    check(promtool, tmp_path, series, "30m", [("PudicaRunRevoking", "warning", "more1", "more")])


def test_overruns_of_before_the_daemon_began_are_no_news(promtool, tmp_path):
    overruns = of("pudica_run_overruns_total", "old")
    told = {"pudica_daemon_uptime_seconds": "0+60x40", overruns: "0 0 5+0x40"}
    for minute in (3, 11, 14, 20):
        check(promtool, tmp_path, told, f"{minute}m", [])
    again = {**told, overruns: "0 0 5+0x18 6+0x20"}
    check(promtool, tmp_path, again, "22m",
          [("PudicaRunOverBudget", "critical", "old1", "old")])
