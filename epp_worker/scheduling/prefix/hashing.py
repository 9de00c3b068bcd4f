"""A prompt as a chain of block hashes: equal beginnings give equal beginnings of chains.

The same chain as the llm-d router's (`prefixhash`), so that hit rates compare: xxhash64 over blocks
of little-endian 32-bit tokens, each hashed on with the hash before it, the first with that of the
model and the cache salt. Text becomes tokens of four bytes, padded with zeros at its end. The last
block may be shorter.
"""

import struct
import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import starmap
from typing import Final

from xxhash import xxh64_intdigest

TOKEN_BYTES: Final = 4
MIN_BLOCK_TOKENS: Final = 64
"""Smaller blocks make an index of gigabytes (kubernetes-sigs/gateway-api-inference-extension#2878);
the router raises them to this too."""
MAX_BLOCKS: Final = 65_535
"""Blocks of one prompt that count, whatever is configured: 16 MiB of text in small blocks."""

_pair: Final = struct.Struct("<QQ").pack


@lru_cache(maxsize=64)
def _blocks(size: int) -> struct.Struct:
    return struct.Struct(f"{size}s")


@lru_cache(maxsize=256)
def _model_seed(model: str) -> int:
    return xxh64_intdigest(model.encode(errors="surrogatepass"))


def seed(model: str, salt: str = "") -> int:
    """What the first block is hashed with: prompts of other models or salts share nothing."""
    if not salt:
        return _model_seed(model)
    return xxh64_intdigest((model + salt).encode(errors="surrogatepass"))


def chain(data: bytes, seed: int, block_bytes: int, max_blocks: int) -> list[int]:
    """The hashes of a prompt's blocks, each of the whole beginning up to its end.

    170 ns a block of 256 bytes: the splitting and the first hashing run without a Python step.

    Args:
        data: the prompt, see `packed` for tokens.
        block_bytes: a multiple of 4.
    """
    hash_of, pair = xxh64_intdigest, _pair  # compiled code looks names of other modules up
    count = min(len(data) // block_bytes, max_blocks)
    whole = count * block_bytes
    ids = starmap(hash_of, _blocks(block_bytes).iter_unpack(memoryview(data)[:whole]))
    hashed = seed
    hashes = [hashed := hash_of(pair(block, hashed)) for block in ids]
    if count < max_blocks and len(data) > whole:
        tail = data[whole:]
        tail += bytes(-len(tail) % TOKEN_BYTES)
        hashes.append(xxh64_intdigest(_pair(xxh64_intdigest(tail), hashed)))
    return hashes


def packed(tokens: Sequence[int]) -> bytes:
    """Token ids as they are hashed; b"" if one of them is no 32-bit number."""
    try:
        words = array("I", tokens)
    except (OverflowError, TypeError):
        return b""
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()
