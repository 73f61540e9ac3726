"""Bounds of requests: sizes, time, connections, odd clients; the page's headers."""

import select
import threading

import pudicad
import pytest
from pudicad import Daemon
from waiting import wait_for


@pytest.fixture(name="daemon", scope="module")
def daemon_fixture():
    with Daemon() as daemon:
        yield daemon


def raw(daemon, data):
    return pudicad.parse_reply(pudicad.send_raw(daemon.socket, data))


def error_code(reply):
    assert reply.headers["content-type"] == "application/json"
    error = reply.json()["error"]
    assert set(error) == {"code", "message"} and error["message"]
    return error["code"]


def test_budget_reaches_a_waiting_poll(daemon):
    run = daemon.register("steered")
    replies = []
    poll = threading.Thread(target=lambda: replies.append(
        daemon.get(f"/v1/runs/{run}/commands?after=0&wait=20")))
    poll.start()
    reply = daemon.put("/v1/runs/steered/budget", {"budget": "500MiB"})
    assert reply.status == 202
    assert reply.json() == {"run": run, "budget_bytes": 524288000, "seq": 1,
                            "effective": "next step"}
    poll.join()
    assert replies[0].json()["commands"][0]["budget_bytes"] == 524288000
    daemon.events(run, {"type": "budget", "seq": 1, "step": 4, "budget_bytes": 524288000},
                  pudicad.step(4, measured=520000000))
    shown = daemon.get("/v1/runs/steered").json()
    assert shown["budget_bytes"] == 524288000 and shown["budget_pending_bytes"] is None
    assert shown["budgets"][-1]["measured_bytes"] == 520000000


@pytest.mark.parametrize("head, status, code", [
    (b"nonsense\r\n\r\n", 400, "invalid_argument"),
    (b"GET\r\n\r\n", 400, "invalid_argument"),
    (b"GET / HTTP/9.9\r\n\r\n", 400, "invalid_argument"),
    (b"FETCH /v1/runs HTTP/1.1\r\n\r\n", 400, "invalid_argument"),
    (b"GET /v1/runs HTTP/1.1\r\nbroken\r\n\r\n", 400, "invalid_argument"),
    (b"GET /v1/runs HTTP/1.1\r\nA: \x00\r\n\r\n", 400, "invalid_argument"),
    (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", 431, "too_large"),
    (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431, "too_large"),
    (b"GET / HTTP/1.1\r\nA: " + b"x" * 9000 + b"\r\n\r\n", 431, "too_large"),
    (b"GET / HTTP/1.1\r\nA: " + b"x" * 900000 + b"\r\n\r\n", 431, "too_large"),
    (b"POST /v1/runs HTTP/1.1\r\nContent-Length: 5000000\r\n\r\n", 413, "too_large"),
    (b"POST /v1/runs HTTP/1.1\r\nContent-Length: nine\r\n\r\n", 400, "invalid_argument"),
    (b"POST /v1/runs HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", 400,
     "invalid_argument"),
    (b"POST /v1/runs HTTP/1.1\r\n\r\n", 400, "invalid_argument"),
    (b"TRACE /v1/runs HTTP/1.1\r\n\r\n", 405, "method_not_allowed"),
    (b"OPTIONS /v1/runs HTTP/1.1\r\n\r\n", 405, "method_not_allowed"),
    (b"PRI * HTTP/2.0\r\n\r\n", 400, "invalid_argument"),
])
def test_bad_heads_get_a_json_error(daemon, head, status, code):
    reply = raw(daemon, head)
    assert reply.status == status
    assert error_code(reply) == code
    assert daemon.alive()


def test_large_bodies_are_refused_and_the_answer_arrives(daemon):
    reply = daemon.post("/v1/runs", b"x" * 6000000)
    assert reply.status == 413 and error_code(reply) == "too_large"
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    head = b"POST /v1/runs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    reply = raw(daemon, head + chunk * 80 + b"0\r\n\r\n")
    assert reply.status == 413 and error_code(reply) == "too_large"


def test_chunked_body_is_read(daemon):
    body = b'{"total":"1GiB"}'
    data = (b"PUT /v1/groups/chunked HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    reply = raw(daemon, data)
    assert reply.status == 200 and reply.json()["total_bytes"] == 1 << 30


def test_ranges_and_encodings_are_passed_over(daemon):
    plain = daemon.get("/v1/openapi.json")
    headers = ["Range: bytes=" + ",".join(["0-"] * 1000), "Accept-Encoding: br, gzip"]
    reply = daemon.get("/v1/openapi.json", headers=headers)
    assert reply.status == 200 and reply.body == plain.body


def test_long_paths_do_not_exhaust_the_stack(daemon):
    reply = daemon.get("/v1/runs/" + "%41" * 2600)
    assert reply.status == 404
    reply = daemon.get("/v1/runs?" + "a=" * 4000)
    assert reply.status == 200


def test_deep_json_is_refused(daemon):
    run = daemon.register("deep")
    body = b'{"events":[{"type":"snapshot","snapshot":' + b'{"a":' * 500000 + b"1"
    reply = daemon.post(f"/v1/runs/{run}/events", body)
    assert reply.status == 400 and "nested" in reply.json()["error"]["message"]


def test_page_and_its_headers(daemon):
    page = daemon.get("/")
    assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    script = daemon.get("/assets/chart.min.js")
    assert script.status == 200 and script.headers["content-type"].startswith("text/javascript")
    assert len(script.body) > 50000
    for path in ("/assets/", "/assets/../openapi", "/assets/none.js", "/openapi", "//", "/v1"):
        assert daemon.get(path).status == 404, path


def test_head_has_no_body(daemon):
    data = pudicad.send_raw(daemon.socket, b"HEAD /v1/runs HTTP/1.1\r\n\r\n")
    assert data.startswith(b"HTTP/1.1 200") and data.endswith(b"\r\n\r\n")


def test_slow_clients_are_cut_off_and_others_served(daemon):
    """200 connections that send half a head; others are answered meanwhile, and these are told."""
    slow = [pudicad.connect(daemon.socket) for _ in range(200)]
    for connection in slow:
        connection.sendall(b"GET /v1/runs HTTP/1.1\r\nA: ")
    assert daemon.get("/v1/runs").status == 200
    assert not select.select(slow[-1:], [], [], 0)[0]  # it still waits, and nobody waits for it
    for connection in slow:
        assert pudicad.parse_reply(pudicad.read_all(connection)).status == 408
        connection.close()


def test_runs_beyond_the_limit_are_refused():
    with Daemon(config={"limits": {"runs": 2}}) as small:
        small.register("a")
        small.register("b")
        reply = small.post("/v1/runs", pudicad.DESCRIPTION)
        assert reply.status == 503 and "2" in reply.json()["error"]["message"]
