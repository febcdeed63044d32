"""What answers at a registry's address may be anything: a login page, another service."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from rekappa.errors import SourceError
from rekappa.sources.payloads.registry import RegistryPlace, newest


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *words: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "body", [b"[1]", b'{"id": "x", "schema": "{"}', b"<html>Log in", b'{"id": 3}', b'{"schema": "{}"}', b"null"]
)
def test_what_is_no_registry_is_named(body: bytes) -> None:
    with answering(body) as url, pytest.raises(SourceError, match="what answers there is no schema registry"):
        newest(RegistryPlace(url), "clicks-value")
