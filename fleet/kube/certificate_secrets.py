"""The fleet's CA and certificates as Secrets: made if absent, renewed before they expire.

A Job runs this at the installation and a CronJob afterwards. The CA's key is in a Secret of its
own, `<prefix>-ca`, which only they read; each role has `<prefix>-<role>-tls` in the form that
cert-manager writes too (ca.crt, tls.crt, tls.key). Every write is conditional: of two that run at
once one is refused, and running again finds nothing to do.
"""

import base64
import binascii
import logging
from collections.abc import Mapping

from fleet.certificates.authority import Pair, is_due, make_ca, make_certificate, renewed_ca
from fleet.certificates.folder import CA_CERTIFICATE, CA_KEY, CERTIFICATE, KEY
from fleet.certificates.names import Role
from fleet.errors import KubeNotFound, SettingsError
from fleet.kube.contract import KubeApi, Raw
from fleet.kube.names import FLEET_LABEL

log = logging.getLogger(__name__)

TLS_TYPE = "kubernetes.io/tls"


async def keep_secrets(api: KubeApi, prefix: str, fleet: str, now: float) -> tuple[str, ...]:
    """Make or renew what is due.

    Args:
        prefix: of the Secrets' names.
        now: wall seconds.

    Returns:
        The Secrets that were written.

    Raises:
        SettingsError: a Secret of that name is none of ours, or damaged.
        KubeError: the API server refuses, or does not answer.
    """
    written = []
    name = f"{prefix}-ca"
    found = await _read(api, name)
    if found is None:
        ca = make_ca(fleet, now)
    else:
        ca = renewed_ca(_pair(found, name, fleet, CA_CERTIFICATE, CA_KEY), fleet, now)
    data = {CA_CERTIFICATE: ca.certificate, CA_KEY: ca.key}
    if await _write(api, name, "Opaque", fleet, data, found):
        written.append(name)
    for role in Role:
        name = f"{prefix}-{role.value}-tls"
        found = await _read(api, name)
        pair = None if found is None else _pair(found, name, fleet, CERTIFICATE, KEY)
        if pair is None or is_due(pair, ca, role, fleet, now):
            pair = make_certificate(ca, role, fleet, now)
        data = {CA_CERTIFICATE: ca.certificate, CERTIFICATE: pair.certificate, KEY: pair.key}
        if await _write(api, name, TLS_TYPE, fleet, data, found):
            written.append(name)
    return tuple(written)


async def _read(api: KubeApi, name: str) -> Raw | None:
    try:
        return await api.get(_path(api, name))
    except KubeNotFound:
        return None


async def _write(
    api: KubeApi,
    name: str,
    kind: str,
    fleet: str,
    data: Mapping[str, bytes],
    found: Raw | None,
) -> bool:
    """Write the Secret if `data` is not what it holds; whether it was written."""
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    if found is None:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": kind,
            "metadata": {"name": name, "labels": {FLEET_LABEL: fleet}},
            "data": encoded,
        }
        await api.create(_path(api), body)
    elif found.get("data") == encoded:
        return False
    else:
        # The resourceVersion that was read goes along: a write in between is a conflict.
        await api.replace(_path(api, name), {**found, "data": encoded})
    log.info("certificates written", extra={"secret": name, "made": found is None})
    return True


def _path(api: KubeApi, name: str = "") -> str:
    collection = f"/api/v1/namespaces/{api.namespace}/secrets"
    return f"{collection}/{name}" if name else collection


def _pair(secret: Raw, name: str, fleet: str, certificate: str, key: str) -> Pair:
    whose = (secret["metadata"].get("labels") or {}).get(FLEET_LABEL)
    if whose != fleet:
        is_not = f"has label {FLEET_LABEL}={whose}" if whose else f"has no label {FLEET_LABEL}"
        raise SettingsError(
            [
                f"--secret: Secret {name} {is_not}, so it is not this fleet's and is left alone; "
                "choose another name"
            ]
        )
    data = secret.get("data") or {}
    try:
        return Pair(base64.b64decode(data[certificate]), base64.b64decode(data[key]))
    except (KeyError, binascii.Error, TypeError):
        raise SettingsError(
            [f"--secret: Secret {name} lacks {certificate} or {key}; delete it to have it made"]
        ) from None
