"""An HTTP server of fixed JSON pages: a coordinator that says what a test wants."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

Answer = tuple[int, Any]
Pages = dict[str, Answer | Callable[[], Answer]]
"""Path with query -> status and body, or what gives them each time; all else is a 404. What is
posted to has `POST ` before its path."""


class _Server(ThreadingHTTPServer):
    pages: Pages


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        missing = (404, {"error": {"code": "not_found", "message": "there is nothing here"}})
        self._answer(cast("_Server", self.server).pages.get(self.path, missing))

    def do_POST(self) -> None:
        missing = (404, {"error": {"code": "not_found", "message": "there is nothing here"}})
        self._answer(cast("_Server", self.server).pages.get(f"POST {self.path}", missing))

    def _answer(self, page: Answer | Callable[[], Answer]) -> None:
        status, body = page() if callable(page) else page
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests are quiet."""


@contextlib.contextmanager
def serving_pages(pages: Pages) -> Iterator[str]:
    """Serve `pages`, which may be changed meanwhile; yields the server's URL."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.pages = pages
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
