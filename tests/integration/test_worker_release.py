"""What tells a worker's release: the software's version, and the template that it was made from."""

from importlib.metadata import version
from pathlib import Path

import pytest

from fleet.settings import WorkerSettings
from tests.worker_inprocess import running_worker


@pytest.mark.parametrize(("release", "suffix"), [("", ""), ("6d5f7c9b8", "+6d5f7c9b8")])
async def test_a_worker_says_its_release(tmp_path: Path, release: str, suffix: str) -> None:
    """In every beat and hello, so that two templates of one software are a roll-out."""
    own = WorkerSettings(
        host="127.0.0.1",
        ext_proc_port=0,
        health_port=0,
        internal_port=0,
        http_port=0,
        release=release,
    )
    async with running_worker(tmp_path, worker_settings=own) as running:
        assert running.worker.member().version == version("epp-fleet") + suffix
