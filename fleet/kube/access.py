"""Where the API server is and who we are there: kubeconfig, service account, or KUBECONFIG.

The package `kubernetes` reads them, with all the ways to log in that it knows. Importing it takes
0.4 s, so that happens in `load`, once a fleet really has a cluster.
"""

import asyncio
import hashlib
import importlib
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from fleet.errors import SettingsError
from fleet.settings.model import KubernetesSettings

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_NAMESPACE: Final = "default"
"""What kubectl takes for a context that names none."""


_NO_WAY: Final = (
    "kubernetes.kubeconfig: there is no way to an API server: the setting is empty, this is no pod "
    "with a service account (KUBERNETES_SERVICE_HOST and its token file), and the variable "
    "KUBECONFIG is not set"
)


class Unreadable(Exception):
    """The credentials cannot be read; the message holds no secret."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The credentials as they are now.

    Attributes:
        configuration: the package's own `Configuration`: address and TLS.
        authorization: the header's value; "" where a client certificate speaks for us.
        fingerprint: changes when address, CA or client certificate do.
    """

    configuration: Any
    authorization: str
    fingerprint: bytes

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"Identity({self.configuration.host})"


@dataclass(frozen=True, slots=True)
class Access:
    """One way to the API server.

    Attributes:
        origin: for people: `service account`, `kubeconfig /path`.
        namespace: the one these credentials belong to.
        read: reads the credentials anew; raises Unreadable.
        rotates: whether files are replaced under us by the kubelet.
    """

    origin: str
    namespace: str
    read: Callable[[], Awaitable[Identity]]
    rotates: bool


async def find_access(
    settings: KubernetesSettings,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> tuple[Access, Identity]:
    """The first of: the setting `kubeconfig`, the pod's service account, the variable KUBECONFIG.

    Raises:
        SettingsError: none works; it says why for each that is there.
    """
    environ = os.environ if environ is None else environ
    if settings.kubeconfig:
        access = _kubeconfig(settings.kubeconfig)
    elif environ.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists():
        access = _in_cluster(environ, service_account)
    elif environ.get("KUBECONFIG"):
        access = _kubeconfig(environ["KUBECONFIG"])
    else:
        raise SettingsError([_NO_WAY])
    try:
        return access, await access.read()
    except Unreadable as error:
        raise SettingsError([f"kubernetes.kubeconfig: {access.origin}: {error}"]) from None


def _in_cluster(environ: Mapping[str, str], folder: Path) -> Access:
    def read() -> Identity:
        config = importlib.import_module("kubernetes.aio.config.incluster_config")
        client = importlib.import_module("kubernetes.aio.client")
        configuration = client.Configuration()
        token, certificate = str(folder / "token"), str(folder / "ca.crt")
        loader = config.InClusterConfigLoader(
            token, certificate, try_refresh_token=False, environ=environ
        )
        try:
            loader.load_and_set(configuration)
            return _identity(configuration)
        except (config.ConfigException, OSError, ValueError) as error:
            raise Unreadable(str(error)) from None

    async def in_thread() -> Identity:
        return await asyncio.to_thread(read)

    return Access("service account", _namespace_file(folder), in_thread, rotates=True)


def _namespace_file(folder: Path) -> str:
    try:
        return (folder / "namespace").read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except (OSError, UnicodeDecodeError):
        return DEFAULT_NAMESPACE


def _kubeconfig(paths: str) -> Access:
    async def read() -> Identity:
        config = await asyncio.to_thread(importlib.import_module, "kubernetes.aio.config")
        client = await asyncio.to_thread(importlib.import_module, "kubernetes.aio.client")
        configuration = client.Configuration()
        try:
            await config.load_kube_config(
                config_file=paths, client_configuration=configuration, persist_config=False
            )
            return await asyncio.to_thread(_identity, configuration)
        except yaml.YAMLError:
            # Its message quotes the text, which may be a token.
            raise Unreadable("is no YAML") from None
        except (TypeError, AttributeError, KeyError):
            raise Unreadable("is not of the form of a kubeconfig") from None
        except (config.ConfigException, OSError, ValueError) as error:
            # It may quote a whole user section, in Python's form of a dict.
            raise Unreadable(re.sub(r"\{.*\}", "{...}", str(error), flags=re.DOTALL)) from None

    return Access(f"kubeconfig {paths}", _context_namespace(paths), read, rotates=False)


def _context_namespace(paths: str) -> str:
    """The namespace of the current context; that `kubernetes` has no public name for it."""
    contexts: dict[str, Any] = {}
    current = ""
    for path in filter(None, paths.split(os.pathsep)):
        try:
            raw = yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
            current = raw.get("current-context", current)
            for each in raw.get("contexts") or []:
                contexts.setdefault(each["name"], each["context"].get("namespace"))
        except (OSError, ValueError, AttributeError, KeyError, TypeError, yaml.YAMLError):
            continue  # reading the credentials says what is wrong with it
    found = contexts.get(current)
    return found if isinstance(found, str) and found else DEFAULT_NAMESPACE


def _identity(configuration: Any) -> Identity:
    """Blocking: reads the certificates.

    Raises:
        OSError: a certificate cannot be read.
        ValueError: the server's address is none.
    """
    server = urlsplit(str(configuration.host))
    if server.scheme not in ("http", "https") or not server.hostname:
        raise ValueError("the cluster's server must be http://HOST:PORT or https://HOST:PORT")
    scheme, _, secret = str(configuration.api_key.get("BearerToken", "")).partition(" ")
    secret = "".join(secret.split())
    digest = hashlib.sha256(str(configuration.host).encode())
    for file in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file):
        digest.update(b"\0" + (Path(file).read_bytes() if file else b""))
    authorization = f"{scheme.capitalize()} {secret}" if secret else ""
    return Identity(configuration, authorization, digest.digest())
