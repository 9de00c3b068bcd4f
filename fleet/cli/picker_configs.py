"""Picker configurations on the terminal: what is in force, and what is said and not done."""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from fleet.cli.output import FORMAT, make_console, show, write_json
from fleet.errors import SettingsError
from fleet.picking import decode
from fleet.picking.choice import Chosen
from fleet.picking.decode import MAX_BYTES, looks_like_one
from fleet.picking.effective import EffectiveRow, effective_config
from fleet.picking.extensions import load_extensions

PIPE_WIDTH = 100
"""Columns when the output is no terminal."""

Json = Mapping[str, Any]


def read_text(path: Path) -> str:
    """A file that may be a picker configuration; "" if it cannot be one.

    Raises:
        SettingsError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise SettingsError([f"{path}: cannot be read: {reason}"]) from None
    text = data.decode("utf-8-sig", errors="replace")
    return text if looks_like_one(text) else ""


def check(path: Path, text: str, *, experimental: bool, as_json: bool = False) -> None:
    """Print what a configuration comes to, and its warnings.

    Raises:
        SettingsError: one line per complaint, with the file before it.
    """
    extensions = load_extensions()
    try:
        config = decode(text, name=path.stem, experimental=experimental, kinds=extensions.kinds)
    except SettingsError as error:
        raise SettingsError([f"{path}: {line}" for line in error.problems]) from None
    found = effective_config(Chosen(config))
    rows, warnings = _plain(found.rows), [*found.warnings, *extensions.problems]
    if as_json:
        write_json(
            {
                "format": FORMAT,
                "file": str(path),
                "kind": "picker",
                "good": True,
                "problems": [],
                "warnings": warnings,
                "response_phase": found.response_phase or None,
                "rows": rows,
            }
        )
        return
    console = make_console(PIPE_WIDTH)
    sys.stdout.write(f"{path}: good\n")  # a path is never broken over lines
    show(console, config_table(rows, console.width))
    if found.response_phase:
        show(console, Text(f"response phase: {found.response_phase}"))
    show(console, *(Text.assemble(("warning: ", "yellow"), line) for line in warnings))


def _plain(rows: Iterable[EffectiveRow]) -> list[Json]:
    return [{name: getattr(row, name) for name in row.__struct_fields__} for row in rows]


def config_table(rows: Iterable[Json], width: int = PIPE_WIDTH) -> Table:
    """The plugins that have a say; in a narrow terminal parameters stand below their plugin."""
    narrow = width < PIPE_WIDTH
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("profile", "role"):
        table.add_column(column, no_wrap=True)
    table.add_column("plugin", no_wrap=not narrow, overflow="fold")
    table.add_column("weight", justify="right", no_wrap=True)
    if not narrow:
        table.add_column("parameters", overflow="fold")
    for row in rows:
        plugin = Text(str(row["plugin"]))
        if row["plugin"] != row["type"]:
            plugin.append(f"\n({row['type']})", style="dim")
        if row["left_out"]:
            plugin.append(", left out", style="yellow")
        weight = "" if row["weight"] is None else f"{row['weight']:g}"
        given = _lines(row["parameters"])
        if narrow:
            plugin.append("".join(f"\n  {line}" for line in given.splitlines()), style="dim")
        cells = (row["profile"] or "-", row["role"], plugin, weight)
        table.add_row(*cells, *(() if narrow else (given,)))
    return table


def _lines(parameters: str) -> str:
    """Parameters, one a line, by the names that configurations use."""
    given: Json = json.loads(parameters or "{}")
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value)}"
        for name, value in given.items()
    )
