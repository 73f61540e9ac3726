"""Start, stop, reload, the socket and its rights, systemd: the real daemon."""

import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import tempfile
import threading

import pudicad
import pytest
from pudicad import Daemon
from waiting import wait_for


def run(*arguments, **more):
    return subprocess.run([pudicad.PUDICAD, *arguments], capture_output=True, text=True, timeout=20,
                          check=False, **more)


def test_help_and_version():
    done = run("--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout and "exit codes:" in done.stdout
    assert run("--version").stdout.startswith("pudicad 0.")
    assert run("--nonsense").returncode == 2


def test_check_config(tmp_path):
    good = tmp_path / "good.json"
    good.write_text('{"run_timeout_seconds": 3}')
    assert run("--config", str(good), "--check-config").returncode == 0
    bad = tmp_path / "bad.json"
    bad.write_text('{"sockt": "x", "limits": {"runs": -1}}')
    done = run("--config", str(bad), "--check-config")
    assert done.returncode == 2
    assert "nearest known key is socket" in done.stderr and "limits.runs: -1" in done.stderr
    assert run("--config", str(bad)).returncode == 2


@pytest.mark.parametrize("content, expected", [
    ('{"listen": "9400"}', "listen: '9400', expected ADDRESS:PORT"),
    ('{"listen": "0.0.0.0:9400"}', "listen: '0.0.0.0:9400' is not loopback"),
    ('{"listen": "example.org:9400"}', "expected a numeric address"),
    ('{"listen": "127.0.0.1:99999"}', "expected ADDRESS:PORT"),
    ('{"socket_group": "no-such-group"}', "socket_group: 'no-such-group', expected a group"),
    ('{"socket": "' + "x" * 200 + '"}', "a path of 200 characters, expected at most 107"),
    ('{"database": "/tmp"}', "database: '/tmp' is a directory"),
])
def test_check_config_and_the_start_refuse_the_same(tmp_path, content, expected):
    file = tmp_path / "pudicad.json"
    file.write_text(content)
    # What the file does not name must not be the reason.
    beside = ["--config", str(file), *(["--socket", str(tmp_path / "s")] if "x" * 200 not in content
                                       else []),
              *(["--database", str(tmp_path / "db")] if "database" not in content else [])]
    checked = run(*beside, "--check-config")
    started = run(*beside)
    assert (checked.returncode, started.returncode) == (2, 2), (checked, started)
    assert expected in checked.stderr, checked.stderr
    assert checked.stderr == started.stderr


def test_an_address_that_is_allowed_is_no_fault(tmp_path):
    file = tmp_path / "pudicad.json"
    file.write_text('{"listen": "0.0.0.0:9400", "allow_remote": true}')
    assert run("--config", str(file), "--check-config").returncode == 0
    assert run("--listen", "[::1]:9400", "--check-config").returncode == 0
    assert run("--listen", "localhost:0", "--check-config").returncode == 0
    refused = run("--listen", "9400", "--check-config")
    assert refused.returncode == 2 and "listen: '9400'" in refused.stderr


def test_rights_of_the_socket():
    with Daemon() as daemon:
        assert stat.S_IMODE(os.stat(daemon.socket).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(os.path.dirname(daemon.socket)).st_mode) == 0o700
        assert stat.S_IMODE(os.stat(daemon.database).st_mode) == 0o600


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_with_waiting_polls_and_stalled_clients(how):
    """Long before the minute that the polls would wait. Whoever is answered gets all of it."""
    with Daemon() as daemon:
        runs = [daemon.register(f"run{i}") for i in range(5)]
        replies = []
        polls = [threading.Thread(target=lambda r=r: replies.append(pudicad.send_raw(
            daemon.socket, f"GET /v1/runs/{r}/commands?after=0&wait=60 HTTP/1.1\r\n\r\n".encode(),
            timeout=60))) for r in runs]
        for poll in polls:
            poll.start()
        with pudicad.connect(daemon.socket) as stalled:
            stalled.sendall(b"GET /v1/runs HT")
            wait_for("polls to wait", lambda: b"pudica_daemon_open_connections 7" in daemon.get(
                "/metrics").body)
            assert daemon.stop(how) == 0
        for poll in polls:
            poll.join()
        assert not os.path.exists(daemon.socket)
        assert len(replies) == 5
        answered = [pudicad.parse_reply(reply) for reply in replies if reply]
        assert answered and all(reply.json()["commands"] == [] for reply in answered)


def test_second_daemon_is_refused():
    with Daemon() as daemon:
        done = run("--socket", daemon.socket, "--database", daemon.database + "2")
        assert done.returncode == 1
        assert f"listens on {daemon.socket} already" in done.stderr
        assert str(daemon.process.pid) in done.stderr
        assert daemon.alive()


def test_socket_of_a_killed_daemon_is_replaced():
    with Daemon() as daemon:
        daemon.stop(signal.SIGKILL)
        assert os.path.exists(daemon.socket)
        daemon.start()
        assert daemon.alive()


def test_long_socket_path_is_refused(tmp_path):
    done = run("--socket", str(tmp_path / ("x" * 120)), "--database", str(tmp_path / "db"))
    assert done.returncode == 2
    assert "107" in done.stderr


def test_runs_and_budgets_outlive_a_restart():
    with Daemon() as daemon:
        run_id = daemon.register("kept")
        daemon.events(run_id, pudicad.step(1))
        daemon.events(run_id, {"type": "end", "status": "oom"})
        other = daemon.register("cut")
        assert daemon.stop() == 0
        daemon.start()
        runs = {run["id"]: run for run in daemon.get("/v1/runs?all=true").json()["runs"]}
        assert runs[run_id]["status"] == "oom" and runs[run_id]["state"] == "ended"
        assert runs[other]["state"] == "lost"
        assert [s["step"] for s in daemon.get(f"/v1/runs/{run_id}").json()["steps"]] == [1]
        assert daemon.register("cut", resume=other) == other


def test_prune_removes_ended_runs_only():
    with Daemon() as daemon:
        ended, live = daemon.register("ended"), daemon.register("live")
        daemon.events(ended, pudicad.step(1), {"type": "end", "status": "ok"})

        def known():
            return {run["id"] for run in daemon.get("/v1/runs?all=true").json()["runs"]}

        assert daemon.post("/v1/prune", {"older_than_seconds": 86400}).json()["removed_runs"] == 0
        assert known() == {ended, live}
        assert daemon.post("/v1/prune", {"older_than_seconds": 0}).json()["removed_runs"] == 1
        assert known() == {live}
        assert daemon.get(f"/v1/runs/{ended}").status == 404
        assert daemon.post("/v1/prune", {}).status == 400


def test_a_model_that_is_removed_stays_away():
    record = pathlib.Path(__file__).parents[1] / "fixtures/record/squad_mini.jsonl"
    steps = [{"type": "step", "record": json.loads(line)}
             for line in record.read_text().splitlines()]

    def models():
        return [model["fingerprint"] for model in daemon.get("/v1/models").json()["models"]]

    with Daemon() as daemon:
        assert daemon.events(daemon.register(fingerprint="f"), *steps).status == 200
        assert models() == ["f"]
        for known in (["f"], []):
            assert daemon.stop() == 0
            daemon.start()
            assert models() == known
            reply = pudicad.ask(daemon.socket, "DELETE", "/v1/models/f")
            assert reply.status == (200 if known else 404)
            assert models() == []


def test_sighup_reloads_and_refuses_a_bad_file():
    with Daemon(config={"run_timeout_seconds": 15, "groups": {"g": 1000}}) as daemon:
        assert daemon.get("/v1/runs").json()["groups"][0]["total_bytes"] == 1000

        def timeout():
            reply = daemon.post("/v1/runs", pudicad.DESCRIPTION)
            return reply.json()["timeout_seconds"]

        assert timeout() == 15
        daemon.write_config({"run_timeout_seconds": 7, "groups": {"g": 2000}})
        daemon.process.send_signal(signal.SIGHUP)
        wait_for("the new file in the log", lambda: "configuration reloaded" in daemon.log)
        assert timeout() == 7
        assert daemon.get("/v1/runs").json()["groups"][0]["total_bytes"] == 2000
        assert "from the next start on" not in daemon.log
        daemon.write_config({"run_timeout_seconds": 7, "database": "/elsewhere", "limits": {
            "runs": len(daemon.get("/v1/runs").json()["runs"]), "body_bytes": 2048,
            "ended_runs": 0, "connections": 8, "database_bytes": "1MiB"}})
        daemon.process.send_signal(signal.SIGHUP)
        wait_for("the limits", lambda: daemon.log.count("configuration reloaded") == 2)
        assert daemon.post("/v1/runs", pudicad.DESCRIPTION).status == 503
        assert daemon.post("/v1/runs", {"x": "x" * 3000}).status == 413
        assert "limits.database_bytes counts from the next start on" in daemon.log
        assert "configuration: database " not in daemon.log  # the command line's counts
        daemon.write_config({"run_timeout_seconds": 7})
        daemon.process.send_signal(signal.SIGHUP)
        wait_for("the defaults", lambda: daemon.log.count("configuration reloaded") == 3)
        daemon.write_config("{not json")
        daemon.process.send_signal(signal.SIGHUP)
        wait_for("the refusal in the log", lambda: "configuration refused" in daemon.log)
        assert timeout() == 7


def test_silent_run_leaves():
    with Daemon(config={"run_timeout_seconds": 1}) as daemon:
        run_id = daemon.register("silent")
        wait_for("the run to be lost", lambda: not daemon.get("/v1/runs").json()["runs"])
        assert daemon.events(run_id).status == 404
        assert daemon.get(f"/v1/runs/{run_id}").json()["state"] == "lost"


def test_systemd_is_told():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(path)
            notify.settimeout(20)
            with Daemon(environment={"NOTIFY_SOCKET": path}, config={}) as daemon:
                assert notify.recv(1000) == b"READY=1"
                daemon.process.send_signal(signal.SIGHUP)
                assert notify.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
                assert notify.recv(1000) == b"READY=1"
                daemon.stop()
                assert notify.recv(1000) == b"STOPPING=1"


def test_socket_passed_by_systemd_is_used(tmp_path):
    path = str(tmp_path / "passed.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)
        listening.listen()

        def pass_on():
            os.dup2(listening.fileno(), 3)
            os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")

        with subprocess.Popen([pudicad.PUDICAD, "--database", str(tmp_path / "db")],
                              preexec_fn=pass_on, pass_fds=[3],
                              stderr=subprocess.DEVNULL) as process:
            assert pudicad.ask(path, "GET", "/v1/version").json()["socket"] == path
            process.terminate()
            assert process.wait(20) == 0
    assert os.path.exists(path)  # systemd's, not the daemon's to remove


def test_tcp_only_reads_and_checks_the_host():
    with Daemon("--listen", "127.0.0.1:0") as daemon:
        address = daemon.tcp()
        assert pudicad.ask(address, "GET", "/v1/runs").status == 200
        assert pudicad.ask(address, "POST", "/v1/runs", pudicad.DESCRIPTION).status == 403
        assert pudicad.ask(address, "DELETE", "/v1/runs").status == 403
        foreign = b"GET /v1/runs HTTP/1.1\r\nHost: evil.example\r\n\r\n"
        assert pudicad.parse_reply(pudicad.send_raw(address, foreign)).status == 403
        without = b"GET /v1/runs HTTP/1.1\r\n\r\n"
        assert pudicad.parse_reply(pudicad.send_raw(address, without)).status == 403


def test_remote_addresses_have_to_be_told_twice(tmp_path):
    done = run("--socket", str(tmp_path / "s"), "--database", str(tmp_path / "db"), "--listen",
               "0.0.0.0:0")
    assert done.returncode == 2
    assert "--allow-remote" in done.stderr
