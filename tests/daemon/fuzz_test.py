"""Every operation of the OpenAPI document with good, odd and broken requests, over the socket.

Whatever is sent: the status is one that the document lists for the operation, an error's body is
the JSON of the contract, an answer has the fields of its schema, and the daemon lives.
"""

import json
import random
import urllib.parse

import jsonschema
import pudicad
import pytest
from pudicad import Daemon

SEED = 20260101
ROUNDS = 40
ODD_TEXTS = ["", "a", "..", "%2e%2e", "%00", "%", "%zz", "\u00e4", "x" * 5000, "12x384", "0x0",
             "batch=1", "-1", "1e9", "9" * 30, "600MiB", "null", "{}", "' or 1=1 --", "train"]
ODD_VALUES = [None, True, False, 0, -1, 1, 1.5, 1e308, 2**63, 2**64, -2**63, "", "x", "18GiB",
              "\ud83d\ude00", [], {}, [[]], {"a": {}}, "x" * 100000]


@pytest.fixture(name="daemon", scope="module")
def daemon_fixture():
    with Daemon() as daemon:
        daemon.register("train", resume="train")  # also its id
        yield daemon


@pytest.fixture(name="document", scope="module")
def document_fixture(daemon):
    return daemon.get("/v1/openapi.json").json()


def operations(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


def schema_of(document, schema):
    return {**schema, "components": document["components"]}


def check(document, operation, reply, what):
    """The status is documented, and the body is what the document says of it."""
    responses = operation["responses"]
    assert str(reply.status) in responses, f"{what}: status {reply.status}: {reply.body[:200]!r}"
    content = responses[str(reply.status)].get("content", {})
    if "application/json" in content:
        assert reply.headers["content-type"] == "application/json", what
        schema = schema_of(document, content["application/json"]["schema"])
        jsonschema.Draft202012Validator(schema).validate(reply.json())


def target(path, operation, texts, chance):
    """The path with its parts filled in and a query, from `texts` and by chance."""
    query = []
    for parameter in operation.get("parameters", []):
        text = chance.choice(texts)
        if parameter["in"] == "path":
            quoted = text if "%" in text else urllib.parse.quote(text, safe="")
            path = path.replace("{" + parameter["name"] + "}", quoted)
        elif chance.random() < 0.8:
            if parameter["name"] == "wait":
                text = chance.choice(["0", "-1", "61", "x", ""])
            query.append((parameter["name"], text))
    return path + ("?" + urllib.parse.urlencode(query) if query else "")


def good_target(path, operation):
    values = {"id": "train", "name": "gpu0", "fingerprint": "f", "path": "style.css",
              "shape": "12x384", "budget": "6GiB", "all": "true", "after": "0", "wait": "0"}
    query = []
    for parameter in operation.get("parameters", []):
        value = values[parameter["name"]]
        path = path.replace("{" + parameter["name"] + "}", value)
        if parameter["in"] == "query":
            query.append((parameter["name"], value))
    return path + ("?" + urllib.parse.urlencode(query) if query else "")


def good_body(operation):
    if "requestBody" not in operation:
        return None
    return {"registerRun": {**pudicad.DESCRIPTION, "name": "other"},
            "setBudget": {"budget": "18GiB"},
            "setGroup": {"total": 1 << 30},
            "prune": {"older_than_seconds": 3600},
            "postEvents": {"dropped": 0, "events": [
                pudicad.step(3), {"type": "need", "bytes": 5}, {"type": "unknown"},
                {"type": "budget", "seq": 0, "step": 4, "budget_bytes": 9},
                {"type": "model", "state": "not a state"},
                {"type": "snapshot", "snapshot": {"state": "planning", "plans": 7}}]},
            }[operation["operationId"]]


def mutated(value, chance):
    """A copy with one thing in it changed: a type, a missing or a strange field."""
    value = json.loads(json.dumps(value))
    node = value
    while isinstance(node, (dict, list)) and node:
        key = chance.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if not isinstance(node[key], (dict, list)) or chance.random() < 0.4:
            if isinstance(node, dict) and chance.random() < 0.3:
                del node[key]
            else:
                node[key] = chance.choice(ODD_VALUES)
            return value
        node = node[key]
    return chance.choice(ODD_VALUES)


def test_good_requests(daemon, document):
    # Nothing is learned.
    expected_errors = {"explainShape", "estimateShape", "getModel", "deleteModel"}
    for path, method, operation in operations(document):
        reply = pudicad.ask(daemon.socket, method, good_target(path, operation),
                            good_body(operation))
        check(document, operation, reply, f"{method} {path}")
        name = operation["operationId"]
        assert (reply.status < 300) == (name not in expected_errors), (name, reply)


def test_odd_arguments_and_bodies(daemon, document):
    chance = random.Random(SEED)
    for path, method, operation in operations(document):
        for _ in range(ROUNDS):
            body = good_body(operation)
            asked = target(path, operation, ODD_TEXTS, chance)
            if body is not None:
                if chance.random() < 0.7:
                    asked = good_target(path, operation)
                body = json.dumps(mutated(body, chance)).encode()
                if chance.random() < 0.2:
                    body = body[:chance.randrange(len(body) + 1)]
            reply = pudicad.ask(daemon.socket, method, asked, body)
            check_unless_other_path(document, operation, reply, (method, asked, body))
    assert daemon.alive()


def check_unless_other_path(document, operation, reply, what):
    """An empty part makes it another path: 404 or 405 by the document as a whole."""
    if reply.status in (404, 405):
        assert reply.json()["error"]["code"] in ("not_found", "method_not_allowed"), what
    elif "//" not in what[1].split("?")[0] and not what[1].split("?")[0].endswith("/"):
        check(document, operation, reply, what)


def test_missing_bodies_and_wrong_methods(daemon, document):
    for path, method, operation in operations(document):
        asked = good_target(path, operation)
        if "requestBody" in operation:
            reply = pudicad.ask(daemon.socket, method, asked)
            assert reply.status == 400, (method, path)
            check(document, operation, reply, (method, path))
        for other in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            if other.lower() in document["paths"][path]:
                continue
            reply = pudicad.ask(daemon.socket, other, asked, {})
            assert reply.status == 405, (other, path)
            assert reply.json()["error"]["code"] == "method_not_allowed"
            assert method in reply.headers["allow"]


def test_oversized_bodies(daemon, document):
    for path, method, operation in operations(document):
        if "requestBody" not in operation:
            continue
        reply = pudicad.ask(daemon.socket, method, good_target(path, operation), b"x" * 5000000)
        assert reply.status == 413
        check(document, operation, reply, (method, path))


def test_random_bytes(daemon, document):
    chance = random.Random(SEED + 1)
    for path, method, operation in operations(document):
        for _ in range(ROUNDS // 2):
            garbage = chance.randbytes(chance.randrange(1, 3000))
            if "requestBody" in operation:
                reply = pudicad.ask(daemon.socket, method, good_target(path, operation), garbage)
                assert reply.status == 400, (method, path, garbage)
                check(document, operation, reply, (method, path, garbage))
            line = f"{method} {good_target(path, operation)} HTTP/1.1\r\n".encode()
            data = bytearray(line + b"Host: x\r\nContent-Length: 3\r\n\r\n{}\n")
            for _ in range(chance.randrange(1, 8)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            with pudicad.connect(daemon.socket) as connection:
                connection.sendall(bytes(data))
                connection.shutdown(1)
                answer = pudicad.read_all(connection)
            if answer:
                reply = pudicad.parse_reply(answer)
                if reply.status >= 400 and not data.startswith(b"HEAD"):
                    assert set(reply.json()["error"]) == {"code", "message"}, (data, reply)
    assert daemon.alive()
