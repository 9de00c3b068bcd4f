"""Which fleet a command speaks to, and with which token."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from fleet.errors import FormatError, SettingsError
from fleet.local.api import CoordinatorApi, origin
from fleet.local.faults import Unreachable
from fleet.local.state import FleetState, default_path, read_state


@dataclass(frozen=True, slots=True)
class Fleet:
    """Addresses of coordinators to try in turn, and where the token is, if known."""

    coordinators: tuple[str, ...]
    token_file: Path | None

    def api(self, http: aiohttp.ClientSession, *, timeout_seconds: float = 3.0) -> CoordinatorApi:
        """Its coordinators; reads bear the token where they have to."""
        return CoordinatorApi(
            http, self.coordinators, timeout_seconds=timeout_seconds, token=self.token_for_reads
        )

    def leader_api(
        self, http: aiohttp.ClientSession, leader: Mapping[str, Any], *, timeout_seconds: float
    ) -> CoordinatorApi:
        """The leader alone, as a document names it; from outside of a cluster it may be out of
        reach.

        Raises:
            ValueError: what it is said to be at is no address.
        """
        return CoordinatorApi(
            http,
            (str(leader["http"]),),
            timeout_seconds=timeout_seconds,
            token=self.token_for_reads,
        )

    def token_for_reads(self) -> str:
        """Where reads need one; "" if none is named.

        Raises:
            SettingsError: see `read_token`.
        """
        return "" if self.token_file is None else read_token(self.token_file)


def _checked(address: str, origin_of: str) -> str:
    try:
        return origin(address)
    except ValueError as error:
        raise SettingsError([f"{origin_of}: {error}"]) from error


def _split(addresses: str, named: str) -> tuple[str, ...]:
    """The addresses of a list with commas, each once."""
    found = [_checked(each.strip(), named) for each in addresses.split(",") if each.strip()]
    if not found:
        raise SettingsError([f"{named}: no address in {addresses[:200]!r}"])
    return tuple(dict.fromkeys(found))


def find_fleet(
    coordinators: Sequence[str] | None, state_file: str | None, environ: Mapping[str, str]
) -> Fleet:
    """The fleet meant by flag, environment or state file, in this order.

    The state file's token goes to the state file's coordinators only.

    Args:
        coordinators: addresses, each of them perhaps several with commas.

    Raises:
        SettingsError: an address that is none, or a state file that cannot be read.
        Unreachable: nothing says where a coordinator is.
    """
    token = environ.get("EPP_FLEET_TOKEN_FILE")
    token_file = Path(token) if token else None
    path = Path(state_file) if state_file else default_path(environ)
    for addresses, named in (
        (None if coordinators is None else ",".join(coordinators), "--coordinator"),
        (None if state_file else environ.get("EPP_FLEET_COORDINATOR"), "EPP_FLEET_COORDINATOR"),
    ):
        if addresses or (addresses is not None and named == "--coordinator"):
            found = _split(addresses, named)
            return Fleet(found, token_file or _token_of(_state(path), found))
    state = _state(path)
    if state is None:
        raise Unreachable(
            f"no fleet is known: there is no {path}; start one with `epp-fleet local`, or give "
            "--coordinator URL"
        )
    known = tuple(_checked(each.http, str(path)) for each in state.coordinators)
    return Fleet(known, token_file or Path(state.token_file))


def _state(path: Path) -> FleetState | None:
    try:
        return read_state(path)
    except FormatError as error:
        raise SettingsError([str(error)]) from error


def _token_of(state: FleetState | None, bases: Sequence[str]) -> Path | None:
    if state is None or not {origin(each.http) for each in state.coordinators}.issuperset(bases):
        return None
    return Path(state.token_file)


def read_token(path: Path | None) -> str:
    """The token in a file.

    Raises:
        SettingsError: none is named, it cannot be read, or it is empty.
    """
    if path is None:
        raise SettingsError(["a token is needed: set EPP_FLEET_TOKEN_FILE to the file that has it"])
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror.lower() if isinstance(error, OSError) and error.strerror else error
        raise SettingsError([f"token file {path}: {reason}"]) from error
    if not token or not token.isascii() or not token.isprintable():
        raise SettingsError([f"token file {path}: one line of printable ASCII is needed"])
    return token


def environment() -> Mapping[str, str]:
    """This process's environment."""
    return os.environ
