"""Workers and shard map as a page: tables without scripts or outside assets, which reload."""

from collections.abc import Iterable, Sequence
from html import escape

from coordinator.web.documents import MapDocument, PoolDocument, WorkerDocument

REFRESH_SECONDS = 2
MAX_ROWS = 1000
"""A page is for eyes; the API has all pools."""

SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2em;color-scheme:light dark}"
    "table{border-collapse:collapse}th,td{text-align:left;padding:.2em .8em;"
    "border-bottom:1px solid #8884}td{white-space:nowrap}"
    ".unowned,.quarantined,.dead,.suspect{color:#c00;font-weight:bold}"
)
_LINKS = (
    'As JSON: <a href="/api/v1/map">map</a>, <a href="/api/v1/workers">workers</a>. '
    'For Prometheus: <a href="/metrics">metrics</a>.'
)
_WORKER_COLUMNS = ("Worker", "State", "Owned", "Stand-by", "Load", "Seen")
_COLUMNS = ("Pool", "Group", "Phase", "Owner", "Stand-by", "Reason", "Since")


def render(
    document: MapDocument | None, coordinator: str, workers: Sequence[WorkerDocument] = ()
) -> str:
    """The whole page.

    Args:
        document: None before the first map.
        coordinator: id of the replica that answers.
    """
    body = "<p>No shard map yet.</p>" if document is None else _body(document, workers)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">'
        f"<title>EPP Fleet</title><style>{_STYLE}</style></head><body>"
        f"<h1>EPP Fleet: shard map</h1>{body}"
        f"<p>Answered by {escape(coordinator)}. {_LINKS}</p></body></html>"
    )


def _body(document: MapDocument, workers: Sequence[WorkerDocument]) -> str:
    leader = "none" if document.leader is None else document.leader.id
    shown, total = document.pools[:MAX_ROWS], len(document.pools)
    pools = f"{total} pool" if total == 1 else f"{total} pools"
    summary = (
        f"<p>Fleet {escape(document.fleet)}, map {document.epoch}.{document.version} of "
        f"{escape(document.published_at)}, leader {escape(leader)}, {pools}.</p>"
    )
    return (
        f"{summary}{_missing(document)}"
        f"{_table(_WORKER_COLUMNS, map(_worker_row, workers[:MAX_ROWS]))}{_more(len(workers))}<br>"
        f"{_table(_COLUMNS, map(_row, shown))}{_more(total)}"
    )


def _table(columns: Sequence[str], rows: Iterable[str]) -> str:
    head = f"<thead>{_cells('th', columns)}</thead>"
    return f"<table>{head}<tbody>{''.join(rows)}</tbody></table>"


def _more(total: int) -> str:
    return f"<p>{total - MAX_ROWS} more in the API.</p>" if total > MAX_ROWS else ""


def _missing(document: MapDocument) -> str:
    missing = sum(1 for pool in document.pools if not pool.owners)
    return f'<p class="unowned">{missing} without owner.</p>' if missing else ""


def _worker_row(worker: WorkerDocument) -> str:
    values = (
        worker.id,
        f"{worker.state}: {worker.why}" if worker.why else worker.state,
        str(worker.owned),
        str(worker.standby),
        f"{worker.load:.1f}",
        f"{worker.epoch}.{worker.version}",
    )
    return _cells("td", values, escape(worker.state))


def _row(pool: PoolDocument) -> str:
    values = (
        f"{pool.namespace}/{pool.name}",
        pool.group,
        pool.phase,
        ", ".join(pool.owners) or "none",
        pool.standby or "none",
        pool.reason,
        pool.since,
    )
    return _cells("td", values, escape(pool.phase))


def _cells(tag: str, values: Iterable[str], row_class: str = "") -> str:
    cells = "".join(f"<{tag}>{escape(value)}</{tag}>" for value in values)
    return f'<tr class="{row_class}">{cells}</tr>' if row_class else f"<tr>{cells}</tr>"
