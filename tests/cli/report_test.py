"""The page of a run: complete, safe, and asking nobody for anything."""

import html.parser
import json
import re
import shutil
import subprocess

import pytest

from conftest import RECORD, Cli, a_plan, a_run

VOID = {"meta", "br", "hr"}


class Page(html.parser.HTMLParser):
    """Checks that tags close in order and collects texts."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.attributes = [], text, []
        self.feed(text)
        assert self.open == []
        data = re.search(r'id="data">(.*?)</script>', text, re.S)[1]
        self.data = json.loads(data)

    def handle_starttag(self, tag, attributes):
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def report(cli, name, folder):
    out = folder / "report.html"
    output = cli("report", str(name), "--out", str(out))
    assert output.code == 0, output.stderr
    assert output.stdout == f"{out}\n"
    assert [path.name for path in folder.iterdir() if path.name.startswith("report")] == [
        "report.html"]
    return Page(out.read_text())


def test_a_record_becomes_a_page(tmp_path):
    page = report(Cli(), RECORD, tmp_path)
    recorded = [json.loads(line) for line in RECORD.read_text().splitlines()]
    assert page.data["peak"] == [record["measured_bytes"] for record in recorded]
    assert page.data["predicted"] == [record["predicted_bytes"] or 0 for record in recorded]
    assert len(page.data["plans"]) == len({record["key"] for record in recorded})
    assert "stayed within its budget in all of 30 steps" in page.text
    assert "{{" not in page.text


def test_a_run_becomes_a_page(cli, folder):
    page = report(cli, "train", folder)
    assert page.data["step"] == [41] and page.data["shape"] == ["12x384"]
    assert page.data["plans"][0]["modes"][:2] == ["full", "full"]
    assert "operator" in page.text


def test_the_page_asks_the_network_for_nothing(tmp_path):
    page = report(Cli(), RECORD, tmp_path)
    for word in ("src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest", "import("):
        assert word not in page.text


def test_hostile_strings_stay_text(cli, daemon, folder):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J{{data}}"
    daemon.runs = [a_run(**{name: evil for name in ("name", "model", "device", "policy", "state",
                                                    "state_reason", "user", "started_at")})]
    daemon.runs[0]["last"]["key"] = evil
    daemon.plans = [a_plan(key=evil, plan={"modes": [evil]})]
    page = report(cli, "k3v9q2", folder)
    assert "<img" not in page.text and page.text.count("<script") == 2
    assert "onerror" not in dict(page.attributes) and "\x1b" not in page.text


def test_a_run_without_steps_has_a_page(cli, daemon, folder):
    run = a_run(last=None)
    daemon.runs, daemon.plans = [run], []
    daemon.override["/v1/runs/train"] = (200, json.dumps({**run, "steps": []}).encode())
    assert "No step of train has ended yet" in report(cli, "train", folder).text


def test_what_cannot_be_reported_is_refused(cli, tmp_path):
    assert cli("report", "/nonexistent/run.jsonl").code == 2
    assert cli("report", "nobody").code == 2
    unwritable = cli("report", "train", "--out", "/nonexistent/folder/out.html")
    assert unwritable.code == 1 and "cannot write" in unwritable.stderr
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert cli("report", str(empty)).code == 2


def browser():
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
                None)


@pytest.mark.skipif(browser() is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [360, 1600])
def test_a_browser_draws_the_charts_without_complaint(tmp_path, width):
    report(Cli(), RECORD, tmp_path)
    done = subprocess.run(
        [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
         f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},2400",
         "--virtual-time-budget=4000", "--dump-dom", f"file://{tmp_path / 'report.html'}"],
        capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert ":CONSOLE" not in done.stderr, done.stderr
    drawn = {name: body for name, body in re.findall(
        r'<div class="chart" id="(\w+)">(.*?)</section>', done.stdout, re.S)}
    assert drawn["memory"].count("<polyline") == 1
    assert drawn["time"].count("<circle") == 30
    assert drawn["prediction"].count("<circle") == 28
    assert drawn["plans"].count("<rect") >= 4
