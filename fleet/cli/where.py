"""Which fleet a command speaks to, and with which token."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import FormatError, SettingsError
from fleet.local.api import origin
from fleet.local.faults import Unreachable
from fleet.local.state import FleetState, default_path, read_state


@dataclass(frozen=True, slots=True)
class Fleet:
    """Addresses of coordinators to try in turn, and where the token is, if known."""

    coordinators: tuple[str, ...]
    token_file: Path | None

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


def find_fleet(
    coordinator: str | None, state_file: str | None, environ: Mapping[str, str]
) -> Fleet:
    """The fleet meant by flag, environment or state file, in this order.

    The state file's token goes to the state file's coordinators only.

    Raises:
        SettingsError: an address that is none, or a state file that cannot be read.
        Unreachable: nothing says where a coordinator is.
    """
    token = environ.get("EPP_FLEET_TOKEN_FILE")
    token_file = Path(token) if token else None
    path = Path(state_file) if state_file else default_path(environ)
    for address, named in (
        (coordinator, "--coordinator"),
        (None if state_file else environ.get("EPP_FLEET_COORDINATOR"), "EPP_FLEET_COORDINATOR"),
    ):
        if address:
            base = _checked(address, named)
            return Fleet((base,), token_file or _token_of(_state(path), base))
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


def _token_of(state: FleetState | None, base: str) -> Path | None:
    if state is None or base not in {origin(each.http) for each in state.coordinators}:
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
