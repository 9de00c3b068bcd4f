"""`redis.url`: every spelling, what is wrong with the others, and nothing secret in messages."""

import pytest

from fleet.errors import SettingsError
from fleet.settings import load_settings
from fleet.settings.store_url import Address, parse_store_url


def test_a_store_url_in_all_its_parts() -> None:
    """User and password are percent-decoded and never shown."""
    url = parse_store_url("redis://me:a%40b@[::1]:7000/3")
    assert (url.host, url.port, url.db) == ("::1", 7000, 3)
    assert (url.username, url.password) == ("me", "a@b")
    assert str(url) == "redis://[::1]:7000/3"
    assert "a@b" not in repr(url)


def test_store_urls_have_defaults() -> None:
    """Port 6379, database 0; a unix socket by path."""
    url = parse_store_url("redis://cache")
    assert (url.host, url.port, url.db, url.username, url.password) == (
        "cache",
        6379,
        0,
        None,
        None,
    )
    unix = parse_store_url("unix:///run/v.sock?db=2")
    assert (unix.path, unix.db, str(unix)) == ("/run/v.sock", 2, "unix:///run/v.sock")
    secure = parse_store_url("rediss://cache/?ssl_ca_certs=/ca.pem")
    assert dict(secure.tls) == {"ssl_ca_certs": "/ca.pem"}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "cache:6379",
        "http://:sec%72et@cache",
        "redis://:sec%72et@",
        "redis://:sec%72et@cache:99999",
        "redis://:sec%72et@cache:port",
        "redis://:sec%72et@cache/one",
        "redis://:sec%72et@cache?socket_timeout=60",
        "redis://:sec%72et@cache?ssl_ca_certs=/ca.pem",
        "unix://",
        "redis://[::1",
        "redis://:sec%72et@a:1,b:2/0",
        "redis+sentinel://:sec%72et@a,b",
        "redis+sentinel://:sec%72et@a,b/",
        "redis+sentinel://:sec%72et@a,,b/s",
        "redis+sentinel://:sec%72et@a:x/s",
        "redis+sentinel://:sec%72et@a/s/one",
        "redis+sentinel://a/s?ssl_ca_certs=/ca.pem",
        "redis+sentinel://a/s?socket_timeout=sec",
        "redis://cache?sentinel_password=sec",
        "redis+sentinel://" + ",".join(f"s{n}" for n in range(17)) + "/s",
    ],
)
def test_bad_store_urls_are_refused(url: str) -> None:
    """With the setting's path, and without the password."""
    with pytest.raises(SettingsError) as refused:
        parse_store_url(url)
    (problem,) = refused.value.problems
    assert problem.startswith("redis.url: ")
    assert "sec" not in problem


def test_sentinels_in_all_their_parts() -> None:
    """Hosts by comma, port 26379 unless one is named, service, database, both logins."""
    url = parse_store_url(
        "redis+sentinel://me:a%2Fb@s1:26380,[::1],10.0.0.3:7000/my%20primary/2"
        "?sentinel_username=watch&sentinel_password=c%26d"
    )
    assert url.sentinels == (("s1", 26380), ("::1", 26379), ("10.0.0.3", 7000))
    assert (url.service, url.db) == ("my primary", 2)
    assert (url.username, url.password) == ("me", "a/b")
    assert (url.sentinel_username, url.sentinel_password) == ("watch", "c&d")
    shown = f"{url} {url!r}"
    assert str(url) == "redis+sentinel://s1:26380,[::1]:26379,10.0.0.3:7000/my primary/2"
    assert "a/b" not in shown
    assert "c&d" not in shown


def test_sentinels_have_defaults() -> None:
    """Database 0, no logins; rediss+sentinel means TLS to all of them."""
    url = parse_store_url("rediss+sentinel://s1/fleet?ssl_ca_certs=/ca.pem")
    assert (url.sentinels, url.service, url.db) == ((Address("s1", 26379),), "fleet", 0)
    assert (url.secure, dict(url.tls)) == (True, {"ssl_ca_certs": "/ca.pem"})
    assert (url.username, url.password, url.sentinel_password) == (None, None, None)
    assert not parse_store_url("redis+sentinel://s1/fleet").secure


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("redis+sentinel://:SECRET@a,b", "names no service; write redis+sentinel://"),
        ("redis://:SECRET@a:1,b:2/0", "names several hosts; for Sentinels write redis+sentinel://"),
        ("redis+sentinel://:SECRET@a,,b/s", "names no host; write redis+sentinel://"),
        ("redis+sentinel://:SECRET@a/s/one", "the path must be a database number"),
        ("sentinel://:SECRET@a/s", "redis+sentinel://"),
        ("redis+sentinel://a/s?sentinel_password=SECRET&x=1", "option 'x' cannot be set"),
    ],
)
def test_settings_say_what_to_write_instead(url: str, wanted: str) -> None:
    """One line with the field's path and no password."""
    with pytest.raises(SettingsError) as refused:
        load_settings(None, {"EPP_FLEET_REDIS__URL": url}, {})
    (problem,) = refused.value.problems
    assert problem.startswith("redis.url: ")
    assert wanted in problem
    assert "SECRET" not in problem
