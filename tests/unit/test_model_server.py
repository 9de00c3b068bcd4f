"""The simulated engine: who waits, what a token costs, what the gauges say."""

import asyncio
from pathlib import Path

import pytest

from fleet.clock import SystemClock
from fleet.errors import SettingsError
from fleet.local.model_config import ModelServer, ModelServersConfig, read_config, write_config
from fleet.local.model_engine import Engine, EngineFull, Speed

SPEED = Speed(
    max_batch=2,
    max_waiting=1,
    prompt_token_seconds=0.01,
    token_seconds=0.1,
    slowdown_ratio=0.5,
    kv_tokens=100,
)


class _Loop(SystemClock):
    """Sleeps on the (virtual) loop and remembers how long."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        await asyncio.sleep(seconds)


@pytest.mark.looptime
async def test_a_prompt_costs_by_length_and_a_token_by_the_batch() -> None:
    """10 prompt tokens = 0.1 s; a token alone = 0.1 s; with one more request running = 0.15 s."""
    clock = _Loop()
    engine = Engine(SPEED, clock)
    async with engine.admit(10, 20):
        await engine.make(1)
        async with engine.admit(10, 20):
            await engine.make(2)
    assert clock.slept == [0.1, 0.1, 0.1, 0.3]
    assert (engine.prompt_tokens, engine.generated_tokens, engine.finished) == (20, 3, 2)


@pytest.mark.looptime
async def test_gauges_follow_queue_batch_and_cache() -> None:
    """Two run, one waits, a fourth is refused; everything is back at zero afterwards."""
    engine = Engine(SPEED, _Loop())
    go = asyncio.Event()

    async def request() -> None:
        async with engine.admit(10, 20):
            await go.wait()

    tasks = [asyncio.create_task(request()) for _ in range(3)]
    await asyncio.sleep(1)
    assert (engine.running, engine.waiting, engine.kv_usage) == (2, 1, 0.6)
    with pytest.raises(EngineFull):
        async with engine.admit(1, 1):
            pass
    go.set()
    await asyncio.gather(*tasks)
    assert (engine.running, engine.waiting, engine.kv_usage) == (0, 0, 0.0)


@pytest.mark.looptime
async def test_a_client_that_leaves_frees_its_place() -> None:
    """A cancelled request, waiting or running, leaves no trace in the gauges."""
    engine = Engine(SPEED, _Loop())

    async def request() -> None:
        async with engine.admit(10, 20):
            await asyncio.sleep(1000)

    tasks = [asyncio.create_task(request()) for _ in range(3)]
    await asyncio.sleep(1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (engine.running, engine.waiting, engine.kv_usage, engine.finished) == (0, 0, 0.0, 0)
    async with engine.admit(10, 20):
        assert engine.running == 1


def test_config_comes_back_as_written(tmp_path: Path) -> None:
    """What the sample writes is what the server reads."""
    config = ModelServersConfig((ModelServer("127.0.0.2:8000", "a/p-0", ("m",)),), SPEED)
    write_config(tmp_path / "f.json", config)
    assert read_config(tmp_path / "f.json") == config


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "f.json"),
        ('{"servers": []}', "servers: at least one"),
        (
            '{"servers": [{"address": "nowhere", "pod": "a/b", "models": ["m"]}]}',
            "servers[0].address: not host:port",
        ),
        (
            '{"servers": [{"address": "127.0.0.2:1", "pod": "a/b", "models": []}]}',
            "servers[0].models",
        ),
    ],
)
def test_bad_config_is_named(tmp_path: Path, text: str, says: str) -> None:
    """Every fault of the file is one line that names the field."""
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_config(tmp_path / "f.json")
    assert says in str(caught.value)
