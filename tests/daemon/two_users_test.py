"""Two users of one machine: neither sees, steers nor stops the other's runs.

Real programs under real users. Mallory goes first wherever a name can be guessed."""

import os
import pathlib
import shutil
import socket
import subprocess

import pudicad
import pytest
import users
from users import ADA, MALLORY, acting_as
from waiting import wait_for

pytestmark = pytest.mark.skipif(users.why_not() is not None, reason=str(users.why_not()))

PROGRAMS = pathlib.Path("/tmp/programs")


@pytest.fixture(scope="module", autouse=True)
def namespace():
    found = {name: pathlib.Path(os.environ[variable]).resolve() for name, variable in (
        ("pudicad", "PUDICAD"), ("pudica", "PUDICA_CLI"), ("runs", "PUDICA_SIMULATED_RUNS"))}
    users.enter_namespace()
    PROGRAMS.mkdir()  # the build may stand where only root goes
    for name, path in found.items():
        shutil.copy(path, PROGRAMS / name)
    os.chmod("/tmp/home", 0o755)


def default_place(user):
    return pathlib.Path(f"/tmp/pudica-{user.id}/pudicad.sock")


@pytest.fixture(autouse=True)
def clean():
    yield
    for user in users.USERS:
        shutil.rmtree(default_place(user).parent, ignore_errors=True)


class Trap:
    """A socket of `owner` on which somebody else, or nobody, listens; it answers nothing."""

    def __init__(self, path, owner, directory=0o711):
        self.path = path
        with acting_as(owner):
            path.parent.mkdir(mode=0o700)
            path.parent.chmod(directory)
            self.listening = socket.socket(socket.AF_UNIX)
            self.listening.bind(str(path))
            path.chmod(0o666)
            self.listening.listen()
        self.listening.settimeout(0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listening.close()

    def caught(self):
        """All that clients sent."""
        out = b""
        while True:
            try:
                connection, _ = self.listening.accept()
            except BlockingIOError:
                return out
            with connection:
                connection.settimeout(20)
                out += connection.recv(65536)


def train(user, *arguments, **more):
    return user.run(PROGRAMS / "runs", "--steps", "50", "--steps-per-second", "0", "--wait-ms",
                    "500", *arguments, **more)


def pudica(user, *arguments, **more):
    return user.run(PROGRAMS / "pudica", *arguments, **more)


class Daemon:
    """pudicad as `user`, at the user's usual place unless told otherwise."""

    def __init__(self, user, *arguments):
        self.user = user
        self.arguments = [str(word) for word in arguments]
        place = dict(zip(self.arguments, self.arguments[1:]))
        self.socket = pathlib.Path(place.get("--socket", default_place(user)))

    def __enter__(self):
        self.log_file = pathlib.Path("/tmp") / f"log-{self.user.name}"
        with open(self.log_file, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([PROGRAMS / "pudicad", *self.arguments], stderr=log,
                                            stdin=subprocess.DEVNULL, **self.user.process_options())
        wait_for("pudicad to listen", self.listens)
        return self

    def listens(self):
        assert self.process.poll() is None, self.log
        return "listening: at=" in self.log

    @property
    def log(self):
        return self.log_file.read_text(encoding="utf-8")

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(20) == 0

    def ask(self, user, method, target, body=None):
        with acting_as(user):
            return pudicad.ask(str(self.socket), method, target, body)

    def register(self, user, **more):
        reply = self.ask(user, "POST", "/v1/runs", {**pudicad.DESCRIPTION, **more})
        assert reply.status == 201, reply
        return reply.json()["id"]


def assert_stays_away(trap, *, because):
    """Every client of ada's, with nothing sent, and one line that says why."""
    trained = train(ADA, "--runs", "1")
    assert trained.returncode == 0, trained
    assert trained.stderr.count("\n") == 1 and because in trained.stderr, trained.stderr
    assert "reports nothing" in trained.stderr
    for command in (["status"], ["budget", "train", "1TiB"], ["models"]):
        asked = pudica(ADA, *command)
        assert asked.returncode == 3, asked
        assert asked.stderr.count("\n") == 1 and because in asked.stderr, asked.stderr
    doctor = pudica(ADA, "doctor")
    assert doctor.returncode == 3, doctor
    assert any("\tproblem\t" in line and because in line for line in doctor.stdout.splitlines())
    assert trap.caught() == b""


def test_clients_stay_away_from_a_directory_that_another_user_made():
    with Trap(default_place(ADA), MALLORY) as trap:
        assert_stays_away(trap, because="belongs to user mallory, expected ada or root")


def test_clients_stay_away_from_a_listener_of_another_user():
    """The directory and the socket are ada's; who listens is not."""
    with Trap(default_place(ADA), MALLORY) as trap:
        for path in (trap.path.parent, trap.path):
            os.chown(path, ADA.id, ADA.id)
        assert_stays_away(trap, because="listens belongs to user mallory, expected ada or root")


def test_clients_and_daemon_stay_away_from_a_directory_that_all_may_write():
    with Trap(default_place(ADA), ADA, directory=0o777) as trap:
        assert_stays_away(trap, because="may be written by every user")
    place = pathlib.Path("/tmp/open")
    place.mkdir()
    place.chmod(0o777)
    done = ADA.run(PROGRAMS / "pudicad", "--socket", place / "s", "--database", ADA.home / "db")
    assert done.returncode == 1 and "may be written by every user" in done.stderr, done
    place.chmod(0o1777)  # as /tmp: nobody removes what is another's
    with Daemon(ADA, "--socket", place / "s"):
        seen = pudica(ADA, "--socket", place / "s", "status")
        assert seen.returncode == 0, seen


def test_the_daemon_does_not_move_into_a_directory_of_another_user():
    with Trap(default_place(ADA), MALLORY):
        done = ADA.run(PROGRAMS / "pudicad")
        assert done.returncode == 1 and "belongs to user mallory" in done.stderr, done


def test_another_user_is_trusted_where_that_is_said():
    """Naming a socket does not say it; naming its user does."""
    place = pathlib.Path("/tmp/shared/pudicad.sock")
    named = {"PUDICA_SOCKET": str(place)}
    with Trap(place, MALLORY) as trap:
        told = pudica(ADA, "status", env=named)
        assert told.returncode == 3 and "PUDICA_DAEMON_USER=mallory" in told.stderr, told
        assert trap.caught() == b""
        unknown = pudica(ADA, "status", env={**named, "PUDICA_DAEMON_USER": "nobody-of-here"})
        assert unknown.returncode == 3 and "'nobody-of-here', expected a user" in unknown.stderr
        for said in ("mallory", str(MALLORY.id)):
            train(ADA, "--runs", "1", env={**named, "PUDICA_DAEMON_USER": said})
            assert trap.caught().startswith(b"POST /v1/runs")


def test_each_has_a_daemon_and_sees_its_own_runs():
    with Daemon(ADA) as hers, Daemon(MALLORY) as his:
        run = hers.register(ADA, name="secret", command="train --token s3cret")
        other = his.register(MALLORY, name="other")
        assert pudica(ADA, "status").stdout.count("\n") == 2
        assert run in pudica(ADA, "status").stdout and other in pudica(MALLORY, "status").stdout
        for command in (["status"], ["budget", run, "1TiB"], ["plans", run], ["group", "g", "1"]):
            tried = pudica(MALLORY, "--socket", hers.socket, *command)
            assert tried.returncode == 3 and "secret" not in tried.stdout, tried
        with pytest.raises(PermissionError), acting_as(MALLORY):
            pudicad.ask(str(hers.socket), "GET", "/v1/runs")
        seen = hers.ask(ADA, "GET", f"/v1/runs/{run}").json()
        assert seen["budget_bytes"] == pudicad.DESCRIPTION["budget_bytes"]
        assert seen["budget_pending_bytes"] is None
