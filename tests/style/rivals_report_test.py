"""Sums, table and figure of scripts/bench rivals say what its cells hold."""

import os
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

import pytest

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
sys.path.insert(0, str(ROOT / "scripts/lib"))

import rivals_report  # noqa: E402


def trained(time, peak, **changes):
    return {"status": "ok", "detail": None, "cpu_time_vs_none": time, "peak_bytes": peak,
            "budget_used": peak / 150, "same_parameters": True, **changes}


def dead():
    return trained(None, 0, status="oom", budget_used=None)


def cell(budget, seed, **rows):
    return {"trace": "SQuAD", "budget": budget, "seed": seed, "floor_bytes": 100,
            "keep_all_bytes": 200, "rows": {name.replace("_", " "): row
                                            for name, row in rows.items()}}


@pytest.fixture
def cells():
    return [
        cell(0.2, 1, none=trained(1.0, 200), pudica=trained(1.1, 140), dtr=trained(2.2, 150)),
        cell(0.2, 2, none=trained(1.0, 200), pudica=trained(1.1, 120), dtr=dead()),
        cell(0.5, 1, none=trained(1.0, 200), pudica=trained(1.0, 150), dtr=trained(1.6, 160)),
    ]


def result_of(cells):
    return {"traces": {"base": "none", "cells": cells,
                       "summary": rivals_report.summary(cells, "pudica")}}


def test_means_are_over_what_ended_well(cells):
    found = rivals_report.summary(cells, "pudica")
    assert list(found) == ["none", "pudica", "dtr"]
    assert (found["dtr"]["cells"], found["dtr"]["ended_well"]) == (3, 2)
    assert found["dtr"]["time"]["mean"] == pytest.approx((2.2 * 1.6) ** 0.5, abs=1e-4)
    # Of the cells in which both ended: 2 and 1.6.
    assert found["dtr"]["time_over_ours"]["mean"] == pytest.approx(3.2 ** 0.5, abs=1e-4)
    assert found["dtr"]["by_budget"]["0.2"]["mean"] == 2.2
    assert found["pudica"]["by_budget"]["0.5"]["mean"] == 1.0
    assert found["pudica"]["peak_place_median"] == 0.4
    assert (found["dtr"]["cells_over_budget"], found["pudica"]["cells_over_budget"]) == (1, 0)


def test_a_row_that_never_ended_well_has_no_number(cells):
    for one in cells:
        one["rows"]["sac"] = dead()
    found = rivals_report.summary(cells, "pudica")["sac"]
    assert found["time"] is None and found["ended_well"] == 0
    assert found["by_budget"] == {"0.2": None, "0.5": None}
    text = "\n".join(rivals_report.page(result_of(cells)))
    assert "| `sac` | 0 of 3 | - | - | - | - | - | - | - |" in text


def test_the_table_has_every_row_and_every_reason(cells):
    cells[0]["rows"]["torch.compile"] = {"status": "failed", "detail": "no compiler <g++>"}
    text = "\n".join(rivals_report.page(result_of(cells)))
    for name in ("none", "pudica", "dtr", "torch.compile"):
        assert re.search(rf"^\| `{re.escape(name)}` \| \d of \d \|", text, re.MULTILINE), name
    assert "`torch.compile`: no compiler <g++>" in text
    assert "1.066 (1.050 to 1.100)" in text, "the mean of pudica, with the quartiles over cells"


def test_a_policy_with_other_numbers_is_told(cells):
    cells[1]["rows"]["pudica"]["same_parameters"] = False
    text = "\n".join(rivals_report.page(result_of(cells)))
    assert re.search(r"^\| `pudica` .*\| others in 1 \|$", text, re.MULTILINE)
    assert re.search(r"^\| `dtr` .*\| the same \|$", text, re.MULTILINE)


def test_other_numbers_are_told():
    rows = {"plain": {"status": "ok", "time_of_plain": {"total": 1.0}, "peak_bytes": None,
                      "budget_used": None, "same_parameters": True},
            "torch.compile": {"status": "ok", "time_of_plain": {"total": 0.8}, "peak_bytes": 190,
                              "budget_used": 1.2, "same_parameters": False}}
    cells = [{**cell(0.4, 1), "rows": rows}]
    found = rivals_report.summary(cells, "policy pudica")
    assert found["torch.compile"]["other_numbers"] == 1 and found["plain"]["other_numbers"] == 0
    assert found["plain"]["cells_over_budget"] is None, "it was not metered"
    text = "\n".join(rivals_report.page({"models": {"base": "plain", "cells": cells,
                                                    "summary": found}}))
    assert "others in 1" in text


def test_the_figure_is_drawn_of_the_same_rows(cells):
    cells[0]["rows"]["a<b>&c"] = trained(1.3, 120)
    drawn = rivals_report.figure(result_of(cells))
    image = xml.fromstring(drawn)
    words = [text.text for text in image.iter("{http://www.w3.org/2000/svg}text")]
    for name in ("pudica", "dtr", "a<b>&c"):
        assert words.count(name) == 2, "a line by budget and a bar"
    width, height = map(float, image.attrib["viewBox"].split()[2:])
    for text in image.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 <= float(text.attrib["x"]) <= width and 0 < float(text.attrib["y"]) < height
    assert "nan" not in drawn


def test_one_budget_has_no_line(cells):
    drawn = rivals_report.figure(result_of(cells[:2]))
    assert "by budget" not in drawn and "pudica" in drawn


def test_where_nothing_ended_well_there_is_still_a_page_and_a_figure(cells):
    for one in cells:
        one["rows"] = {name: dead() if name != "none" else row
                       for name, row in one["rows"].items()}
    result = result_of(cells)
    assert "0 of 3" in "\n".join(rivals_report.page(result))
    assert xml.fromstring(rivals_report.figure(result)) is not None


def test_labels_that_would_lie_on_each_other_are_moved_apart():
    moved = rivals_report._apart([100, 101, 99, 40], 15, 110)
    ordered = sorted(moved)
    assert all(below - above >= 15 for above, below in zip(ordered, ordered[1:]))
    assert max(moved) <= 110 and moved[3] == 40
    assert moved[2] < moved[0] < moved[1], "in their order"


def test_the_short_table_has_what_was_measured_of_its_rows(cells):
    for one in cells:
        one["rows"]["policy pudica"] = one["rows"].pop("pudica")
        one["rows"]["policy mimose"] = trained(1.5, 210, same_parameters=False)
        one["rows"]["policy sac"] = trained(1.5, 150)
    lines = list(rivals_report.short_table(result_of(cells)["traces"]))
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| `mimose`", "| `pudica`"]
    assert lines[2].endswith("| 1.10 | 3 of 3 | others in 3 |")
    assert lines[3].endswith("| 0.40 | 0 of 3 | the same |")
