"""How the process decides to end, and what it refuses to start with."""

import asyncio
from pathlib import Path

import pytest

from epp_worker.main import Ending
from fleet.errors import SettingsError
from fleet.process import FAILED, GOOD, USAGE, read_token


@pytest.mark.looptime
async def test_the_first_sigterm_drains_and_the_second_ends() -> None:
    """An impatient operator gets his way."""
    ending = Ending(asyncio.get_running_loop())
    ending.terminate()
    assert ending.drain.is_set()
    assert not ending.code.done()
    ending.terminate()
    assert ending.code.result() == GOOD


@pytest.mark.looptime
async def test_a_fatal_fault_ends_as_failed_a_moment_later() -> None:
    """Long enough for a probe to see it; exit code 1."""
    ending = Ending(asyncio.get_running_loop())
    ending.fatal("task 'beats' has died")
    await asyncio.sleep(0.9)
    assert not ending.code.done()
    await asyncio.sleep(0.2)
    assert ending.code.result() == FAILED


@pytest.mark.looptime
async def test_the_first_reason_counts() -> None:
    """Refused by the leader, then interrupted: still a usage error."""
    ending = Ending(asyncio.get_running_loop())
    ending.refused("the id is taken")
    ending.at_once(GOOD)
    assert ending.code.result() == USAGE


def test_a_token_is_needed(tmp_path: Path) -> None:
    """Missing and empty files are told apart; the token is never quoted."""
    with pytest.raises(SettingsError, match=r"^security\.token_file: cannot read"):
        read_token(str(tmp_path / "absent"))
    empty = tmp_path / "empty"
    empty.write_text(" \n")
    with pytest.raises(SettingsError, match=r"^security\.token_file: .* is empty"):
        read_token(str(empty))
    good = tmp_path / "token"
    good.write_text("secret\n")
    assert read_token(str(good)) == "secret"
