"""Reading `redis.url`: which server, how to reach it, and a name for it without secrets."""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from fleet.errors import SettingsError

DEFAULT_PORT: Final = 6379
_SCHEMES: Final = ("redis", "rediss", "unix")
_TLS_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """Where the store is.

    Attributes:
        host, port: for `redis` and `rediss`.
        path: for `unix`.
        tls: file names for `rediss`: `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`.
    """

    scheme: str
    host: str = ""
    port: int = DEFAULT_PORT
    path: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """For messages and logs: never user name or password."""
        if self.scheme == "unix":
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/{self.db}"


def parse_store_url(url: str) -> StoreUrl:
    """Read `redis://[user:password@]host[:port][/db]`, `rediss://...` or `unix:///path[?db=n]`.

    `rediss` takes `?ssl_ca_certs=`, `ssl_certfile=` and `ssl_keyfile=`. User and password are
    percent-decoded. Nothing else may be set in the URL: timeouts and retries follow the lease.

    Raises:
        SettingsError: anything else; the message does not repeat the password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port if parts.port is not None else DEFAULT_PORT
    except ValueError as error:
        raise _bad("not a URL, or its port is no number from 0 to 65535") from error
    if parts.scheme not in _SCHEMES:
        raise _bad(f"must start with redis://, rediss:// or unix:// (got {parts.scheme[:20]!r})")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unix = parts.scheme == "unix"
    if unix and not parts.path:
        raise _bad("unix:// needs the path of a socket")
    if not unix and not parts.hostname:
        raise _bad("names no host")
    return StoreUrl(
        scheme=parts.scheme,
        host="" if unix else parts.hostname or "",
        port=0 if unix else port,
        path=unquote(parts.path) if unix else "",
        db=_database(parts, options),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=_tls(parts.scheme, options),
    )


def _database(parts: SplitResult, options: dict[str, str]) -> int:
    text = options.pop("db", "")
    if parts.scheme != "unix":
        text = parts.path.strip("/") or text
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise _bad(f"the database must be a number (got {text[:20]!r})")
    return int(text)


def _tls(scheme: str, options: dict[str, str]) -> tuple[tuple[str, str], ...]:
    allowed = _TLS_OPTIONS if scheme == "rediss" else ()
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise _bad(f"option {unknown[0][:40]!r} cannot be set in the URL")
    return tuple(sorted(options.items()))


def _bad(problem: str) -> SettingsError:
    return SettingsError([f"redis.url: {problem}"])
