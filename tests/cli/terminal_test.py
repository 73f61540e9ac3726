"""What a person sees: tables on a terminal, and `pudica top`."""

import os
import re
import signal
import subprocess

import pytest

from conftest import PROGRAM, Cli, a_run, clean_environment

ENTER, LEAVE = "\x1b\\[\\?1049h", "\x1b\\[\\?1049l"


def test_the_table_is_aligned_and_has_a_bar(cli):
    shown = cli.shown("status", "--no-color")
    header, row = shown.splitlines()
    assert header.split()[:5] == ["ID", "NAME", "STATE", "STEP", "BUDGET"]
    assert "41/100" in row and "600.0 MiB" in row.replace("600 MiB", "600.0 MiB")
    assert re.search("\u2588{10} 100 %", row)
    assert header.index("BUDGET") + len("BUDGET") == row.index("MiB") + 3


def test_colours_are_off_where_they_are_not_wanted(cli):
    assert "\x1b[32m" in cli.shown("status")
    assert "\x1b" not in cli.shown("status", "--no-color")
    assert "\x1b" not in cli.shown("status", env={"NO_COLOR": "1"})
    assert "\x1b" not in cli.shown("status", env={"TERM": "dumb"})
    assert "\x1b[32m" in cli.shown("status", env={"NO_COLOR": ""})


def test_without_utf8_all_is_ascii(cli, daemon):
    daemon.runs = [a_run(name="gr\u00F6\u00DFe " * 20)]
    shown = cli.shown("status", env={"LC_ALL": "C"})
    assert shown.isascii() and "gr??e" in shown and "##########" in shown


def test_lines_keep_to_the_width(cli, daemon):
    daemon.runs = [a_run(name="a-long-name-of-a-run", id="an-id-that-is-long")]
    for columns in (60, 72, 80, 120, 200):
        with cli.terminal("top", "--no-color", columns=columns) as screen:
            screen.wait_for("ID .*?\n.*?\n")
            screen.resize(columns - 1, 30)
            frame = screen.wait_for("\x1b\\[H(.*?)\x1b\\[J")[1]
            lines = [line.replace("\x1b[K", "") for line in frame.split("\r\n")]
            assert all(len(line) < columns for line in lines if "pudica top" not in line), frame


def test_one_run_in_full(cli):
    shown = cli.shown("status", "train")
    for text in ("train (k3v9q2)", "ada, process 4711", "Largest peak", "Budget changes",
                 "operator", "3 of them learning"):
        assert text in shown, shown


@pytest.mark.parametrize("change, expected", [
    ({}, "yes: no step went over its budget\n"),
    ({"state": "learning"}, "yes: no step went over its budget; it still learns"),
    ({"state": "registered", "step": None}, "not known before its first step"),
    ({"overruns": 3}, "no: 3 steps of 41/100 went over the budget"),
    ({"state": "standing_down"}, "no: it does not plan any more"),
    ({"state": "lost", "status": "lost"}, "no: it fell silent without an end"),
    ({"state": "ended", "status": "oom"}, "no: it ended with oom"),
    ({"state": "ended", "status": "ok"}, "yes: no step went over its budget\n"),
])
def test_whether_a_run_is_all_right_is_said(cli, daemon, change, expected):
    daemon.runs = [a_run(**change)]
    shown = cli.shown("status", "train", "--no-color")
    assert re.search(r"All right +" + re.escape(expected), shown), shown


def test_a_budget_that_follows_the_batches_says_where_it_lies(cli, daemon):
    daemon.runs = [a_run(budget_fraction=0.4)]
    shown = cli.shown("status", "train", "--no-color")
    assert "0.4 of the way from recomputing to keeping its longest batch" in shown, shown
    daemon.runs = [a_run()]
    assert "of the way" not in cli.shown("status", "train", "--no-color")


def test_top_updates_and_leaves_clean_on_q(cli, daemon):
    with cli.terminal("top", "--interval", "0.1") as screen:
        screen.wait_for(ENTER)
        screen.wait_for("41/100")
        daemon.runs = [a_run(step=42)]
        screen.wait_for("42/100")
        screen.type("q")
        screen.wait_for("\x1b\\[\\?25h.*" + LEAVE)
        assert screen.exit_code() == 0


def test_top_leaves_clean_on_ctrl_c_and_sigterm(cli):
    for leave in (lambda screen: screen.type("\x03"),
                  lambda screen: os.kill(screen.process, signal.SIGTERM)):
        with cli.terminal("top") as screen:
            screen.wait_for("41/100")
            leave(screen)
            screen.wait_for(LEAVE)
            assert screen.exit_code() == 0


def test_top_draws_again_when_the_terminal_changes(cli):
    with cli.terminal("top", "--interval", "3600", "--no-color") as screen:
        screen.wait_for("REVOKED")
        screen.resize(60, 20)
        frame = screen.wait_for("\x1b\\[H(.*?)\x1b\\[J")[1]
        assert "NAME" in frame and "REVOKED" not in frame
        screen.type("q")
        screen.wait_for(LEAVE)


def test_top_waits_for_a_daemon_that_is_away(cli, daemon):
    with cli.terminal("top", "--interval", "0.1") as screen:
        screen.wait_for("41/100")
        daemon.override["/v1/runs"] = (500, b'{"error":{"code":"x","message":"out of order"}}')
        screen.wait_for("out of order")
        daemon.override.clear()
        screen.wait_for("41/100")
        screen.type("q")
        screen.wait_for(LEAVE)


def test_top_piped_ends_when_its_reader_leaves(cli):
    process = subprocess.Popen([PROGRAM, "top", "--interval", "0.1"], stdout=subprocess.PIPE,
                               env=clean_environment(cli.environment))
    assert process.stdout.readline().startswith(b"id\tname")
    process.stdout.close()
    assert process.wait(timeout=60) in (0, -signal.SIGPIPE)


def test_doctor_is_readable():
    with Cli("/nonexistent/pudicad.sock").terminal("doctor") as screen:
        text = screen.read_all()
        assert screen.exit_code() == 3
    assert "problem" in text and "-> " in text
