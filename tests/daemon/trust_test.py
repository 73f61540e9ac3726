"""What the daemon believes of others: names in its log, a second daemon on its database."""

import re
import subprocess

import pudicad
from pudicad import Daemon

LINE = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] pudica (info|warning|debug): ")


def test_a_name_forges_no_line_of_the_log():
    """Neither a line of its own, nor an escape, nor another key in its own line."""
    forged = "[2026-01-01 00:00:00] pudica info: stopped"
    with Daemon(config={"run_timeout_seconds": 1}) as daemon:
        daemon.register(f"train\n{forged}")
        daemon.register("\x1b[2Jgone\u202e")
        daemon.register('x pid=1 resumed=true "')
        daemon.put("/v1/groups/g%0A" + forged.replace(" ", "%20"), {"total": "1GiB"})
        log = daemon.log
    lines = log.splitlines()
    assert all(LINE.match(line) for line in lines), log
    assert not any(line == forged for line in lines)
    assert not any(ord(c) < 0x20 or c == "\u202e" for c in log if c != "\n"), ascii(log)
    named = [line for line in lines if "run registered" in line]
    assert [line.count(" pid=") for line in named] == [1, 1, 2], named
    assert 'name="x pid=1 resumed=true \\"" pid=4711' in named[2]


def test_a_second_daemon_on_one_database_is_refused(tmp_path):
    with Daemon() as daemon:
        done = subprocess.run(
            [pudicad.PUDICAD, "--socket", str(tmp_path / "s"), "--database", daemon.database],
            capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1, done
        assert done.stderr.count("\n") == 1
        assert f"database '{daemon.database}': a daemon uses it already" in done.stderr
        assert f"process {daemon.process.pid}" in done.stderr
        assert daemon.alive()
        link = tmp_path / "link.db"
        link.symlink_to(daemon.database)
        done = subprocess.run(
            [pudicad.PUDICAD, "--socket", str(tmp_path / "s"), "--database", str(link)],
            capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and "uses it already" in done.stderr, done


def test_the_database_of_a_killed_daemon_is_taken_over():
    with Daemon() as daemon:
        daemon.process.kill()
        daemon.process.wait()
        daemon.start()
        assert daemon.alive()
