"""What the settings of `security` must look like together. Pure.

A token on a plaintext connection is everybody's who sees the wire, so without certificates the
internal port stays where no wire is: on loopback.
"""

import ipaddress
from collections.abc import Iterator

from fleet.settings.kinds import KUBERNETES, kinds_of
from fleet.settings.model import CoordinatorSettings, SecuritySettings, Settings, WorkerSettings

CERTIFICATE_FIELDS = ("security.ca_file", "security.certificate_file", "security.key_file")

Problem = tuple[tuple[str, ...], str]
"""The fields that do not go together (the message is filed under the first), and why."""


def certificate_problems(security: SecuritySettings) -> Iterator[Problem]:
    """All three files, or none of them."""
    values = (security.ca_file, security.certificate_file, security.key_file)
    named = dict(zip(CERTIFICATE_FIELDS, values, strict=True))
    missing = [path for path, value in named.items() if not value]
    if missing and len(missing) < len(named):
        given = " and ".join(path for path, value in named.items() if value)
        fields = (*missing, *(path for path, value in named.items() if value))
        also = f", and so is {missing[1]}" if len(missing) > 1 else ""
        yield fields, f"is empty{also}, but {given} is set; set all three of them or none"


def serving_problems(worker: WorkerSettings) -> Iterator[Problem]:
    """The certificate of the ext_proc port: both of its files or none, and none without TLS."""
    pair = {
        "worker.tls_certificate_file": worker.tls_certificate_file,
        "worker.tls_key_file": worker.tls_key_file,
    }
    missing = [path for path, value in pair.items() if not value]
    if len(missing) == 1:
        given = next(path for path, value in pair.items() if value)
        yield (missing[0], given), f"is empty, but {given} is set; set both of them or none"
    files = {**pair, "worker.tls_client_ca_file": worker.tls_client_ca_file}
    named = [path for path, value in files.items() if value]
    if worker.tls == "off" and named:
        message = f"is off, but {' and '.join(named)} is set; set it to auto or require"
        yield ("worker.tls", *named), message


def plaintext_problems(
    security: SecuritySettings, section: str, listener: WorkerSettings | CoordinatorSettings
) -> Iterator[Problem]:
    """Without certificates a process listens, and is reached, on loopback alone."""
    if any((security.ca_file, security.certificate_file, security.key_file)):
        return
    for name in ("host", "advertise_host"):
        value = str(getattr(listener, name))
        if value and not is_loopback(value):
            message = (
                f"is {value!r}, no loopback address, and without certificates the internal port "
                "speaks plaintext; name the fleet's certificates in security.ca_file, "
                "security.certificate_file and security.key_file (`epp-fleet ca init` makes some), "
                f"or set {section}.host to 127.0.0.1"
            )
            yield (f"{section}.{name}", *CERTIFICATE_FIELDS), message
            return


def read_problems(settings: Settings) -> Iterator[Problem]:
    """Only a fleet of a cluster can ask its API server who may read."""
    if settings.security.reads == KUBERNETES and not kinds_of(settings).need_api_server:
        yield (
            ("security.reads", "source.kind", "routes.kind", "election.kind"),
            "is kubernetes, but neither source.kind nor routes.kind nor election.kind has to do "
            "with a cluster; set security.reads: open, or take one of them from Kubernetes",
        )


def is_loopback(host: str) -> bool:
    """Whether whoever listens on `host` is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
