"""Places of connections: each listener has its own, the longest idle one goes first, and a long
poll whose other end has closed gives its place back. The real daemon, real sockets."""

import contextlib

import pudicad
import pytest
from pudicad import Daemon
from waiting import wait_for

PLACES = 8
BOTH = {"listen": "127.0.0.1:0", "limits": {"connections": PLACES}}


@pytest.fixture(name="daemon")
def daemon_fixture():
    """One for each test: places that another test has just given back are not free at once."""
    with Daemon(config=BOTH) as started:
        yield started


@pytest.fixture(name="opened")
def opened_fixture():
    """opened(address) connects; all of it is closed with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda address: stack.enter_context(pudicad.connect(address, timeout=60))


def statuses(address, count):
    return [pudicad.ask(address, "GET", "/v1/version").status for _ in range(count)]


def fill_with_polls(address, run, opened):
    """Requests that wait for a minute in all places. More than those: one whose request has not
    been read yet is idle, and may have to go."""
    polls = []

    def full():
        poll = opened(address)
        poll.sendall(f"GET /v1/runs/{run}/commands?wait=60 HTTP/1.1\r\n"
                     "Host: localhost\r\n\r\n".encode())
        polls.append(poll)
        return len(polls) >= PLACES and statuses(address, 1) == [503]

    wait_for("all places to be taken", full)
    return polls


def test_full_tcp_listener_leaves_the_socket_alone(daemon, opened):
    run = daemon.register()
    fill_with_polls(daemon.tcp(), run, opened)
    for _ in range(4 * PLACES):
        opened(daemon.tcp())
    assert statuses(daemon.socket, 210) == [200] * 210


def test_full_socket_leaves_the_tcp_listener_alone(daemon, opened):
    fill_with_polls(daemon.socket, daemon.register(), opened)
    assert statuses(daemon.tcp(), 20) == [200] * 20


@pytest.mark.parametrize("listener", ["unix", "tcp"])
def test_longest_idle_goes_first(daemon, opened, listener):
    address = daemon.socket if listener == "unix" else daemon.tcp()
    idle = []
    for _ in range(5 * PLACES):
        idle.append(opened(address))
        idle[-1].sendall(b"GET /v1/version HTTP/1.1\r\nA: ")  # half a head is no request either
    for connection in idle[:-PLACES]:
        reply = pudicad.parse_reply(pudicad.read_all(connection))
        assert reply.status == 503
        assert "another connection needs the place" in reply.json()["error"]["message"]
    assert statuses(address, 100) == [200] * 100


@pytest.mark.parametrize("listener", ["unix", "tcp"])
def test_connections_beyond_the_limit_are_refused(daemon, opened, listener):
    """Where none is idle: requests under way keep their places."""
    address = daemon.socket if listener == "unix" else daemon.tcp()
    fill_with_polls(address, daemon.register(), opened)
    reply = pudicad.ask(address, "GET", "/v1/version")
    assert reply.status == 503 and str(PLACES) in reply.json()["error"]["message"]


@pytest.mark.parametrize("listener", ["unix", "tcp"])
def test_closed_long_polls_give_their_places_back(daemon, opened, listener):
    """Long before the 48 s that the shortest of them would wait."""
    address = daemon.socket if listener == "unix" else daemon.tcp()
    for poll in fill_with_polls(address, daemon.register(), opened):
        poll.close()
    wait_for("room again", lambda: statuses(address, 1) == [200], patience_s=30)
    wait_for("all places", lambda: b"pudica_daemon_open_connections 1\n" in daemon.get(
        "/metrics").body, patience_s=30)
