"""The users of docs/redis.md, as its ACL SETUSER lines make them."""

import re
from pathlib import Path

from tests.valkey import Valkey

_DOCS = (Path(__file__).parent.parent / "docs" / "redis.md").read_text()
PASSWORD = "s3same"
COORDINATOR, WORKER, SENTINEL = "epp-coordinator", "epp-worker", "epp-sentinel"


def rules(user: str, *, fleet: str = "blue") -> list[str]:
    """What the documented line gives this user."""
    (line,) = re.findall(rf"^ +ACL SETUSER {user} (.*)$", _DOCS, flags=re.MULTILINE)
    return str(line).replace("FLEET", fleet).replace("PASSWORD", PASSWORD).split()


def rights(user: str) -> list[str]:
    """The commands among them."""
    return [rule for rule in rules(user) if rule.startswith("+")]


def set_user(server: Valkey, name: str, words: list[str]) -> None:
    """Make a user of exactly these rules."""
    reply = server.command("ACL", "SETUSER", name, *words)
    assert reply == b"+OK\r\n", reply


def url_of(user: str, port: int) -> str:
    """What `redis.url` takes for this user."""
    return f"redis://{user}:{PASSWORD}@127.0.0.1:{port}/0"
