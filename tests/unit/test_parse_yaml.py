"""YAML text to values: one document at a time, and without YAML 1.1's traps."""

import pytest

from fleet.errors import ManifestError
from fleet.sources.yamldocs import Chunk, chunks, load


def load_one(text: str) -> object:
    (value,) = load(Chunk(text, 1))
    return value


def test_documents_are_split_at_markers_only() -> None:
    """`---` at the start of a line divides; indented, or inside a longer word, it does not."""
    text = "a: 1\n--- # two\nb: |\n  ---\n---\n---x: 1\n"
    assert [load(chunk) for chunk in chunks(text)][:2] == [[{"a": 1}], [{"b": "---\n"}]]
    assert [chunk.line for chunk in chunks(text)] == [1, 2, 5]


def test_empty_documents_are_left_out() -> None:
    """Comments, blank lines and directives alone make no document."""
    text = "%YAML 1.1\n---\n# nothing\n---\n\n---\na: 1\n---\n"
    assert [load(chunk) for chunk in chunks(text)] == [[{"a": 1}]]


def test_json_is_read_as_well() -> None:
    """Tabs between tokens included."""
    assert load_one('{\n\t"a": [1, true, null, "x"]\n}\n') == {"a": [1, True, None, "x"]}


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("1:30", "1:30"),
        ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"),
        ("190:20:30.15", "190:20:30.15"),
        ("8000", 8000),
        ("0x10", 16),
        ("1.5", 1.5),
        ("1e3", "1e3"),
        ("yes", True),
        ("off", False),
        ("y", "y"),
        ("~", None),
        ("10.0.0.1", "10.0.0.1"),
    ],
)
def test_plain_scalars(scalar: str, value: object) -> None:
    """Dates and numbers in base 60 stay text: labels and IPv6 addresses look like them."""
    found = load_one(f"x: {scalar}")
    assert found == {"x": value}
    assert isinstance(found, dict)
    assert type(found["x"]) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [", "line 12: no YAML: "),
        ("a: 1\nb: 2\na: 3", "line 12: the key 'a' is given twice; keep one"),
        ("x:\n  y: {z: 1, z: 2}", "line 11: the key 'z' is given twice; keep one"),
        ("a: !!python/object:os.system x", "line 10: no YAML: could not determine a constructor"),
        ("a: &a {b: 1}\nc:\n  <<: [*a, *a]", "line 12: `<<` may take one mapping; write it out"),
        ("? [1]\n: 2", "line 10: no YAML: found unhashable key"),
        ("[" * 100_000, "line 10: no YAML: "),
        ("a: \x00", "line 10: no YAML: "),
        ("a: !!int x", "line 10: no YAML: invalid literal"),
    ],
)
def test_bad_text_is_named_by_line(text: str, message: str) -> None:
    """The line is the file's, not the document's; nothing else than ManifestError comes out."""
    with pytest.raises(ManifestError) as caught:
        load(Chunk(text, 10))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_anchors_and_merges_work() -> None:
    """An own key overrides a merged one."""
    assert load_one("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}") == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 3},
    }
