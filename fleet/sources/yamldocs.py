"""YAML text to plain values, one document at a time, so that one bad document spoils no other.

Read as kubectl reads it, without three traps of YAML 1.1 as PyYAML has it: an unquoted date is a
string, `1:30` is a string and no number in base 60, and a key that is given twice is an error.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import yaml

from fleet.errors import ManifestError

_MARKER = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_CONTENT = re.compile(r"^(?!%)[ \t]*[^#\s]", re.MULTILINE)
_MERGE = "tag:yaml.org,2002:merge"


class Chunk(NamedTuple):
    """The text between two document markers; `line` is that of its first character, from 1."""

    text: str
    line: int


class _Loader(yaml.CSafeLoader):
    """PyYAML's safe C loader with the scalars of JSON, plus YAML 1.1 booleans and integers."""


def _plain_resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """PyYAML's resolvers without timestamps and without numbers in base 60."""
    number = {
        "tag:yaml.org,2002:int": re.compile(
            r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$"
        ),
        "tag:yaml.org,2002:float": re.compile(
            r"(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
    }
    return {
        first: [
            (tag, number.get(tag, pattern))
            for tag, pattern in resolvers
            if tag != "tag:yaml.org,2002:timestamp"
        ]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.yaml_implicit_resolvers = _plain_resolvers()


def chunks(text: str) -> Iterator[Chunk]:
    """Split at the lines that begin with `---`, which nothing else in YAML may do.

    Chunks of nothing but blanks, comments and directives are left out.
    """
    begins = [0, *(match.end() for match in _MARKER.finditer(text))]
    ends = [*(match.start() for match in _MARKER.finditer(text)), len(text)]
    line, counted = 1, 0
    for begin, end in zip(begins, ends, strict=True):
        line += text.count("\n", counted, begin)
        counted = begin
        if _CONTENT.search(text, begin, end):
            yield Chunk(text[begin:end], line)


def load(chunk: Chunk) -> list[object]:
    """The documents of one chunk: one, or more if it holds `...` lines.

    Raises:
        ManifestError: no YAML; names the line.
    """
    loader = _Loader(chunk.text)
    documents: list[object] = []
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                _check_keys(node, chunk.line)
                documents.append(loader.construct_document(node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = chunk.line + (mark.line if mark is not None else 0)
        problem = error.problem or error.context or "cannot be read"
        raise ManifestError(f"line {line}: no YAML: {problem}; repair the document") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        kind = (
            "nested too deeply"
            if isinstance(error, RecursionError)
            else " ".join(str(error).split())[:200]
        )
        raise ManifestError(f"line {chunk.line}: no YAML: {kind}; repair the document") from None
    finally:
        loader.dispose()
    return documents


def _check_keys(root: yaml.Node, first_line: int) -> None:
    """Every mapping below `root` has each scalar key once, and no list of merges."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            stack.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                stack.append(value)
                if not isinstance(key, yaml.ScalarNode):
                    continue
                line = first_line + key.start_mark.line
                if key.tag == _MERGE and not isinstance(value, yaml.MappingNode):
                    # Lists of merges nested in each other grow without bound.
                    raise ManifestError(f"line {line}: `<<` may take one mapping; write it out")
                if key.value in keys:
                    raise ManifestError(
                        f"line {line}: the key {key.value[:60]!r} is given twice; keep one"
                    )
                keys.add(key.value)
