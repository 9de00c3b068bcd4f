"""README and docs: every relative link leads to a file, and to a heading where it names one."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLDERS = "deploy|docs|tests|fleet|coordinator|epp_worker"


def _prose(page: Path) -> str:
    """The page without its quoted blocks: what looks like a link in these is none."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def _slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it: no markup, no punctuation, hyphens for blanks."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def _anchors(page: Path) -> frozenset[str]:
    """Of all headings; one that comes again has -1, -2 behind it."""
    found: dict[str, int] = {}
    anchors: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", _prose(page), re.MULTILINE):
        slug = _slug(heading)
        before = found.get(slug, 0)
        found[slug] = before + 1
        anchors.add(f"{slug}-{before}" if before else slug)
    return frozenset(anchors)


def _links(page: Path) -> list[str]:
    """Those that stay within the project."""
    targets = re.findall(r"\]\(([^)\s]+)\)", _prose(page))
    return [each for each in targets if not re.match(r"[a-z]+:", each)]


def _broken(page: Path) -> list[str]:
    broken = []
    for link in _links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """The file is there, and has the heading."""
    assert _broken(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_paths_exist(page: Path) -> None:
    """Each `folder/file` of the project that the prose names."""
    named = re.findall(rf"`((?:{FOLDERS})/[^`\s*<]*)`", _prose(page))
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_page_can_be_found() -> None:
    """The README and the index of docs/ link to each page."""
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    index = {Path(link.partition("#")[0]).name for link in _links(ROOT / "docs" / "README.md")}
    front = {Path(link.partition("#")[0]).name for link in _links(ROOT / "README.md")}
    assert len(pages) > 10
    assert pages <= index
    assert pages <= front


def test_broken_links_are_seen(tmp_path: Path) -> None:
    """A file that is missing, a heading that is missing; not those that exist or lead elsewhere."""
    (tmp_path / "other.md").write_text("# Many: pools, `one` [link](x.md)\n## Again\n## Again\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](other.md#many-pools-one-link) [b](other.md#again-1) [c](#here)\n"
        "[d](https://example.org/nothing.md) [e](missing.md) [f](other.md#again-2) [g](#there)\n"
        "```\n# there\n[h](quoted.md)\n```\n"
    )
    assert _broken(page) == ["missing.md", "other.md#again-2", "#there"]
