"""From a request's headers and body to what is asked of the picker, and what is changed of both.

The model that goes on is, in this order: the target of an InferenceModelRewrite that the incoming
model has in its pool; the name in the rewrite header; the incoming one.
"""

import random
import uuid
from collections.abc import Callable
from typing import Final

from epp_worker.extproc.hints import BodyHints
from epp_worker.extproc.model import NO_BODY, NO_MODEL, BadBody, Body, Header, body_of, checked
from epp_worker.extproc.paths import DEFAULT_PATH, Shape, names_model, path_of, shape_of
from epp_worker.extproc.renaming import Renaming
from epp_worker.extproc.splice import with_model
from epp_worker.scheduling.contract import NO_HINTS, Picker, PickRequest, Refusal
from fleet.model.rewrites import Intents

REQUEST_ID: Final = "x-request-id"
OBJECTIVE: Final = ("x-llm-d-inference-objective", "x-gateway-inference-objective")
REWRITE: Final = ("x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite")
"""The header's name, and its older one, which counts where the other is missing."""

_OTHER: Final = Shape.OTHER
_UNCHANGEABLE = Refusal(400, "", "The request body's 'model' cannot be rewritten as configured.")


class Asked:
    """A request that can be picked for.

    Attributes:
        hints: to be forgotten after the pick; None = the request has none.
        body: to send on instead of the one that came; None = that one.
        set_headers: on the request, beside the destination.
        remove_headers: of the request.
        renaming: of the model in the response; None = it is left as it is.
    """

    __slots__ = ("body", "hints", "remove_headers", "renaming", "request", "set_headers")

    def __init__(
        self,
        request: PickRequest,
        hints: BodyHints | None,
        body: bytes | None,
        set_headers: list[tuple[str, str]],
        remove_headers: list[str],
        renaming: Renaming | None,
    ) -> None:
        self.request: Final = request
        self.hints: Final = hints
        self.body: Final = body
        self.set_headers: Final = set_headers
        self.remove_headers: Final = remove_headers
        self.renaming: Final = renaming


class Came:
    """What came of a request.

    Attributes:
        body: None = it is not seen, or there is none.
        whole: False = the gateway may have cut the body short.
    """

    __slots__ = ("body", "header", "subset", "whole")

    def __init__(
        self,
        header: Header,
        subset: frozenset[str] | None,
        body: bytes | None,
        whole: bool = True,
    ) -> None:
        self.header: Final = header
        self.subset: Final = subset
        self.body: Final = body
        self.whole: Final = whole


def ask(picker: Picker, came: Came, *, largest: int, rng: random.Random) -> Asked | Refusal:
    """Read a request.

    Args:
        largest: bytes that a decompressed copy of the body may have.
        rng: chooses among targets, and makes request ids.
    """
    header = came.header
    path = path_of(header)
    shape = shape_of(path or DEFAULT_PATH) if path or came.body else _OTHER
    body = _read(came, shape, largest)
    if isinstance(body, BadBody):
        return Refusal(body.status, "", body.message)
    intents = picker.intents(body.model)
    target = _target(came, shape, body, intents, rng.random) if came.body is not None else None
    if body.model is None and target is None and body.plain and _must_name(came, shape):
        return Refusal(NO_MODEL.status, "", NO_MODEL.message)
    changed = None
    if target is not None:
        changed = with_model(body.plain, target)
        if changed is None and came.whole:
            return _UNCHANGEABLE
        target = None if changed is None else target
    request_id = header(REQUEST_ID) or ""
    set_headers, remove_headers = _changes(header, body, changed)
    if not request_id:
        request_id = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        set_headers.append((REQUEST_ID, request_id))
    objective = _either(header, OBJECTIVE)
    hints = BodyHints(shape, body.said) if body.plain else None
    request = PickRequest(
        model=body.model,
        subset=came.subset,
        header=header,
        path=path,
        request_id=request_id,
        objective=objective,
        priority=intents.priority(objective) if objective else 0,
        target_model=target,
        hints=hints or NO_HINTS,
    )
    renaming = Renaming(target, body.model) if target and body.model else None
    return Asked(request, hints, changed, set_headers, remove_headers, renaming)


def _read(came: Came, shape: Shape, largest: int) -> Body | BadBody:
    if came.body is None:
        return NO_BODY
    body = body_of(came.body, came.header, shape, largest=largest)
    if isinstance(body, BadBody) and not came.whole:
        return NO_BODY  # cut short by the gateway: perhaps the group needs no model
    return body


def _must_name(came: Came, shape: Shape) -> bool:
    posted = (came.header(":method") or "POST").upper() == "POST"
    return came.body is not None and came.whole and posted and names_model(shape)


def _target(
    came: Came, shape: Shape, body: Body, intents: Intents, chance: Callable[[], float]
) -> str | None:
    """What to ask for instead; None = what the client asked for."""
    if body.model is None and not _must_name(came, shape):
        return None
    if not body.plain:
        return None
    target = intents.target(body.model or "", chance) or _either(came.header, REWRITE)
    if not target or target == body.model or isinstance(checked(target), BadBody):
        return None
    return target


def _either(header: Header, names: tuple[str, str]) -> str:
    new, old = names
    value = header(new)
    return (header(old) or "") if value is None else value


def _changes(
    header: Header, body: Body, changed: bytes | None
) -> tuple[list[tuple[str, str]], list[str]]:
    if changed is None:
        return [], []
    set_headers = []
    if header("content-length"):  # a request in chunks has none, and must not get one
        set_headers.append(("content-length", str(len(changed))))
    return set_headers, ["content-encoding"] if body.packed else []
