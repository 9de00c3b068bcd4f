"""The text of the router's metrics: what is in a name cannot break a line, and buckets add up."""

from prometheus_client.parser import text_string_to_metric_families

from epp_worker.metrics import PickCounts
from epp_worker.requests.measures import MEANINGS
from epp_worker.requests.moment import HeldPool, Moment, Requests
from epp_worker.requests.page import write
from epp_worker.requests.text import Family, HistogramFamily, labels
from epp_worker.scheduling.contract import PickRequest, Refusal
from epp_worker.scheduling.group import GroupPicker
from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.prefix.budget import Budget
from epp_worker.scheduling.prefix.figures import Histogram
from epp_worker.scheduling.slots import PoolSlots
from fleet.model import PoolRef
from tests.picking import endpoint
from tests.prefix_pools import pool_of

HOSTILE = 'a"b\\c\nd%s%(x)s{}\0é'


class Clock:
    """Told seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def request(model: str | None, target: str | None = None, **headers: str) -> PickRequest:
    """A request that was read."""
    return PickRequest(model, None, headers.get, target_model=target)


def samples(text: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """All samples; each may be there once."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def test_labels_are_escaped() -> None:
    """Any text comes back as it was, but for NUL, which no scraper reads."""
    family = Family("x", "gauge", "Text.").write([(labels(name=HOSTILE), 2.5)])
    histogram = Histogram((1, 2))
    histogram.observe(1.5)
    buckets = HistogramFamily("y", (1, 2), "Text.").write([(labels(name=HOSTILE), histogram)])
    found = samples((family + buckets).encode())
    name = ("name", HOSTILE.replace("\0", "\ufffd"))
    assert found[("x", frozenset({name}))] == 2.5
    assert found[("y_bucket", frozenset({name, ("le", "1.0")}))] == 0
    assert found[("y_bucket", frozenset({name, ("le", "2.0")}))] == 1
    assert found[("y_bucket", frozenset({name, ("le", "+Inf")}))] == 1
    assert found[("y_sum", frozenset({name}))] == 1.5
    assert found[("y_count", frozenset({name}))] == 1


def test_times_of_a_request() -> None:
    """Seconds by a clock that is told: 2 until the first byte, 5 until the end, 4 tokens."""
    clock = Clock()
    pool = pool_of(1, PoolSlots(Budget()))
    requests = Requests(PickCounts(), clock)
    record = requests(GroupPicker([pool]))
    clock.now += 1
    asked = request("m")
    record.asked(asked, 10)
    pick = pool.pick(asked)
    assert not isinstance(pick, Refusal)
    clock.now += 0.25
    record.picked(pick)
    clock.now += 0.75
    record.first_bytes(streamed=True)
    clock.now += 3
    record.usage(7, 4)
    record.came(30)
    record.finished(complete=True)
    (row,) = requests.table.of(pool.pool.ref).all()
    sums = {
        meaning.name: measured.total
        for meaning, measured in zip(MEANINGS, row.measures, strict=True)
        if measured is not None
    }
    assert sums == {
        "request_duration_seconds": 5,
        "request_size_bytes": 10,
        "response_size_bytes": 30,
        "request_input_tokens": 7,
        "request_output_tokens": 4,
        "request_ttft_seconds": 2,
        "request_ntpot_seconds": 1.25,
        "request_streaming_tpot_seconds": 1,
    }
    assert requests.table.of(pool.pool.ref).picks.total == 0.25
    assert (row.picked, row.running) == (1, 0)


def test_a_request_that_nobody_could_read_counts_under_no_model() -> None:
    """A refusal before the body was understood; in a group of several pools it has no pool."""
    pool = pool_of(1, PoolSlots(Budget()))
    requests = Requests(PickCounts(), Clock())
    requests(GroupPicker([pool])).refused(400)
    (row,) = requests.table.of(pool.pool.ref).all()
    assert (row.key.model, row.errors, row.picked) == ("", {"BadRequest": 1}, 0)
    shared = Requests(PickCounts(), Clock())
    shared(GroupPicker([pool, pool])).refused(400)
    assert shared.table.pools() == []


def test_the_older_header_names_the_flow_where_the_newer_one_is_missing() -> None:
    pool = pool_of(1, PoolSlots(Budget()))
    requests = Requests(PickCounts(), Clock())
    for headers in (
        {"x-gateway-inference-fairness-id": "old"},
        {"x-gateway-inference-fairness-id": "old", "x-llm-d-inference-fairness-id": "new"},
    ):
        record = requests(GroupPicker([pool]))
        record.asked(request("m", **headers), 1)
        record.refused(429)
    found = [row.key.fairness for row in requests.table.of(pool.pool.ref).all()]
    assert found == ["old", "new"]


def test_only_the_owner_shows_a_pools_gauges() -> None:
    """Who follows it knows them too, and a sum over workers would count them twice."""
    states = (endpoint(0, queue=2), endpoint(1, queue=None))
    for owned in (True, False):
        moment = Moment((HeldPool(PoolRef("ns", "a"), states, owned, tokens=True),))
        names = {name for name, _ in samples(b"".join(write(moment)))}
        assert ("llm_d_epp_average_queue_size" in names) is owned
        assert ("llm_d_epp_inflight_tokens" in names) is owned


def test_a_pool_in_two_groups_is_there_once() -> None:
    """It counts where it is owned."""
    pool: PoolState = pool_of(1, PoolSlots(Budget()))
    requests = Requests(PickCounts(), Clock())
    for held in ([(pool, False), (pool, True)], [(pool, True), (pool, False)]):
        moment = requests.moment(held, 0)
        assert [each.owned for each in moment.pools] == [True]


def test_a_request_that_goes_on_alone() -> None:
    """It was picked and is not running; how it ends is not seen."""
    pool = pool_of(1, PoolSlots(Budget()))
    requests = Requests(PickCounts(), Clock())
    record = requests(GroupPicker([pool]))
    asked = request("m")
    record.asked(asked, 10)
    pick = pool.pick(asked)
    assert not isinstance(pick, Refusal)
    record.picked(pick)
    (row,) = requests.table.of(pool.pool.ref).all()
    assert row.running == 1
    record.left()
    record.finished(complete=False)  # nothing is told of it any more; even so
    measured = [m.name for m, of in zip(MEANINGS, row.measures, strict=True) if of is not None]
    assert (row.picked, row.running, measured) == (1, 0, ["request_size_bytes"])
