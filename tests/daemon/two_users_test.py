"""Two users of one machine: neither sees, steers nor stops the other's runs.

Real programs under real users. Mallory goes first wherever a name can be guessed."""

import base64
import os
import pathlib
import re
import shutil
import socket
import subprocess

import pudicad
import pytest
import users
from users import ADA, BOB, KEEPER, MALLORY, ROOT, acting_as
from waiting import wait_for

WHY_NOT = users.why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))

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

    def register(self, user, /, **more):
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
        for command in (["status"], ["budget", run, "1TiB"], ["plans", run], ["group", "g", "9B"]):
            tried = pudica(MALLORY, "--socket", hers.socket, *command)
            assert tried.returncode == 3 and "secret" not in tried.stdout, tried
        with pytest.raises(PermissionError), acting_as(MALLORY):
            pudicad.ask(str(hers.socket), "GET", "/v1/runs")
        seen = hers.ask(ADA, "GET", f"/v1/runs/{run}").json()
        assert seen["budget_bytes"] == pudicad.DESCRIPTION["budget_bytes"]
        assert seen["budget_pending_bytes"] is None


SHARED = pathlib.Path("/tmp/shared-by-group/pudicad.sock")
SHARED_BY_KEEPER = {"PUDICA_SOCKET": str(SHARED), "PUDICA_DAEMON_USER": "keeper"}
END = {"dropped": 0, "events": [{"type": "end", "status": "ok"}]}


@pytest.fixture(name="shared")
def shared_daemon():
    database = KEEPER.home / "shared.db"
    with Daemon(KEEPER, "--socket", SHARED, "--socket-group", users.GROUP, "--database",
                database) as daemon:
        yield daemon
    database.unlink()


def message_of(reply):
    return reply.json()["error"]["message"]


def test_a_group_shares_a_daemon_and_not_its_runs(shared):
    run = shared.register(ADA, user="root", name="hers", command="train --token s3cret")
    for user, command in ((ADA, "train --token s3cret"), (BOB, None),
                          (KEEPER, "train --token s3cret"), (ROOT, "train --token s3cret")):
        for target in ("/v1/runs", f"/v1/runs/{run}"):
            answer = shared.ask(user, "GET", target).json()
            seen = answer.get("runs", [answer])[0]
            assert (seen["user"], seen["uid"]) == ("ada", ADA.id), "whatever the run says"
            assert seen["command"] == command, (user, target)
    for method, target, body in (("PUT", f"/v1/runs/{run}/budget", {"budget": "1TiB"}),
                                 ("PUT", "/v1/runs/hers/budget", {"budget": "1TiB"}),
                                 ("POST", f"/v1/runs/{run}/events", END),
                                 ("GET", f"/v1/runs/{run}/commands", None)):
        refused = shared.ask(BOB, method, target, body)
        assert refused.status == 403, (method, target, refused)
        assert message_of(refused) == (f"run {run} belongs to user ada, and you are user bob; "
                                       "expected its owner, or keeper, who runs pudicad, or root")
    assert shared.ask(BOB, "PUT", "/v1/groups/g", {"total": "1GiB"}).status == 403
    assert shared.ask(BOB, "POST", "/v1/prune", {"older_than_seconds": 0}).status == 403
    assert shared.ask(BOB, "DELETE", "/v1/models/any").status == 403
    seen = shared.ask(BOB, "GET", f"/v1/runs/{run}").json()
    assert seen["state"] == "registered" and seen["budget_pending_bytes"] is None


def test_the_instance_of_another_users_run_gives_nothing(shared):
    """Neither while the run is there nor behind a daemon that waits for it to come back."""
    grouped = {"group": "g", "instance": "4711-1", "pid": os.getpid()}
    assert shared.ask(KEEPER, "PUT", "/v1/groups/g", {"total": "4GiB"}).status == 200
    hers = shared.register(ADA, **grouped)
    assert shared.register(BOB, **grouped) != hers
    shared.__exit__()
    with shared:
        assert shared.register(BOB, **grouped) != hers
        assert shared.register(ADA, **grouped) == hers
        assert shared.ask(BOB, "POST", f"/v1/runs/{hers}/events", END).status == 403


def test_owner_and_operators_steer(shared):
    run = shared.register(ADA)
    for user, budget in ((ADA, 1 << 30), (KEEPER, 2 << 30), (ROOT, 3 << 30)):
        assert shared.ask(user, "PUT", f"/v1/runs/{run}/budget", {"budget": budget}).status == 202
        seen = shared.ask(user, "GET", f"/v1/runs/{run}").json()
        assert seen["budget_pending_bytes"] == budget
    assert shared.ask(KEEPER, "PUT", "/v1/groups/g", {"total": "1GiB"}).status == 200
    assert shared.ask(ADA, "POST", f"/v1/runs/{run}/events", END).status == 200


def test_nobody_takes_the_name_of_another_ones_run(shared):
    """Neither of a live run, nor of an ended one, nor of one of a daemon before."""
    run = shared.register(ADA, name="hers")
    assert shared.register(BOB, name="hers", resume=run) != run
    assert shared.ask(ADA, "POST", f"/v1/runs/{run}/events", END).status == 200
    assert shared.register(BOB, name="hers", resume=run) != run
    shared.__exit__()
    with shared:
        assert shared.register(BOB, name="hers", resume=run) != run
        kept = shared.ask(ADA, "GET", f"/v1/runs/{run}").json()
        assert (kept["user"], kept["command"]) == ("ada", "x")
        assert shared.ask(BOB, "GET", f"/v1/runs/{run}").json()["command"] is None
        ended = shared.ask(BOB, "GET", "/v1/runs?all=true").json()["runs"]
        assert {r["user"]: r["command"] for r in ended} == {"ada": None, "bob": "x"}
        assert shared.register(ADA, name="hers", resume=run) == run


def test_commands_of_a_member(shared):
    run = shared.register(ADA, name="hers", command="train --token s3cret")
    for arguments in (["status"], ["status", run], ["status", "--json"]):
        seen = pudica(BOB, *arguments, env=SHARED_BY_KEEPER)
        assert seen.returncode == 0 and "s3cret" not in seen.stdout, seen
    tried = pudica(BOB, "budget", run, "1GiB", env=SHARED_BY_KEEPER)
    assert tried.returncode == 1 and "belongs to user ada" in tried.stderr, tried
    # The run is only registered: it makes no step that could be waited for.
    own = pudica(ADA, "budget", "--no-wait", run, "1GiB", env=SHARED_BY_KEEPER)
    assert own.returncode == 0, own
    doctor = pudica(BOB, "doctor", env=SHARED_BY_KEEPER)
    assert doctor.returncode == 0, doctor
    assert f"group {users.GROUP} may use the socket" in doctor.stdout
    assert f"group={users.GROUP}" in shared.log and "its members" in shared.log
    strange = pudica(MALLORY, "status", env=SHARED_BY_KEEPER)
    assert strange.returncode == 3 and "permission denied" in strange.stderr.lower(), strange


def tcp_address(daemon):
    found = re.search(r"at=127\.0\.0\.1:(\d+)", daemon.log)
    return "127.0.0.1", int(found[1])


def read_over_tcp(user, daemon, target="/v1/runs", **more):
    address = tcp_address(daemon)
    with acting_as(user):
        return pudicad.ask(address, "GET", target, **more)


def test_over_tcp_the_daemons_user_and_root_read():
    with Daemon(ADA, "--listen", "127.0.0.1:0") as daemon:
        daemon.register(ADA, command="train --token s3cret")
        for user in (ADA, ROOT):
            assert b"s3cret" in read_over_tcp(user, daemon).body
        for target in ("/", "/assets/app.js", "/metrics", "/v1/runs", "/v1/version", "/v1/nothing"):
            refused = read_over_tcp(MALLORY, daemon, target)
            assert refused.status == 403, target
            assert message_of(refused).startswith(
                "you are user mallory; over TCP expected ada, who runs pudicad, or root")
        doctor = pudica(ADA, "doctor")
        assert "tcp\tok\t" in doctor.stdout, doctor.stdout


def test_over_tcp_a_token_lets_others_read():
    token = "correct horse battery staple"
    file = ADA.home / "token"
    file.write_text(token + "\n", encoding="utf-8")
    os.chown(file, ADA.id, ADA.id)
    listen = ("--listen", "127.0.0.1:0", "--listen-token-file", file)
    file.chmod(0o640)
    for arguments in (listen, (*listen, "--check-config")):
        loose = ADA.run(PROGRAMS / "pudicad", *arguments)
        assert loose.returncode == 2 and "expected mode 0600" in loose.stderr, loose
    file.chmod(0o600)
    with Daemon(ADA, *listen) as daemon:
        daemon.register(ADA, command="train --token s3cret")
        basic = base64.b64encode(f"any:{token}".encode()).decode()
        for header in (f"Authorization: Bearer {token}", f"Authorization: Basic {basic}"):
            reply = read_over_tcp(MALLORY, daemon, headers=[header])
            assert reply.status == 200 and b"s3cret" in reply.body
        for headers in ([], [f"Authorization: Bearer {token}x"], ["Authorization: Bearer "],
                        ["Authorization: Basic " + basic[:8]]):
            refused = read_over_tcp(MALLORY, daemon, headers=headers)
            assert refused.status == 401 and b"s3cret" not in refused.body
            assert refused.headers["www-authenticate"] == 'Basic realm="pudicad"'
        address = tcp_address(daemon)
        with acting_as(MALLORY):
            write = pudicad.ask(address, "PUT", "/v1/groups/g", {"total": 1},
                                headers=[f"Authorization: Bearer {token}"])
        assert write.status == 403


def test_over_tcp_everyone_reads_where_that_is_said():
    with Daemon(ADA, "--listen", "127.0.0.1:0", "--allow-remote") as daemon:
        run = daemon.register(ADA, command="train --token s3cret")
        for target in ("/v1/runs", f"/v1/runs/{run}"):
            seen = read_over_tcp(MALLORY, daemon, target)
            assert seen.status == 200 and b"s3cret" not in seen.body
            assert b"s3cret" in read_over_tcp(ADA, daemon, target).body
        doctor = pudica(ADA, "doctor")
        assert "everybody who reaches" in doctor.stdout, doctor.stdout
