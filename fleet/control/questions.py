"""Methods of the internal port that take one question and give one answer.

MessagePack like `fleet.control.messages`, with the same rules for newer formats.
"""

from typing import Any, Generic, Protocol, TypeVar

import msgspec

from fleet.control.codec import checked, decode_with


class Answer(Protocol):
    """A message that says which format it has."""

    @property
    def format(self) -> int:
        """As in `fleet.control.messages`."""
        ...


class Question(Answer, Protocol):
    """A message that also says which fleet is meant."""

    @property
    def fleet(self) -> str:
        """Its name."""
        ...


Q = TypeVar("Q", bound=Question)
A = TypeVar("A", bound=Answer)


class QuestionMethod(Generic[Q, A]):
    """One such method, as it is called and as its messages go over the wire.

    Attributes:
        path: `/service/method`.
    """

    def __init__(self, path: str, question: type[Q], answer: type[A]) -> None:
        self.path = path
        self._encoder = msgspec.msgpack.Encoder()
        self._question: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(question)
        self._answer: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(answer)

    def encode(self, message: Q | A) -> bytes:
        """The message as it goes over the wire."""
        return self._encoder.encode(message)

    def question(self, data: bytes) -> Q:
        """What was asked. Raises FormatError."""
        message: Q = decode_with(self._question, data)
        return checked(message.format, message)

    def answer(self, data: bytes) -> A:
        """What was answered. Raises FormatError."""
        message: A = decode_with(self._answer, data)
        return checked(message.format, message)
