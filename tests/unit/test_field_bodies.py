"""Bodies as clients of the field really send them, whole families at a time."""

import gzip
import json
import random
import zlib

import pytest

from epp_worker.datalayer.metrics_text import read_page
from epp_worker.extproc.asking import Came, ask
from epp_worker.scheduling.contract import Refusal
from epp_worker.scheduling.group import GroupPicker

MIB = 1024 * 1024
PLAIN = b'{"model":"m","prompt":"%s"}' % (b"x" * 66_000)


def found(
    body: bytes, *, path: str = "/v1/completions", coding: str = "", largest: int = 16 * MIB
) -> str | int | None:
    """The model, or the status of the refusal."""
    headers = {":method": "POST", ":path": path, "content-encoding": coding}
    came = Came(headers.get, None, body)
    asked = ask(GroupPicker(), came, largest=largest, rng=random.Random(1))
    return asked.status if isinstance(asked, Refusal) else asked.request.model


def raw_deflate(data: bytes) -> bytes:
    coder = zlib.compressobj(wbits=-15)
    return coder.compress(data) + coder.flush()


GOOD = {
    "gzip": gzip.compress(PLAIN),
    "gzip in members": gzip.compress(PLAIN[:30_000]) + gzip.compress(PLAIN[30_000:]),
    "gzip, empty member": gzip.compress(b"") + gzip.compress(PLAIN),
    "gzip, stored": gzip.compress(PLAIN, compresslevel=0),
    "deflate": zlib.compress(PLAIN),
    "deflate without frame": raw_deflate(PLAIN),
    "x-gzip": gzip.compress(PLAIN),
    "gzip, spelled otherwise": gzip.compress(PLAIN),
}
CODING = {"x-gzip": "x-gzip", "gzip, spelled otherwise": " GZip , identity"}


@pytest.mark.parametrize("name", GOOD)
def test_compressed_bodies_are_read(name: str) -> None:
    """Every lawful form of a coding that we know (agentgateway#2402, langwatch#6344)."""
    coding = CODING.get(name, name.partition(" ")[0].strip(","))
    assert found(GOOD[name], coding=coding) == "m"


@pytest.mark.parametrize("name", GOOD)
def test_damaged_compressed_bodies_are_400(name: str) -> None:
    """Cut anywhere, or one byte changed: a status or the model, never an exception."""
    coding = CODING.get(name, name.partition(" ")[0].strip(","))
    rng = random.Random(name)
    for _ in range(60):
        body = bytearray(GOOD[name])
        if rng.random() < 0.5:
            del body[rng.randrange(len(body) - 1) :]
        else:
            body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
        assert found(bytes(body), coding=coding) in (400, 413, "m")


@pytest.mark.parametrize(("coding", "members"), [("gzip", 1), ("gzip", 3), ("deflate", 1)])
def test_bombs_are_413(coding: str, members: int) -> None:
    """In one member or in many; no more than the cap is ever unpacked (headroom#71)."""
    bomb = (gzip.compress if coding == "gzip" else zlib.compress)(b" " * 700_000) * members
    assert found(bomb, largest=600_000 * members, coding=coding) == 413


def test_too_many_members_are_refused() -> None:
    """A megabyte of empty gzip members would be quadratic work."""
    assert found(gzip.compress(b"") * 50_000, coding="gzip") == 400


@pytest.mark.parametrize("coding", ["zstd", "br", "gzip, br", "compress", "aws-chunked", "\ud800"])
def test_unknown_codings_are_routed_without_a_model(coding: str) -> None:
    """The pool decides; never 500 (headroom#45)."""
    assert found(b"\x28\xb5\x2f\xfd rest", coding=coding) is None


SHAPES: list[object] = [
    {"messages": [{"role": "user", "content": "who are you"}], "temperature": 0},
    {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": 1}]}]},
    {"messages": [{"role": "user", "content": []}]},
    {"messages": []},
    {"messages": None},
    {"messages": "no list"},
    {"messages": {"role": "user"}},
    {"messages": [[["deep"]], 1, None]},
    {"prompt": ["a", "b"]},
    {"prompt": [1, 2, 3]},
    {"prompt": None},
    {"input": [{"type": "message", "content": [{"type": "input_image"}]}]},
    {"input": ["a", "b"]},
    {"input": 5},
    {"stream": "yes", "n": -1, "max_tokens": 1e308},
    {},
]


@pytest.mark.parametrize("path", ["completions", "chat/completions", "responses", "embeddings"])
@pytest.mark.parametrize("shape", SHAPES, ids=json.dumps)
def test_only_the_model_matters(path: str, shape: dict[str, object]) -> None:
    """Any shape on any path, the model before or after it (inference-extension#790, #2394)."""
    for whole in ({"model": "m", **shape}, {**shape, "model": "m"}):
        for body in (json.dumps(whole), json.dumps(whole, indent=2, ensure_ascii=False)):
            assert found(body.encode(), path=f"/v1/{path}") == "m"


@pytest.mark.parametrize(
    "model", [None, "", 0, 42, 1.5, True, ["m"], {"a": 1}, [], {}, "\ud800", "a\udfff", "x" * 5000]
)
def test_anything_but_a_name_is_400(model: object) -> None:
    """In strict JSON and in JSON that only Python reads alike (semantic-router#1573,
    headroom#2480)."""
    for rest in ({}, {"t": float("nan")}):
        assert found(json.dumps({"model": model, **rest}).encode()) == 400


@pytest.mark.parametrize("seed", range(20))
def test_no_bytes_raise(seed: int) -> None:
    """Random damage of lawful bodies in every encoding: a model, a refusal, nothing else
    (semantic-router#1573)."""
    rng = random.Random(seed)
    text = '{"model":"mödel🙂","n":1.0E+2,"k":18446744073709551616,"x":[[[{"a":null}]]]}'
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "cp1252"):
        body = bytearray(text.encode(encoding, "replace"))
        for _ in range(rng.randrange(4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        answer = found(bytes(body))
        assert answer == 400 or isinstance(answer, str)


def test_a_line_of_labels_is_read_in_linear_time() -> None:
    """10,000 labels in one line are looked at once each; the value behind them counts."""
    line = b"vllm:num_requests_waiting{" + b'a="}",' * 10_000 + b"} 7\n"
    assert read_page(line).waiting == 7
    plain = b"vllm:num_requests_waiting{" + b'a="b",' * 10_000 + b"} 7\n"
    assert read_page(plain).waiting == 7
