"""Which pool or worker is meant by the name that somebody types."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fleet.errors import SettingsError
from fleet.local.api import CoordinatorApi
from fleet.local.faults import Refused, Unreachable

GUESSES = 3


async def full_name(api: CoordinatorApi, pool: str) -> tuple[str, str]:
    """Namespace and name of `NAMESPACE/NAME`, or of a name that one pool of the shard map has.

    Raises:
        SettingsError: no such form, or a bare name that is not that of exactly one pool.
        Unreachable: no coordinator answers.
    """
    namespace, slash, name = pool.partition("/")
    if slash and namespace and name:
        return namespace, name
    if slash or not pool:
        raise SettingsError([f"{pool!r} is no name of a pool; say NAMESPACE/NAME"])
    return _only((await api.shard_map())["pools"], pool)


def _only(pools: Sequence[Mapping[str, Any]], name: str) -> tuple[str, str]:
    """The pool that has this name in whichever namespace."""
    found = sorted({str(pool["namespace"]) for pool in pools if pool["name"] == name})
    if len(found) == 1:
        return found[0], name
    if found:
        choices = " or ".join(f"{namespace}/{name}" for namespace in found[:5])
        raise SettingsError([f"{name}: several pools have this name; say {choices}"])
    guess = did_you_mean(name, {f"{pool['namespace']}/{pool['name']}" for pool in pools})
    raise SettingsError(
        [f"{name}: no pool in the shard map has this name; {guess or 'say NAMESPACE/NAME'}"]
    )


def did_you_mean(typed: str, names: Iterable[str]) -> str:
    """`did you mean a/b, a/c or a/d?`, or "" if nothing comes near; a bare name is compared with
    what follows the slash too."""
    known = sorted(names)
    found = difflib.get_close_matches(typed, known, GUESSES)
    by_tail: dict[str, list[str]] = {}
    for name in known:
        by_tail.setdefault(name.rpartition("/")[2], []).append(name)
    for tail in difflib.get_close_matches(typed.rpartition("/")[2], by_tail, GUESSES):
        found += by_tail[tail]
    shown = list(dict.fromkeys(found))[:GUESSES]
    if not shown:
        return ""
    but_last = f"{', '.join(shown[:-1])} or " if len(shown) > 1 else ""
    return f"did you mean {but_last}{shown[-1]}?"


async def with_guess(api: CoordinatorApi, error: Refused, typed: str, *, of: str) -> Refused:
    """The same refusal with a guess at what was meant, if something comes near.

    Args:
        of: `pools` or `workers`, among which to guess.
    """
    try:
        if of == "pools":
            pools = (await api.shard_map())["pools"]
            guess = did_you_mean(typed, (f"{pool['namespace']}/{pool['name']}" for pool in pools))
        else:
            workers = (await api.workers())["workers"]
            guess = did_you_mean(typed, (str(worker["id"]) for worker in workers))
    except (Unreachable, KeyError, TypeError):
        return error
    if not guess:
        return error
    return Refused(f"{error}; {guess}", status=error.status, code=error.code)
