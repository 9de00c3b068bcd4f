"""The settings file of the simulated model servers: which addresses, which pods, which models."""

from pathlib import Path

import msgspec

from fleet.errors import SettingsError
from fleet.local.model_engine import Speed

FORMAT = 1


class ModelServer(msgspec.Struct, frozen=True):
    """One simulated pod.

    Attributes:
        address: where it listens, `127.0.0.x:port`.
        pod: `namespace/name`; answers carry it in `x-served-by`.
        models: model ids that it serves; the first is its base model.
    """

    address: str
    pod: str
    models: tuple[str, ...]


class ModelServersConfig(msgspec.Struct, frozen=True):
    """The whole file (JSON)."""

    servers: tuple[ModelServer, ...]
    speed: Speed = Speed()
    format: int = FORMAT


def split_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`.

    Raises:
        ValueError: another shape, or a port outside 1..65535.
    """
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"not host:port: {text[:100]!r}")
    return host.strip("[]"), int(port)


def read_config(path: Path) -> ModelServersConfig:
    """Read and check the file.

    Raises:
        SettingsError: unreadable, or one line per bad server.
    """
    try:
        config = msgspec.json.decode(path.read_bytes(), type=ModelServersConfig)
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsError([f"{path}: {error}"]) from error
    problems = [] if config.servers else ["servers: at least one is needed"]
    seen: set[str] = set()
    for index, server in enumerate(config.servers):
        where = f"servers[{index}]"
        try:
            split_address(server.address)
        except ValueError as error:
            problems.append(f"{where}.address: {error}")
        if server.address in seen:
            problems.append(f"{where}.address: {server.address} is named twice")
        if not server.models:
            problems.append(f"{where}.models: at least one model id is needed")
        seen.add(server.address)
    if problems:
        raise SettingsError(problems)
    return config


def write_config(path: Path, config: ModelServersConfig) -> None:
    """Write the file in the form that `read_config` reads."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=2))
