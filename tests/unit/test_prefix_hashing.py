"""The chain of block hashes: the llm-d router's, byte for byte."""

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from epp_worker.scheduling.prefix.hashing import chain, packed, seed
from tests.prefix_rule import block_hashes, text_tokens

BLOCK = 64


def le(number: int) -> bytes:
    return number.to_bytes(8, "little")


def test_a_chain_by_hand() -> None:
    """Two blocks of text of 256 bytes and a last one of 5 bytes, padded to 8."""
    text = b"a" * 256 + b"b" * 256 + b"hello"
    first = xxhash.xxh64_intdigest(
        le(xxhash.xxh64_intdigest(b"a" * 256)) + le(xxhash.xxh64_intdigest(b"modelsalt"))
    )
    second = xxhash.xxh64_intdigest(le(xxhash.xxh64_intdigest(b"b" * 256)) + le(first))
    third = xxhash.xxh64_intdigest(le(xxhash.xxh64_intdigest(b"hello\0\0\0")) + le(second))
    assert chain(text, seed("model", "salt"), 256, 2048) == [first, second, third]


def test_the_published_hash_of_nothing() -> None:
    """xxhash64 of no bytes, from its specification: what an unnamed model begins with."""
    assert seed("") == 0xEF46DB3751D8E999


@given(st.binary(max_size=2000), st.text(max_size=8), st.integers(0, 6))
def test_chains_are_those_of_the_rule(text: bytes, model: str, most: int) -> None:
    """Any text, block by block as written down independently."""
    wanted = block_hashes(text_tokens(text), model, "s", BLOCK, most)
    assert chain(text, seed(model, "s"), 4 * BLOCK, most) == wanted


@given(st.lists(st.integers(0, 2**32 - 1), max_size=300))
def test_token_ids_are_hashed_as_little_endian_words(tokens: list[int]) -> None:
    """A client that sends tokens is hashed by these."""
    wanted = block_hashes(tokens, "m", "", BLOCK, 2048)
    assert chain(packed(tokens), seed("m"), 4 * BLOCK, 2048) == wanted


@pytest.mark.parametrize("tokens", [[2**32], [-1]])
def test_numbers_that_are_no_tokens_mean_no_prompt(tokens: list[int]) -> None:
    """They are the model server's to refuse; here there is one hint less."""
    assert packed(tokens) == b""


def test_the_cap_cuts_whole_blocks() -> None:
    """A prompt that is longer than the cap has no shorter last block."""
    text = b"x" * 1000
    assert chain(text, 1, 256, 3) == chain(text[:768], 1, 256, 2048)
    assert len(chain(text, 1, 256, 4)) == 4
    assert chain(text, 1, 256, 0) == []
