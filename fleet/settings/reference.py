"""The annotated reference of all settings, derived from the dataclasses and their docstrings.

`python -m fleet.settings.reference > deploy/settings.yaml` writes the file that ships; a test holds
that it is up to date.
"""

import ast
import inspect
import sys
import textwrap

from fleet.settings.fields import Field, all_fields, sections
from fleet.settings.model import Settings

_HEAD = """\
# Every setting of an EPP fleet with its default; a file needs only what differs.
# Read in this order, later wins: this file, the environment (redis.url is EPP_FLEET_REDIS__URL),
# flags. Timers are checked against each other at start-up.
"""
_WIDTH = 100


def _docs_of(cls: type) -> dict[str, str]:
    """Field -> the docstring below it."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    docs: dict[str, str] = {}
    name = ""
    for node in body.body if isinstance(body, ast.ClassDef) else []:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and name:
            docs[name] = " ".join(str(node.value.value).split())
            name = ""
    return docs


def _comment(text: str, indent: str) -> list[str]:
    lead = f"{indent}# "
    return textwrap.wrap(text, _WIDTH, initial_indent=lead, subsequent_indent=lead)


def _lines(field: Field, doc: str, indent: str) -> list[str]:
    limit = field.limit.text() if field.limit else ""
    note = " ".join(part for part in (doc, f"[{limit}]" if limit else "") if part)
    value = f'"{field.default}"' if isinstance(field.default, str) else str(field.default)
    value = value.lower() if isinstance(field.default, bool) else value
    return [*_comment(note, indent), f"{indent}{field.name}: {value}"]


def reference() -> str:
    """The text of the reference file: every field, its meaning, its limits and its default."""
    lines = _HEAD.splitlines()
    for section, cls in {"": Settings, **sections()}.items():
        docs = _docs_of(cls)
        lines.append("")
        if section:
            lines += [*_comment(" ".join((cls.__doc__ or "").split()), ""), f"{section}:"]
        for field in all_fields().values():
            if field.section == section:
                lines += _lines(field, docs.get(field.name, ""), "  " if section else "")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
