"""The Grafana dashboard asks for metrics that the daemon serves."""

import json
import os
import pathlib
import re
import urllib.request

import pytest
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


def test_every_metric_is_served():
    if not PUDICAD:
        pytest.skip("PUDICAD does not name a daemon")
    with RealDaemon(PUDICAD) as daemon:
        daemon.ask("PUT", "/v1/groups/shared", {"total": 4096 * MIB})
        run = SimulatedRun("measured", group="shared")
        run_id = daemon.register(run.registration())
        daemon.push(run_id, [run.step() for _ in range(20)])
        daemon.push(run_id, [{"type": "snapshot", "snapshot": run.snapshot()}])
        wanted = {name for text in expressions() + queries() for name in METRIC.findall(text)}

        def are_served():
            with urllib.request.urlopen(f"{daemon.address}/metrics", timeout=30) as answer:
                lines = answer.read().decode().splitlines()
            served = {line.split("{")[0].split(" ")[0] for line in lines if line[:1] != "#"}
            print("missing:", wanted - served)
            return wanted <= served

        wait_for("every metric", are_served)
