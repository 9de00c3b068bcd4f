"""Another model's name in a body: only the bytes of that name change."""

import json
import random
import resource
import time

import pytest

from epp_worker.extproc.multipart import form_model
from epp_worker.extproc.splice import with_model


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (b'{"model":"m"}', b'{"model":"new"}'),
        (b'{ "model" :\n\t"m" , "x":1.0E+2}', b'{ "model" :\n\t"new" , "x":1.0E+2}'),
        (
            '{"seed":4634343214213523454,"x":"你好🙂","model":"m"}'.encode(),
            '{"seed":4634343214213523454,"x":"你好🙂","model":"new"}'.encode(),
        ),
        # the same key and name deeper down, before and after
        (
            b'{"a":{"model":"m"},"model":"m","b":[{"model":"m"}]}',
            b'{"a":{"model":"m"},"model":"new","b":[{"model":"m"}]}',
        ),
        # text that looks like it
        (
            rb'{"p":"\"model\":\"m\"","q":"{\"model\":\"m\"}","model":"m"}',
            rb'{"p":"\"model\":\"m\"","q":"{\"model\":\"m\"}","model":"new"}',
        ),
        # of equal keys the last one counts
        (b'{"model":"m","model":"m"}', b'{"model":"m","model":"new"}'),
        (b'{"model":"k","model":"m"}', b'{"model":"k","model":"new"}'),
        (b'{"model":"m","x":{"model":"k"}}', b'{"model":"new","x":{"model":"k"}}'),
        # escapes in the key and in the name
        (rb'{"mod\u0065l":"m"}', rb'{"mod\u0065l":"new"}'),
        (rb'{"model":"\u006d"}', rb'{"model":"new"}'),
        (rb'{"model":"a\"b\\"}', rb'{"model":"new"}'),
        # none yet
        (b"{}", b'{"model":"new"}'),
        (b' { "prompt":"x"}', b' {"model":"new", "prompt":"x"}'),
        (b'{"model":null,"x":1}', b'{"model":"new","x":1}'),
        (b'{"x":{"model":"m"}}', b'{"model":"new","x":{"model":"m"}}'),
        (b'{"model":"","x":1}', b'{"model":"new","x":1}'),
        # what strict JSON refuses and model servers take
        (b'{"t":NaN,"model":"m"}', b'{"t":NaN,"model":"new"}'),
        (b'\xef\xbb\xbf{"model":"m"}', b'\xef\xbb\xbf{"model":"new"}'),
    ],
)
def test_only_the_name_changes(body: bytes, changed: bytes) -> None:
    """Blanks, order, numbers, escapes and everything nested stay as they are
    (usebruno/bruno#9230, kubernetes-sigs/gateway-api-inference-extension#943)."""
    assert with_model(body, "new") == changed


@pytest.mark.parametrize("name", ["n", "a/b:c", 'q"q', "back\\slash", "模型", "x" * 1000])
def test_any_name_is_spelled_right(name: str) -> None:
    """As JSON."""
    changed = with_model(b'{"model":"m","x":1}', name)
    assert changed is not None
    assert json.loads(changed) == {"model": name, "x": 1}


@pytest.mark.parametrize("body", [b"", b"x", b"[1]", b'{"model":1}', b'{"model":"m"', b"null"])
def test_what_is_no_request_stays(body: bytes) -> None:
    """Nothing is guessed."""
    assert with_model(body, "new") is None


@pytest.mark.parametrize("seed", range(30))
def test_any_document(seed: int) -> None:
    """The parsed document differs in that one value."""
    rng = random.Random(seed)

    def value(depth: int) -> object:
        kind = rng.randrange(6 if depth else 4)
        if kind == 4:
            return [value(depth - 1) for _ in range(rng.randrange(4))]
        if kind == 5:
            keys = rng.sample(["model", "m", '"model":"m"', "x", "model "], 3)
            return {key: value(depth - 1) for key in keys}
        return rng.choice(["m", '"model":"m"', "{", 1.5, None, True, "\\"])

    document = {"a": value(3), "model": "m", "b": value(3)}
    body = json.dumps(document, separators=rng.choice([(",", ":"), (", ", ": ")])).encode()
    changed = with_model(body, "new")
    assert changed is not None
    assert json.loads(changed) == {**document, "model": "new"}
    assert len(changed) == len(body) + 2


def test_many_finds_are_not_all_proved() -> None:
    """A body made of nested keys costs a bounded time."""
    body = b'{"a":[%s],"model":"m"}' % b",".join([b'{"model":"m"}'] * 200_000)
    assert with_model(body, "new") in (None, body[:-4] + b'"new"}')


FORM = (
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nRIFF\r\n'
    b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n--b--\r\n'
)


def test_the_model_of_a_form() -> None:
    """An upload: the field's value, wherever the file is; and only that is replaced."""
    where = form_model(FORM)
    assert where is not None
    assert FORM[slice(*where)] == b"whisper-1"
    assert with_model(FORM, "large") == FORM.replace(b"whisper-1", b"large")
    padded = FORM.replace(b"RIFF", b"R" * 1_000_000)
    where = form_model(padded)
    assert where is not None
    assert padded[slice(*where)] == b"whisper-1"
    assert form_model(b"--b\r\nno field\r\n--b--") is None
    assert form_model(b'{"model":"m"}') is None


def test_a_long_value_costs_little_memory() -> None:
    """A string of 10 MiB under a nested key `model` once took 1.4 GB to look at."""
    body = b'{"x":{"model":"' + b"a" * (10 * 1024 * 1024) + b'"},"model":"m"}'
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    changed = with_model(body, "new")
    assert changed is not None
    assert changed.endswith(b'"},"model":"new"}')
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


def test_headers_of_a_form_that_never_end() -> None:
    """64 KiB of one header line once took 0.6 s to search; 16 more lines are plenty for a field."""
    line = b'content-disposition: form-data; name="model"\r\n'
    begun = time.process_time()
    assert form_model(b"--b\r\n" + line * 3000) is None
    assert time.process_time() - begun < 0.2
    padded = b"--b\r\n" + line + b"x-a: b\r\n" * 16 + b"\r\nm\r\n--b--\r\n"
    where = form_model(padded)
    assert where is not None
    assert padded[slice(*where)] == b"m"


@pytest.mark.parametrize("model", ["a\r\n--b\r\n", "a\nb", "a\r"])
def test_a_form_gets_no_name_of_several_lines(model: str) -> None:
    """It would end the field, and begin others."""
    assert with_model(FORM, model) is None
    assert with_model(b'{"model":"m"}', model) is not None
