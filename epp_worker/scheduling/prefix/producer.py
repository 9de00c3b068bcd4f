"""What a request's prompt has in common with those that each endpoint was given before.

approx-prefix-cache-producer of the llm-d router: its parameters, its block size, its caps. Two
things are different on purpose: a pick is known within the pick, so that the very next request sees
it; and an endpoint's reported cache is converted to blocks of the index (the router counts 16-token
blocks of the engine as 64-token ones, and believes in four times the real cache).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from epp_worker.scheduling.contract import PickRequest
from epp_worker.scheduling.plugin import NO_VOTE, Candidates, PluginContext
from epp_worker.scheduling.prefix.figures import PrefixFigures
from epp_worker.scheduling.prefix.hashing import (
    MAX_BLOCKS,
    MIN_BLOCK_TOKENS,
    TOKEN_BYTES,
    chain,
    packed,
    seed,
)
from epp_worker.scheduling.prefix.index import DEFAULT_CAPACITY, PrefixIndex
from epp_worker.scheduling.prefix.slot import PREFIX, PrefixSlot
from fleet.picking.parameters import PrefixProducerParameters

if TYPE_CHECKING:
    from epp_worker.scheduling.endpoint import EndpointState

PRODUCER: Final = "approx-prefix-cache-producer"
ENGINE_BLOCK_TOKENS: Final = 16
"""A block of a model server that says how many it has, not how large they are (vLLM's default)."""
DEFAULT_BLOCK_TOKENS: Final = PrefixProducerParameters().block_size_tokens


class Match:
    """What a request finds.

    Attributes:
        blocks: of the prompt that each candidate has, in their order; not to be changed.
        total: blocks of the prompt; 0 = it has no prompt that is known.
        block_tokens: tokens in a block.
        found: whether any endpoint has a part of it.
    """

    __slots__ = ("block_tokens", "blocks", "found", "total")

    def __init__(
        self,
        blocks: Sequence[int],
        total: int,
        block_tokens: int,
        found: bool = True,
    ) -> None:
        self.blocks: Final = blocks
        self.total: Final = total
        self.block_tokens: Final = block_tokens
        self.found: Final = found


class _Asked:
    """A request that was asked about, its chain, where it is looked up, and the endpoints that it
    was picked for."""

    __slots__ = ("block_tokens", "chain", "counts", "index", "request", "told")

    def __init__(
        self,
        request: PickRequest,
        block_tokens: int,
        blocks: list[int],
        index: PrefixIndex | None,
        counts: tuple[int, ...] | None,
    ) -> None:
        self.request: Final = request
        self.block_tokens: Final = block_tokens
        self.chain: Final = blocks
        self.index: Final = index
        self.counts: Final = counts
        self.told: Final[list[EndpointState]] = []


class ApproxPrefixCache:
    """One instance of the producer.

    Args:
        context: of the plugin; its slot `prefix` is the index.
        unnamed: it is the one that a pool has whose configuration lists none.

    Attributes:
        figures: what it finds, together with the producers of this name of other pools.
    """

    def __init__(
        self, parameters: PrefixProducerParameters, context: PluginContext, *, unnamed: bool = False
    ) -> None:
        block = parameters.block_size_tokens
        if parameters.block_size and block == DEFAULT_BLOCK_TOKENS:
            block = parameters.block_size
        if not parameters.auto_tune and not block:
            raise ValueError("blockSizeTokens must be more than 0 when autoTune is off")
        self._block_tokens = max(MIN_BLOCK_TOKENS, block)
        self._parameters = parameters
        self._context = context
        self._asked: _Asked | None = None
        self._zeros: list[int] = []
        slot = context.slot(PREFIX)
        name = PRODUCER if unnamed else context.name
        self.figures = slot.figures.of(name) if isinstance(slot, PrefixSlot) else PrefixFigures()

    def match(self, request: PickRequest, candidates: Candidates) -> Match:
        """How much of the prompt each candidate has."""
        asked = self._ask(request, candidates)
        if asked.counts is None:
            if len(self._zeros) != len(candidates):
                self._zeros = [0] * len(candidates)
            return Match(self._zeros, len(asked.chain), asked.block_tokens, found=False)
        index, counts = asked.index, asked.counts
        blocks = [counts[lane] for lane in index.lanes(candidates)] if index is not None else []
        return Match(blocks, len(asked.chain), asked.block_tokens)

    def shares(self, request: PickRequest, candidates: Candidates) -> Sequence[float]:
        """The part of the prompt that each candidate has, 0..1; `NO_VOTE` if none has any."""
        added = self.add_shares(request, candidates, 1.0, [0.0] * len(candidates))
        return NO_VOTE if added is None else added

    def add_shares(
        self, request: PickRequest, candidates: Candidates, weight: float, totals: list[float]
    ) -> list[float] | None:
        """The totals and the weighted part of the prompt that each candidate has; None if none has
        any. The same as by `match`, in half the time: it is a part of nearly every pick.
        """
        asked = self._ask(request, candidates)
        counts, index = asked.counts, asked.index
        if counts is None or index is None:
            return None
        share = weight / len(asked.chain)
        lanes = index.lanes(candidates)
        if len(totals) != len(lanes):
            raise ValueError(f"{len(totals)} totals for {len(lanes)} endpoints")
        return [total + counts[lanes[i]] * share for i, total in enumerate(totals)]

    def picked(self, request: PickRequest, chosen: "EndpointState") -> None:
        """See `PickObserver.picked`: the chosen endpoint has this prompt from now on."""
        asked = self._ask(request, (chosen,))
        index, counts = asked.index, asked.counts
        if index is None or not self._add(index, asked, chosen):
            return
        if counts is None:
            self.figures.count(0, len(asked.chain), asked.block_tokens)
        elif (lane := index.lane(chosen)) is not None:
            self.figures.count(counts[lane], len(asked.chain), asked.block_tokens)

    def prefilled(self, request: PickRequest, chosen: "EndpointState") -> None:
        """See `PrefillObserver.prefilled`: that endpoint has the prompt, too."""
        asked = self._ask(request, (chosen,))
        if asked.index is not None:
            self._add(asked.index, asked, chosen)

    def _add(self, index: PrefixIndex, asked: _Asked, chosen: "EndpointState") -> bool:
        """Note the prompt at an endpoint; False if that is done already, or there is no prompt."""
        if not asked.chain or chosen in asked.told:
            return False
        asked.told.append(chosen)
        index.add(chosen, asked.chain, self._capacity(chosen, asked.block_tokens))
        return True

    def _index(self) -> PrefixIndex | None:
        slot = self._context.slot(PREFIX)
        return slot.index if isinstance(slot, PrefixSlot) else None

    def _ask(self, request: PickRequest, candidates: Candidates) -> _Asked:
        asked = self._asked
        if asked is None or asked.request is not request:
            tokens = self._tokens_in_block(candidates)
            hashes = self._chain(request, tokens)
            index = self._index()
            counts = index.counts(hashes) if index is not None and hashes else None
            asked = self._asked = _Asked(request, tokens, hashes, index, counts)
        return asked

    def _chain(self, request: PickRequest, block_tokens: int) -> list[int]:
        hints = request.hints
        ids = hints.token_ids
        most = min(self._most_blocks(block_tokens), MAX_BLOCKS)
        size = block_tokens * TOKEN_BYTES
        data = packed(ids[: most * block_tokens]) if ids else hints.beginning(most * size)
        if not data:
            return []
        model = request.target_model or request.model or ""
        return chain(data, seed(model, hints.cache_salt), size, most)

    def _tokens_in_block(self, candidates: Candidates) -> int:
        if self._parameters.auto_tune and candidates:
            told = candidates[0].block_size
            if told:
                return max(MIN_BLOCK_TOKENS, told)
        return self._block_tokens

    def _most_blocks(self, block_tokens: int) -> int:
        tokens = self._parameters.max_prefix_tokens_to_match
        if tokens:
            return tokens // block_tokens
        return self._parameters.max_prefix_blocks_to_match or MAX_BLOCKS

    def _capacity(self, endpoint: "EndpointState", block_tokens: int) -> int:
        if self._parameters.auto_tune and endpoint.blocks:
            size = endpoint.block_size or ENGINE_BLOCK_TOKENS
            return max(1, endpoint.blocks * size // block_tokens)
        return self._parameters.lru_capacity_per_server or DEFAULT_CAPACITY


def producer(name: str, context: PluginContext) -> tuple[ApproxPrefixCache, bool]:
    """The producer that a plugin asks: the one of this name, or else the pool's unnamed one.

    Returns:
        The producer, and whether it is the unnamed one, which nobody else may tell of picks: those
        that ask it must, and the first one to tell of a pick is heard.

    Raises:
        ValueError: an instance of that name is something else.
    """
    found = context.find(name or PRODUCER)
    if found is None and not name:
        slot = context.slot(PREFIX)
        if not isinstance(slot, PrefixSlot):
            return ApproxPrefixCache(PrefixProducerParameters(), context, unnamed=True), True
        if slot.unnamed is None:
            slot.unnamed = ApproxPrefixCache(PrefixProducerParameters(), context, unnamed=True)
        return slot.unnamed, True
    if not isinstance(found, ApproxPrefixCache):
        raise ValueError(f"prefixMatchInfoProducerName: {name or PRODUCER} is no {PRODUCER}")
    return found, False
