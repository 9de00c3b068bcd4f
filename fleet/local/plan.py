"""Everything about a local fleet that can be found wrong before a process is started."""

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from fleet.errors import SettingsError
from fleet.local import orphans
from fleet.local.atomic import write_atomic
from fleet.local.binaries import envoy_binary, valkey_binary
from fleet.local.envoy_files import Folders
from fleet.local.locks import Lock
from fleet.local.options import LocalOptions
from fleet.local.ports import is_free
from fleet.settings import Settings, load_settings
from fleet.settings.kinds import kind_problems
from fleet.sources.folder import check_folder

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked request.

    Attributes:
        settings: file and environment merged; the fleet's own values come on top.
        envoy: None = no gateway.
        valkey: None = somebody else's Redis.
    """

    options: LocalOptions
    settings: Settings
    envoy: Path | None
    valkey: Path | None


def make_plan(options: LocalOptions, environ: Mapping[str, str]) -> Plan:
    """Check options, settings, manifests and programs.

    Raises:
        SettingsError: one line per problem, all of them.
    """
    problems = options.problems()
    settings = Settings()
    flags = {} if options.redis_url is None else {"redis.url": options.redis_url}
    try:
        settings = load_settings(options.config, environ, flags)
        problems += _kind_problems(settings)
        problems += _tls_problems(settings) if options.gateway else []
    except SettingsError as error:
        problems += error.problems
    if options.manifests is not None:
        found = check_folder(options.manifests)
        problems += [f"{problem.where}: {problem.message}" for problem in found]
    port = options.gateway_port
    if options.gateway and port is not None and 1 <= port <= 65535 and not is_free(LOOPBACK, port):
        problems.append(f"--gateway-port: {LOOPBACK}:{port} is in use; choose another")
    envoy = valkey = None
    try:
        envoy = envoy_binary() if options.gateway else None
    except SettingsError as error:
        problems += error.problems
    try:
        valkey = valkey_binary() if options.redis_url is None else None
    except SettingsError as error:
        problems += error.problems
    if problems:
        raise SettingsError(problems)
    return Plan(options, settings, envoy, valkey)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The private folder of one run; removed at its end.

    Attributes:
        lock: held as long as we live, so that a later fleet knows what was left behind.
    """

    root: Path
    lock: Lock | None = None

    def remove(self) -> None:
        """Remove all of it, lock last."""
        for path in self.root.glob("*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != orphans.LOCK_NAME:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.root, ignore_errors=True)
        if self.lock is not None:
            self.lock.release()

    @property
    def logs(self) -> Path:
        """Output of every process."""
        return self.root / "logs"

    @property
    def sample(self) -> Path:
        """The generated manifests."""
        return self.root / "manifests"

    @property
    def token(self) -> Path:
        """The fleet's bearer token."""
        return self.root / "token"

    @property
    def settings(self) -> Path:
        """The settings of workers and coordinators."""
        return self.root / "settings.yaml"

    @property
    def peers(self) -> Path:
        """Where the workers' internal ports are, one a line."""
        return self.root / "peers"

    @property
    def models(self) -> Path:
        """The settings of the simulated servers."""
        return self.root / "models.json"

    @property
    def envoy(self) -> Folders:
        """Envoy's files."""
        return Folders(self.root)


def run_base(environ: Mapping[str, str]) -> Path:
    """Where run folders are: below `$XDG_RUNTIME_DIR`, else in the temporary folder."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK | os.X_OK):
        return Path(runtime) / "epp-fleet"
    return Path(tempfile.gettempdir())


def make_run_folder(environ: Mapping[str, str]) -> RunFolder:
    """A new folder for the owner only, in `run_base`, marked as in use by this process."""
    base = run_base(environ)
    base.mkdir(mode=0o700, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix=orphans.PREFIX, dir=base))
    folder = RunFolder(root, orphans.lock_folder(root))
    folder.logs.mkdir(mode=0o700)
    return folder


def _kind_problems(settings: Settings) -> list[str]:
    """What is wrong only in a fleet of folders, whose lease is in the store."""
    folders = dataclasses.replace(
        settings,
        source=dataclasses.replace(settings.source, manifests="manifests"),
        routes=dataclasses.replace(settings.routes, eds_directory="eds"),
    )
    return [f"{fields[0]}: {problem}" for fields, problem in kind_problems(folders)]


def _tls_problems(settings: Settings) -> list[str]:
    """Settings under which workers refuse our own Envoy, so that every request would fail."""
    remedy = "the Envoy of a local fleet speaks plaintext; leave it out, or give --gateway none"
    problems = []
    if settings.worker.tls == "require":
        problems.append(f"worker.tls: is require, but {remedy}")
    if settings.worker.tls_client_ca_file:
        problems.append(f"worker.tls_client_ca_file: is set, but {remedy}")
    return problems


def write_settings(
    folder: RunFolder, settings: Settings, *, redis_url: str, manifests: Path, token: str
) -> None:
    """Write what workers and coordinators read: the user's settings, and the fleet's own on top."""
    values = dataclasses.asdict(settings)
    values["redis"]["url"] = redis_url
    values["source"]["manifests"] = str(manifests)
    values["routes"]["eds_directory"] = str(folder.envoy.eds)
    values["security"]["token_file"] = str(folder.token)
    for section in ("coordinator", "worker"):
        values[section].update(host=LOOPBACK, advertise_host="")
    values["worker"]["peers"] = f"file:{folder.peers}"
    own = settings.worker
    if own.tls == "auto" and not (own.tls_certificate_file or own.tls_client_ca_file):
        # The gateway here speaks plaintext: no certificate is worth making.
        values["worker"]["tls"] = "off"
    write_atomic(folder.settings, yaml.safe_dump(values, sort_keys=False), mode=0o600)
    write_atomic(folder.token, token + "\n", mode=0o600)


def write_peers(folder: RunFolder, addresses: Iterable[str]) -> None:
    """Write where workers find each other while no coordinator and no store tells them."""
    write_atomic(folder.peers, "".join(f"{address}\n" for address in addresses), mode=0o600)


def child_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """What children see: ours without settings, which the written file holds already."""
    return {name: value for name, value in environ.items() if not name.startswith("EPP_FLEET_")}
