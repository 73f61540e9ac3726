"""The Grafana dashboard asks for metrics that the daemon serves, and Prometheus finds them."""

import json
import os
import pathlib
import re
import subprocess
import urllib.request

import pytest
import unpacked
from real_daemon import RealDaemon
from simulated_runs import MIB, SimulatedRun
from waiting import wait_for

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
PUDICAD = os.environ.get("PUDICAD", "")
DASHBOARD = json.loads((ROOT / "configs/grafana-dashboard.json").read_text())
METRIC = re.compile(r"\bpudica_[a-z0-9_]+\b")


def expressions():
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def queries():
    return [variable["query"]["query"] for variable in DASHBOARD["templating"]["list"]
            if variable["type"] == "query"]


def test_panels_do_not_overlap_and_name_no_data_source():
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}"
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_every_expression_asks_for_a_metric():
    assert all(METRIC.search(text) for text in expressions() + queries())


@pytest.fixture(scope="module")
def served():
    """The lines of /metrics of a daemon with a run of a group, once all metrics are there."""
    if not PUDICAD:
        pytest.skip("PUDICAD does not name a daemon")
    with RealDaemon(PUDICAD) as daemon:
        daemon.ask("PUT", "/v1/groups/shared", {"total": 4096 * MIB})
        run = SimulatedRun("measured", group="shared")
        run_id = daemon.register(run.registration())
        daemon.push(run_id, [run.step() for _ in range(20)])
        daemon.push(run_id, [{"type": "snapshot", "snapshot": run.snapshot()}])
        wanted = {name for text in expressions() + queries() for name in METRIC.findall(text)}

        def lines():
            with urllib.request.urlopen(f"{daemon.address}/metrics", timeout=30) as answer:
                found = [line for line in answer.read().decode().splitlines() if line[:1] != "#"]
            missing = wanted - {line.split("{")[0].split(" ")[0] for line in found}
            print("missing:", missing)
            return None if missing else found

        return wait_for("every metric", lines)


def test_every_metric_is_served(served):
    assert served


def for_prometheus(expression):
    """An expression as Grafana sends it: with what is chosen in the place of its variables."""
    query = re.fullmatch(r"label_values\((.*), *\w+\)", expression)  # of Grafana, not of PromQL
    out = (query[1] if query else expression).replace("$run", ".*")
    assert "$" not in out, f"a variable that this test does not know: {out}"
    return out


# Grafana is no package of Debian; what it would ask is asked of Prometheus's own engine.
def test_prometheus_finds_something_by_every_expression(served, tmp_path):
    promtool = unpacked.promtool()
    if promtool is None:
        pytest.skip("no promtool: scripts/test unpacks it (Debian package prometheus)")
    series = [line.rpartition(" ") for line in served]
    texts = [for_prometheus(text) for text in expressions() + queries()]
    found = [{"expr": f"count({text}) > bool 0", "eval_time": "10m",
              "exp_samples": [{"labels": "{}", "value": 1}]} for text in texts]
    test = {"rule_files": [], "evaluation_interval": "15s", "tests": [{
        "interval": "15s", "promql_expr_test": found,
        "input_series": [{"series": name, "values": f"{value}+0x60"}
                         for name, _, value in series]}]}
    file = tmp_path / "dashboard.json"  # JSON is YAML
    file.write_text(json.dumps(test))
    done = subprocess.run([promtool, "test", "rules", str(file)], text=True, check=False,
                          capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
