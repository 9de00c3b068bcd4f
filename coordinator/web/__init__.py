"""The coordinator's HTTP side: API, page, metrics, health; over `coordinator.view.View` alone."""

from coordinator.web.server import Web, start_web

__all__ = ["Web", "start_web"]
