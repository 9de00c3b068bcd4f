"""The shard map as a page: one table without scripts or outside assets, which reloads itself."""

from collections.abc import Iterable
from html import escape

from coordinator.web.documents import MapDocument, PoolDocument

REFRESH_SECONDS = 2
MAX_ROWS = 1000
"""A page is for eyes; the API has all pools."""

SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2em;color-scheme:light dark}"
    "table{border-collapse:collapse}th,td{text-align:left;padding:.2em .8em;"
    "border-bottom:1px solid #8884}td{white-space:nowrap}"
    ".unowned,.quarantined{color:#c00;font-weight:bold}"
)
_LINKS = (
    'As JSON: <a href="/api/v1/map">map</a>, <a href="/api/v1/workers">workers</a>. '
    'For Prometheus: <a href="/metrics">metrics</a>.'
)
_COLUMNS = ("Pool", "Group", "Phase", "Owner", "Stand-by", "Reason", "Since")


def render(document: MapDocument | None, coordinator: str) -> str:
    """The whole page.

    Args:
        document: None before the first map.
        coordinator: id of the replica that answers.
    """
    body = "<p>No shard map yet.</p>" if document is None else _body(document)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">'
        f"<title>EPP Fleet</title><style>{_STYLE}</style></head><body>"
        f"<h1>EPP Fleet: shard map</h1>{body}"
        f"<p>Answered by {escape(coordinator)}. {_LINKS}</p></body></html>"
    )


def _body(document: MapDocument) -> str:
    leader = "none" if document.leader is None else document.leader.id
    shown, total = document.pools[:MAX_ROWS], len(document.pools)
    summary = (
        f"<p>Fleet {escape(document.fleet)}, map {document.epoch}.{document.version} of "
        f"{escape(document.published_at)}, leader {escape(leader)}, {total} pools.</p>"
    )
    rest = f"<p>{total - len(shown)} more in the API.</p>" if total > len(shown) else ""
    rows = "".join(_row(pool) for pool in shown)
    head = f"<thead>{_cells('th', _COLUMNS)}</thead>"
    return f"{summary}{_missing(document)}<table>{head}<tbody>{rows}</tbody></table>{rest}"


def _missing(document: MapDocument) -> str:
    missing = sum(1 for pool in document.pools if not pool.owners)
    return f'<p class="unowned">{missing} without owner.</p>' if missing else ""


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
