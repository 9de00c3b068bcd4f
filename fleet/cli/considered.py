"""The candidates for a pool on the terminal: each with its place, load and why. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

Json = Mapping[str, Any]
VERDICTS = {
    "owner": "green",
    "gainer": "cyan",
    "standby": "green",
    "former": "cyan",
    "dead": "red",
    "draining": "cyan",
    "over_cap": "yellow",
    "full": "yellow",
}


def considered_table(considered: Sequence[Json]) -> Table:
    """One row a candidate, in the ring's order."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("RING", justify="right", no_wrap=True)
    table.add_column("WORKER", overflow="fold", min_width=8)
    table.add_column("IS", no_wrap=True)
    table.add_column("LOAD/CAP", justify="right", no_wrap=True)
    table.add_column("WHY", overflow="fold", min_width=24)
    for each in considered:
        verdict = str(each["verdict"])
        table.add_row(
            f"{each['order']}.",
            str(each["worker"]),
            Text(verdict.replace("_", " "), style=VERDICTS.get(verdict, "dim")),
            _of(each["load"], each["cap"]),
            str(each["why"]),
        )
    return table


def _of(load: float | None, cap: float | None) -> str:
    """`3.5/4.3`; a dash for what is not known."""
    shown = ["-" if each is None else f"{each:.1f}" for each in (load, cap)]
    return "-" if shown == ["-", "-"] else "/".join(shown)
