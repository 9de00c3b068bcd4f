"""Label selectors: what they select, and what is said of those that are none."""

import pytest

from fleet.model.labels import LabelSelector

LABELS = {"team": "search", "env": "prod", "example.com/tier": "", "gpu": "h100"}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("team=search", True),
        ("team==search", True),
        ("team = search , env = prod", True),
        ("team=search,env=dev", False),
        ("team!=search", False),
        ("absent!=x", True),
        ("absent=x", False),
        ("env in (dev, prod)", True),
        ("env in (dev)", False),
        ("env in(prod)", True),
        ("env notin (dev,test)", True),
        ("env notin (prod)", False),
        ("absent notin (prod)", True),
        ("absent in (prod)", False),
        ("gpu", True),
        ("!gpu", False),
        ("absent", False),
        ("!absent", True),
        ("! absent", True),
        ("example.com/tier", True),
        ("example.com/tier=", True),
        ("team in (search,ads),!absent,env=prod", True),
    ],
)
def test_what_is_selected(text: str, selected: bool) -> None:
    """As an API server reads it: != and notin hold for objects without the label."""
    assert LabelSelector.parse(text).matches(LABELS) is selected


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "is empty"),
        (" , ", "is empty"),
        ("a=b,,c=d", "has an empty requirement"),
        ("a=b,", "has an empty requirement"),
        ("a in (b", "a ')' is missing"),
        ("a in b)", "parentheses do not match"),
        ("a in ((b))", "parentheses do not match"),
        ("a in ()", "no value in the parentheses"),
        ("=b", "'' is no label key"),
        ("a b", "'a b' is no label key"),
        ("Exa mple/x=b", "is no label key"),
        ("-a=b", "'-a' is no label key"),
        ("a=b c", "'b c' is no label value"),
        ("a=-b", "'-b' is no label value"),
        ("a in (b,c d)", "'c d' is no label value"),
        ("a=" + "x" * 64, "is no label value"),
        ("a>1", "'a>1' is no label key"),
        ("!a=b", "is no label key"),
    ],
)
def test_what_is_no_selector(text: str, fault: str) -> None:
    """The part that is wrong is quoted."""
    with pytest.raises(ValueError, match=r".+") as caught:
        LabelSelector.parse(text)
    assert fault in str(caught.value)
