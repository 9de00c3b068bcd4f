"""What a worker is given instead of reaching for it."""

import random
from dataclasses import dataclass

from epp_worker.datalayer.models import ModelSource
from epp_worker.holdings import Scrapes
from fleet.certificates import Certificates, ServingTls
from fleet.clock import Clock
from fleet.picking.folder import ConfigSource
from fleet.sources.contract import Source
from fleet.store.contract import Store


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The neighbours of one worker.

    Attributes:
        connections: how many gateway connections the process may have open.
        certificates: of the internal port; None = it speaks plaintext.
        tls: of the gateways' port; None = plaintext alone.
        picking: the picker configurations; None = pools pick by the built-in one.
        models: where model servers are asked what they serve; None = nowhere.
    """

    source: Source
    store: Store
    scraper: Scrapes
    clock: Clock
    rng: random.Random
    connections: int = 16_384
    certificates: Certificates | None = None
    tls: ServingTls | None = None
    picking: ConfigSource | None = None
    models: ModelSource | None = None
