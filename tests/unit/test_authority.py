"""What a gateway's `:authority` says, and what it does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.authority import MAX_AUTHORITY, Authority, AuthorityIndex, parse_authority
from fleet.errors import AuthorityError
from fleet.model import GroupKey, Pool, PoolRef, group_pools

SERVICE = Authority(namespace="ns", service="epp", port=9002)
POOL = Authority(namespace="ns", pool="llama")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("outbound|9002||epp.ns.svc.cluster.local", SERVICE),
        ("outbound|9002|v1|epp.ns.svc.cluster.local", SERVICE),
        ("outbound|9002||epp.ns.svc.my.own.domain", SERVICE),
        ("epp.ns.svc:9002", SERVICE),
        ("epp.ns.svc.cluster.local:9002", SERVICE),
        ("epp.ns.svc.cluster.local.:9002", SERVICE),
        ("epp.ns:9002", SERVICE),
        ("EPP.Ns.SVC:9002", SERVICE),
        ("epp.ns.svc", Authority(namespace="ns", service="epp")),
        ("epp.ns", Authority(namespace="ns", service="epp")),
        ("epp.ns.svc.", Authority(namespace="ns", service="epp")),
        ("epp.svc:9002", Authority(namespace="svc", service="epp", port=9002)),
        ("epp.ns.svc:1", Authority(namespace="ns", service="epp", port=1)),
        ("epp.ns.svc:65535", Authority(namespace="ns", service="epp", port=65535)),
        ("endpointpicker_llama_ns_ext_proc", POOL),
        ("envoy.clusters.endpointpicker_llama_ns_ext_proc", POOL),
        (
            "endpointpicker_llama-3.1-8b_team-a_ext_proc",
            Authority(namespace="team-a", pool="llama-3.1-8b"),
        ),
    ],
)
def test_every_gateways_form_is_read(text: str, expected: Authority) -> None:
    """Each open gateway's authority names its Service (or pool) and namespace."""
    assert parse_authority(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "epp",
        "epp:9002",
        "localhost:9002",
        "10.0.0.1",
        "10.0.0.1:9002",
        "::1",
        "[::1]",
        "[::1]:9002",
        "fe80::1:9002",
        "outbound|9002||10.0.0.1",
        "outbound|9002||epp",
        "outbound|9002|epp.ns.svc.cluster.local",
        "outbound|||epp.ns.svc.cluster.local",
        "outbound|x||epp.ns.svc.cluster.local",
        "outbound|70000||epp.ns.svc.cluster.local",
        "outbound|9002||epp.ns.svc.cluster.local:9002",
        "outbound_.9002_._.epp.ns.svc.cluster.local",
        "epp.ns.svc:0",
        "epp.ns.svc:65536",
        "epp.ns.svc:-1",
        "epp.ns.svc:99999999999",
        "epp.ns.svc:\u0669\u0660",
        "epp.ns.svc:",
        "epp..svc:9002",
        ".ns.svc:9002",
        "-epp.ns.svc:9002",
        "epp_a.ns.svc:9002",
        "epp.ns.svc..:9002",
        "www.example.com:443",
        "a b.ns.svc:9002",
        "epp.ns.svc:9002\n",
        "user@epp.ns.svc:9002",
        "http://epp.ns.svc:9002",
        f"{'a' * 64}.ns.svc:9002",
        "endpointpicker_llama_ext_proc",
        "endpointpicker__ns_ext_proc",
        "endpointpicker_a_b_c_ext_proc",
        "epp.ns." + "a." * 600 + "b",
    ],
)
def test_what_names_no_service_is_refused(text: str) -> None:
    """Addresses, single labels, bad ports and junk are refused, not guessed at."""
    with pytest.raises(AuthorityError):
        parse_authority(text)


def test_a_refusal_quotes_what_came_but_bounded_and_escaped() -> None:
    """A peer's bytes reach a log only escaped and cut."""
    with pytest.raises(AuthorityError, match=r"'\\n\\x1b\[31m\\xe9'") as short:
        parse_authority("\n\x1b[31m\u00e9")
    assert "\n" not in str(short.value)
    with pytest.raises(AuthorityError, match=f"longer than {MAX_AUTHORITY}") as long:
        parse_authority("\u00e9" * 100_000)
    assert len(str(long.value)) < 800


@given(st.one_of(st.text(), st.from_regex(r"[a-z|:.\[\]_0-9-]{0,80}")))
def test_any_text_parses_or_is_refused(text: str) -> None:
    """Nothing that a peer sends raises anything else."""
    try:
        authority = parse_authority(text)
    except AuthorityError:
        return
    assert bool(authority.service) != bool(authority.pool)
    assert authority.namespace
    assert authority.port is None or 1 <= authority.port <= 65535


def _pool(name: str, group: GroupKey | None, namespace: str = "ns") -> Pool:
    return Pool(PoolRef(namespace, name), f"uid-{name}", {"app": name}, (8000,), group)


def _index(*pools: Pool) -> AuthorityIndex:
    return AuthorityIndex(group_pools(pools))


def test_an_explicit_port_is_the_group_even_before_its_pool_is_known() -> None:
    """A stream may come before the pool does; it is held, not refused."""
    assert _index().resolve("epp.ns.svc:9002") == GroupKey("ns", "epp", 9002)


def test_without_a_port_it_is_the_port_that_the_pool_names() -> None:
    """The pool's endpointPickerRef completes the key; other namespaces do not matter."""
    index = _index(
        _pool("a", GroupKey("ns", "epp", 9005)),
        _pool("b", GroupKey("ns", "epp", 9005)),
        _pool("c", GroupKey("other", "epp", 9002), "other"),
    )
    assert index.resolve("epp.ns.svc") == GroupKey("ns", "epp", 9005)
    assert index.resolve("nobody.ns.svc") is None


def test_without_a_port_several_groups_are_ambiguous() -> None:
    """One Service with a port per pool needs the port; the refusal names the choices."""
    index = _index(
        _pool("a", GroupKey("ns", "epp", 9012)),
        _pool("b", GroupKey("ns", "epp", 9011)),
    )
    with pytest.raises(AuthorityError, match="9011, 9012"):
        index.resolve("epp.ns.svc")
    assert index.resolve("epp.ns.svc:9011") == GroupKey("ns", "epp", 9011)


def test_a_pool_name_is_looked_up() -> None:
    """A gateway that sets no authority shows its cluster's name, which names the pool."""
    index = _index(_pool("llama", GroupKey("ns", "llama-epp", 9002)), _pool("lost", None))
    assert index.resolve("endpointpicker_llama_ns_ext_proc") == GroupKey("ns", "llama-epp", 9002)
    assert index.resolve("endpointpicker_lost_ns_ext_proc") is None
    assert index.resolve("endpointpicker_llama_other_ext_proc") is None


def test_the_cache_is_bounded_and_gives_the_same_answers() -> None:
    """A peer that invents authorities cannot make the index grow without end."""
    index = _index()
    for number in range(10_000):
        assert index.resolve(f"epp-{number}.ns:9002") == GroupKey("ns", f"epp-{number}", 9002)
    assert len(index._cache) <= 4096
    assert index.resolve("epp-1.ns:9002") is index.resolve("epp-1.ns:9002")
