"""Serves a browser program's pages, and the files for it to open, on a local port."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


class _Handler(http.server.SimpleHTTPRequestHandler):
    files: Mapping[str, bytes] = {}

    def do_GET(self) -> None:
        content = self.files.get(self.path)
        if content is None:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@contextmanager
def serve(pages: Path, files: Mapping[str, bytes]) -> Iterator[str]:
    """Serve a folder, and contents at paths such as ``/trace``; yield the address."""
    handler = type("Handler", (_Handler,), {"files": files})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(pages))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
