"""One collection's list, page by page, and whether its kind exists at all."""

from collections.abc import AsyncGenerator, Mapping

from fleet.errors import KubeNotFound, KubeUnavailable
from fleet.kube.contract import KubeApi
from fleet.kube.listwatch_events import Collection, Page, read_page
from fleet.kube.listwatch_pace import Pace

SMALLEST_PAGE = 10


class Pages:
    """Reads lists. After a failure the pages are smaller, until a whole list was read.

    Args:
        selectors: `labelSelector` and `fieldSelector`, where wanted.
    """

    def __init__(
        self, api: KubeApi, collection: Collection, selectors: Mapping[str, str], pace: Pace
    ) -> None:
        self._api = api
        self._collection = collection
        self._selectors = selectors
        self._pace = pace
        self._size = pace.page

    async def read(self) -> AsyncGenerator[Page, None]:
        """All pages of one snapshot.

        Raises:
            KubeError: one could not be read; what came before is no whole list.
        """
        token = ""
        while True:
            page = await self._page(token)
            yield page
            token = page.token
            if not token:
                break
        self._size = self._pace.page

    async def _page(self, token: str) -> Page:
        params = {**self._selectors, "limit": str(self._size)}
        if token:
            params["continue"] = token
        seconds = self._pace.page_seconds
        try:
            return read_page(
                await self._api.read(self._collection.path, params=params, timeout_seconds=seconds)
            )
        except KubeUnavailable:
            # It may have been the page's size: too long to answer in time, or too large to hold.
            self._size = max(SMALLEST_PAGE, self._size // 2)
            raise

    async def discovered(self) -> bool:
        """Whether discovery names the kind; it does so for everybody, whatever RBAC says."""
        try:
            found = await self._api.get(self._collection.api)
        except KubeNotFound:
            return False
        kinds = found.get("resources")
        return isinstance(kinds, list) and any(
            isinstance(kind, dict) and kind.get("name") == self._collection.plural for kind in kinds
        )
