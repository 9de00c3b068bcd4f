"""TokenReview and SubjectAccessReview: what is asked, and what the answers mean. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fleet.errors import KubeUnavailable
from fleet.kube.contract import Raw

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class User:
    """Whom a token belongs to, as the API server names him.

    Attributes:
        name: `system:serviceaccount:monitoring:prometheus`.
        identity: the fields of a SubjectAccessReview that say who he is: user, uid, groups, extra.
    """

    name: str
    identity: Mapping[str, Any]


def token_review(token: str) -> Raw:
    """Whose token is this? It must be meant for the API server itself: no audience is named."""
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    }


def user_of(answer: Raw) -> User | None:
    """The user; None if the token is nobody's.

    Raises:
        KubeUnavailable: that is no TokenReview that was answered.
    """
    status = _status(answer, "TokenReview")
    if status.get("authenticated") is not True:
        return None
    user = status.get("user")
    name = user.get("username") if isinstance(user, dict) else None
    if not isinstance(user, dict) or not isinstance(name, str) or not name:
        raise KubeUnavailable("TokenReview: authenticated, but nobody is named")
    identity = {key: user[key] for key in ("uid", "groups", "extra") if user.get(key)}
    return User(name, {"user": name, **identity})


def access_review(user: User, path: str) -> Raw:
    """May this user GET this path?"""
    asked = {"path": path, "verb": "get"}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {**user.identity, "nonResourceAttributes": asked},
    }


def allowed_in(answer: Raw) -> bool:
    """Whether he may.

    Raises:
        KubeUnavailable: that is no SubjectAccessReview that was answered.
    """
    status = _status(answer, "SubjectAccessReview")
    return status.get("allowed") is True and status.get("denied") is not True


def _status(answer: Raw, kind: str) -> Mapping[str, Any]:
    status = answer.get("status")
    if answer.get("kind") != kind or not isinstance(status, dict):
        raise KubeUnavailable(f"{kind}: the answer is none")
    return status
