"""Reading `redis.url`: which server, how to reach it, and a name for it without secrets.

`redis+sentinel://` is spelled as redis-sentinel-url, redisvl and Prefect spell it: the Sentinels
where a host would be, then the service's name, then the database.
"""

from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from fleet.errors import SettingsError

DEFAULT_PORT: Final = 6379
DEFAULT_SENTINEL_PORT: Final = 26379
SCHEMES: Final = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
_TLS_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_MAX_PORT: Final = 65535
_MAX_SENTINELS: Final = 16
_MAX_DATABASE_DIGITS: Final = 5
_EXAMPLE: Final = "redis://host:6379/0"
_SENTINEL_EXAMPLE: Final = "redis+sentinel://host:26379,host:26379/service/0"


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """Where the store is.

    Attributes:
        host, port: for `redis` and `rediss`.
        path: for `unix`.
        sentinels, service: for `redis+sentinel` and `rediss+sentinel`: whom to ask, and the name
            under which they know the primary.
        username, password: for the server; what the Sentinels want is `sentinel_*`.
        tls: file names: `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`.
    """

    scheme: str
    host: str = ""
    port: int = DEFAULT_PORT
    path: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: tuple[tuple[str, str], ...] = ()
    sentinels: tuple[Address, ...] = ()
    service: str = ""
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)

    @property
    def secure(self) -> bool:
        """Whether all connections are by TLS."""
        return self.scheme.startswith("rediss")

    def __str__(self) -> str:
        """For messages and logs: never user name or password."""
        if self.scheme == "unix":
            return f"unix://{self.path}"
        if self.sentinels:
            hosts = ",".join(str(each) for each in self.sentinels)
            return f"{self.scheme}://{hosts}/{self.service}/{self.db}"
        return f"{self.scheme}://{Address(self.host, self.port)}/{self.db}"


def passwords_in(url: str) -> tuple[str, ...]:
    """What must not be shown of a URL that can be parsed."""
    place = parse_store_url(url)
    return tuple(each for each in (place.password, place.sentinel_password) if each)


def parse_store_url(url: str) -> StoreUrl:
    """Read one of

        redis://[user:password@]host[:port][/db]
        rediss://...                                  the same by TLS
        unix:///path[?db=n]
        redis+sentinel://[user:password@]host[:port][,host[:port]...]/service[/db]
        rediss+sentinel://...                         TLS to the Sentinels and the servers

    TLS takes `?ssl_ca_certs=`, `ssl_certfile=` and `ssl_keyfile=`; Sentinels that want a login of
    their own, `?sentinel_username=` and `sentinel_password=`. All is percent-decoded. Nothing else
    may be set in the URL: timeouts and retries follow the lease.

    Raises:
        SettingsError: anything else; the message does not repeat the password.
    """
    try:
        return read_store_url(url)
    except ValueError as error:
        raise SettingsError([f"redis.url: {error}"]) from None


def read_store_url(url: str) -> StoreUrl:
    """As `parse_store_url`; raises ValueError with what is wrong and what to write instead."""
    scheme, separator, rest = url.partition("://")
    if scheme not in SCHEMES or not separator:
        raise ValueError(f"must begin with {', '.join(f'{s}://' for s in SCHEMES)}")
    rest, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    login, _, place = rest.rpartition("@")
    if scheme == "unix":
        found = _unix(place, options)
    elif scheme.endswith("+sentinel"):
        found = _by_sentinels(scheme, place, options)
    else:
        found = _direct(scheme, place, options)
    username, _, password = login.partition(":")
    return replace(
        found,
        username=unquote(username) or None,
        password=unquote(password) or None,
        tls=_tls(found, options),
    )


def _unix(path: str, options: dict[str, str]) -> StoreUrl:
    if not path.strip("/"):
        raise ValueError("names no socket; write unix:///run/redis.sock")
    database = _database(options.pop("db", ""), "unix:///run/redis.sock?db=0")
    return StoreUrl("unix", port=0, path=unquote(path), db=database)


def _direct(scheme: str, place: str, options: dict[str, str]) -> StoreUrl:
    hosts, _, path = place.partition("/")
    if "," in hosts:
        raise ValueError(f"names several hosts; for Sentinels write {_SENTINEL_EXAMPLE}")
    host, port = _address(hosts, DEFAULT_PORT, _EXAMPLE)
    database = _database(path.strip("/") or options.get("db", ""), _EXAMPLE)
    options.pop("db", None)
    return StoreUrl(scheme, host, port, db=database)


def _by_sentinels(scheme: str, place: str, options: dict[str, str]) -> StoreUrl:
    hosts, _, path = place.partition("/")
    service, _, database = path.partition("/")
    if not service:
        raise ValueError(f"names no service; write {_SENTINEL_EXAMPLE}")
    names = hosts.split(",")
    if len(names) > _MAX_SENTINELS:
        raise ValueError(f"names {len(names)} Sentinels; at most {_MAX_SENTINELS}")
    return StoreUrl(
        scheme,
        db=_database(database.strip("/"), _SENTINEL_EXAMPLE),
        sentinels=tuple(_address(n, DEFAULT_SENTINEL_PORT, _SENTINEL_EXAMPLE) for n in names),
        service=unquote(service),
        sentinel_username=options.pop("sentinel_username", None) or None,
        sentinel_password=options.pop("sentinel_password", None) or None,
    )


def _address(text: str, default_port: int, example: str) -> Address:
    """`host`, `host:port`, `[v6]` or `[v6]:port`."""
    unreadable = f"host or port cannot be read; write {example}"
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or rest[:1] not in ("", ":"):
            raise ValueError(unreadable)
        colon, port = rest[:1], rest[1:]
    else:
        host, colon, port = text.partition(":")
    if not host:
        raise ValueError(f"names no host; write {example}")
    if not colon:
        return Address(unquote(host), default_port)
    if not (port.isascii() and port.isdigit() and int(port[:6]) <= _MAX_PORT):
        raise ValueError(unreadable)
    if int(port) == 0:
        raise ValueError("port must be 1 to 65535")
    return Address(unquote(host), int(port))


def _database(text: str, example: str) -> int:
    if text and not (text.isascii() and text.isdigit() and len(text) <= _MAX_DATABASE_DIGITS):
        raise ValueError(f"the path must be a database number; write {example}")
    return int(text or 0)


def _tls(url: StoreUrl, options: dict[str, str]) -> tuple[tuple[str, str], ...]:
    allowed = _TLS_OPTIONS if url.secure else ()
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise ValueError(f"option {unknown[0][:40]!r} cannot be set in the URL")
    return tuple(sorted(options.items()))
