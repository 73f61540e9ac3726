"""The installed units under a real manager of systemd, the one that a user has, in namespaces of
its own."""

import os
import pathlib
import shutil
import subprocess

import pytest

from waiting import wait_for

BUILD = os.environ["PUDICA_BUILD_DIR"]
RUNTIME = "/run/pudica-test"
# systemd asks whether the machine was booted with it. As process 1 it would be the system's.
BEGIN = f"""
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system {RUNTIME} && chmod 700 {RUNTIME} || exit 1
systemd --user --log-target=console & wait
"""


def why_not():
    for program in ("systemd", "systemctl", "unshare", "nsenter"):
        if shutil.which(program) is None:
            return f"no {program} here"
    made = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"],
                          capture_output=True, text=True)
    return None if made.returncode == 0 else f"no namespaces for us here: {made.stderr.strip()}"


WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


class Manager:
    """`systemd --user` whose user has the programs in ~/.local."""

    def __init__(self, home):
        self.home = home
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("XDG_", "PUDICA_", "DBUS_"))}
        self.environment = {**kept, "HOME": str(home), "XDG_RUNTIME_DIR": RUNTIME}

    def __enter__(self):
        self.log = (self.home / "log").open("w")
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
             BEGIN], env=self.environment, stdout=self.log, stderr=self.log)
        try:
            wait_for("the manager, or its end", self.answers_or_ended, patience_s=20)
        except AssertionError:
            self.__exit__()
            pytest.skip(f"systemd's manager does not start here: {self.said()}")
        if self.process.poll() is not None:
            self.log.close()
            pytest.skip(f"systemd's manager ended: {self.said()}")
        return self

    def __exit__(self, *_):
        self.process.kill()  # all that is in the namespace goes with it
        self.process.wait()
        self.log.close()

    def said(self):
        return (self.home / "log").read_text()[-500:]

    def answers_or_ended(self):
        return self.process.poll() is not None or self.run(
            "systemctl", "--user", "list-units", "--no-pager").returncode == 0

    def run(self, *words):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        inner = children.read_text().split()
        if not inner:
            return subprocess.CompletedProcess(words, 1, "", "the namespace is not there yet")
        return subprocess.run(["nsenter", "--target", inner[0], "--mount", "--pid", *words],
                              env=self.environment, capture_output=True, text=True, timeout=60)

    def control(self, *words):
        done = self.run("systemctl", "--user", *words)
        assert done.returncode == 0, (words, done.stderr, self.said())
        return done.stdout.strip()

    def property(self, name, unit="pudicad.service"):
        return self.control("show", unit, "--value", "-p", name)

    def pudica(self, *words):
        return self.run(str(self.home / ".local/bin/pudica"), *words)


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    done = subprocess.run(["cmake", "--install", BUILD, "--prefix", home / ".local", "--component",
                           "pudica_programs"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with Manager(home) as started:
        yield started


# The unit as the documents say: enabled by its socket, started by the first who asks.
def test_the_socket_starts_the_daemon_and_systemd_keeps_it(manager):
    manager.control("enable", "--now", "pudicad.socket")
    assert manager.property("ActiveState", "pudicad.socket") == "active"
    assert manager.property("ActiveState") == "inactive"
    asked = manager.pudica("status")
    assert asked.returncode == 0, (asked.stderr, manager.said())
    assert manager.property("SubState") == "running"
    doctor = manager.pudica("doctor")
    assert doctor.returncode == 0 and "\tproblem\t" not in doctor.stdout, doctor.stdout
    manager.control("reload", "pudicad.service")

    first = manager.property("MainPID")
    assert manager.run("kill", "-KILL", first).returncode == 0
    wait_for("another daemon", lambda: manager.property("SubState") == "running"
             and manager.property("MainPID") not in ("0", first))
    assert manager.property("NRestarts") == "1"
    assert manager.pudica("status").returncode == 0

    manager.control("stop", "pudicad.service")
    assert manager.property("Result") == "success"
    assert manager.property("ActiveState") == "inactive"
    assert manager.pudica("models").returncode == 0, "the socket starts it again"
    assert manager.property("ActiveState") == "active"


def test_the_daemon_is_confined_as_the_unit_says(manager):
    manager.control("start", "pudicad.service")
    status = manager.run("cat", f"/proc/{manager.property('MainPID')}/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2", "filtered system calls"
    assert manager.pudica("prune", "--days", "0").returncode == 0, "the database is written"
