"""Files to objects: what is kept of a bad document, and which of two documents counts."""

from fleet.model import Pool
from fleet.sources.contract import Change, Kind, ObjectKey
from fleet.sources.manifests import (
    FileHolding,
    Held,
    Snapshot,
    changes,
    merge,
    read_text,
    settle,
    unreadable,
)
from tests import manifest_texts as texts

A, B = ObjectKey("ns1", "a"), ObjectKey("ns1", "b")
BAD_A = texts.pool("a", targetPorts=[{"number": 0}])


def hold(text: str, before: tuple[Held, ...] = (), known: Snapshot | None = None) -> FileHolding:
    entries = read_text(text, {}).entries
    return FileHolding(entries, settle(entries, before, known.known if known else {}))


def ports(snapshot: Snapshot) -> dict[str, tuple[int, ...]]:
    pools = [each for each in snapshot.objects[Kind.POOL].values() if isinstance(each, Pool)]
    return {pool.ref.name: pool.target_ports for pool in pools}


def test_a_bad_document_spoils_no_other() -> None:
    """It stands in the problems with file and document."""
    snapshot = merge({"f.yaml": hold(texts.text(BAD_A, texts.pool("b")))})
    assert ports(snapshot) == {"b": (8000,)}
    (problem,) = snapshot.problems
    assert problem.where == "f.yaml, document 1"
    assert problem.message.startswith("InferencePool ns1/a: spec.targetPorts[0].number: 0")


def test_a_bad_document_keeps_its_object_by_name() -> None:
    """Even if it has moved to another place of the file; a removed neighbour goes."""
    before = hold(texts.text(texts.pool("a"), texts.pool("b"), texts.pool("c"))).holding
    snapshot = merge({"f": hold(texts.text(texts.pool("b", ports=(9000,)), BAD_A), before)})
    assert ports(snapshot) == {"a": (8000,), "b": (9000,)}


def test_a_bad_document_keeps_its_object_across_files() -> None:
    """A file that is renamed while one of its objects is bad."""
    old = merge({"f": hold(texts.text(texts.pool("a")))})
    assert ports(merge({"g": hold(texts.text(BAD_A), (), old)})) == {"a": (8000,)}


def test_a_nameless_document_keeps_what_stood_in_its_place() -> None:
    """Only that: what was removed from another place is gone."""
    before = hold(texts.text(texts.pool("a"), texts.pool("b"), texts.pool("c"))).holding
    nameless = {**texts.pool("a"), "metadata": {}}
    snapshot = merge({"f": hold(texts.text(nameless, texts.pool("b")), before)})
    assert ports(snapshot) == {"a": (8000,), "b": (8000,)}


def test_half_a_file_keeps_all_that_it_held() -> None:
    """Text that breaks off: what was read is taken, the rest stays as it was."""
    before = hold(texts.text(texts.pool("a"), texts.pool("b"), texts.pool("c"))).holding
    whole = texts.text(texts.pool("a", ports=(9000,)), texts.pool("b", ports=(9000,)))
    snapshot = merge({"f": hold(whole[:-20], before)})
    assert ports(snapshot) == {"a": (9000,), "b": (8000,), "c": (8000,)}


def test_an_unreadable_file_keeps_all_that_it_held() -> None:
    """Too large, or not UTF-8."""
    before = hold(texts.text(texts.pool("a"))).holding
    entries = unreadable("no UTF-8").entries
    snapshot = merge({"f": FileHolding(entries, settle(entries, before, {}))})
    assert ports(snapshot) == {"a": (8000,)}
    assert [each.message for each in snapshot.problems] == ["no UTF-8"]


def test_of_two_documents_the_first_counts() -> None:
    """By path, whatever order the files were found in; the other one is reported."""
    first, second = hold(texts.text(texts.pool("a"))), hold(texts.text(texts.pool("a", ports=(1,))))
    for files in ({"a.yaml": first, "b.yaml": second}, {"b.yaml": second, "a.yaml": first}):
        snapshot = merge(files)
        assert ports(snapshot) == {"a": (8000,)}
        assert [(each.where, each.message) for each in snapshot.problems] == [
            (
                "b.yaml, document 1",
                "InferencePool ns1/a: also in a.yaml, document 1, which is used; "
                "remove one of them",
            )
        ]


def test_v1_wins_over_the_older_version_without_a_word() -> None:
    """A cluster in migration holds both; one pool is never counted twice."""
    old, new = texts.old_pool("a", targetPortNumber=1), texts.pool("a", ports=(2,))
    for text in (texts.text(old, new), texts.text(new, old)):
        snapshot = merge({"f": hold(text)})
        assert ports(snapshot) == {"a": (2,)}
        assert snapshot.problems == ()


def test_a_kept_object_yields_to_a_good_document() -> None:
    """The object was moved to a later file, and its old document is bad."""
    before = hold(texts.text(texts.pool("a"))).holding
    files = {
        "a.yaml": hold(texts.text(BAD_A), before),
        "b.yaml": hold(texts.text(texts.pool("a", ports=(2,)))),
    }
    assert ports(merge(files)) == {"a": (2,)}


def test_a_document_that_did_not_change_is_not_parsed_again() -> None:
    """The very same facts come back, at their new place."""
    first = read_text(texts.text(texts.pool("a")), {})
    again = read_text(texts.text(texts.pool("b"), texts.pool("a")), first.remembered)
    assert [str(each.place) for each in again.entries] == ["document 1", "document 2"]
    assert again.entries[1].value is first.entries[0].value


def test_changes_are_minimal_and_removals_come_first() -> None:
    """Equal objects are not mentioned."""
    old = merge({"f": hold(texts.text(texts.pool("a"), texts.pool("b")))})
    new = merge({"f": hold(texts.text(texts.pool("c"), texts.pool("b")))})
    assert changes(old, old) == []
    assert changes(old, new) == [
        Change(Kind.POOL, A, old.objects[Kind.POOL][A], None),
        Change(
            Kind.POOL,
            ObjectKey("ns1", "c"),
            None,
            new.objects[Kind.POOL][ObjectKey("ns1", "c")],
        ),
    ]
    assert new.objects[Kind.POOL][B] == old.objects[Kind.POOL][B]
