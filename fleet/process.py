"""What every process of a fleet does before it serves: token, open files, exit codes."""

import resource
from pathlib import Path

from fleet.errors import SettingsError

GOOD, FAILED, USAGE = 0, 1, 2
"""Exit codes: stopped when asked to; a task that must live has died; settings, port or id wrong."""

LEAST_FILES = 256
"""Below this many open files a process cannot even hold its own listeners and connections."""


def read_token(path: str) -> str:
    """The fleet's bearer token.

    Raises:
        SettingsError: the file cannot be read, or there is nothing in it.
    """
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError([f"security.token_file: cannot read {path}: {error}"]) from error
    if not token:
        raise SettingsError([f"security.token_file: {path} is empty; put a token into it"])
    return token


def raise_file_limit() -> int:
    """Raise NOFILE to the hard limit and return it.

    Raises:
        SettingsError: the hard limit is too low to serve at all.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        hard = 2**31 - 1
    if hard < LEAST_FILES:
        raise SettingsError([f"NOFILE: hard limit is {hard}, at least {LEAST_FILES} are needed"])
    return hard
