"""The Lua scripts, as they are shipped beside this module. `lua/prelude.lua` goes before each."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

NAMES: Final = (
    "acquire",
    "beat",
    "forget",
    "lease",
    "members",
    "newer_map",
    "publish",
    "publish_shares",
    "release",
    "renew",
)


@dataclass(frozen=True, slots=True)
class Script:
    """A script's name, text, and the digest by which a server that has it can be told to run it."""

    name: str
    source: bytes
    sha: bytes


@cache
def script(name: str) -> Script:
    """The script of that name.

    Raises:
        KeyError: there is none.
    """
    if name not in NAMES:
        raise KeyError(name)
    folder = resources.files(__package__) / "lua"
    prelude = (folder / "prelude.lua").read_bytes()
    source = prelude + (folder / f"{name}.lua").read_bytes()
    digest = hashlib.sha1(source, usedforsecurity=False).hexdigest()
    return Script(name, source, digest.encode())
