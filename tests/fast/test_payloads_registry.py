"""What answers at a registry's address may be anything, and what it did not know it may know a moment later."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from rekappa.errors import SourceError
from rekappa.sources.payloads.avro import AvroPayload
from rekappa.sources.payloads.columns import by_block
from rekappa.sources.payloads.registry import RegistryPlace, newest
from rekappa.sources.payloads.wire import framed


@contextmanager
def answering(answer: Callable[[str], tuple[int, bytes]]) -> Iterator[str]:
    """A server that answers a path with a status and a body."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer(self.path)
            self.send_response(status)
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
    with (
        answering(lambda path: (200, body)) as url,
        pytest.raises(SourceError, match="what answers there is no schema registry"),
    ):
        newest(RegistryPlace(url), "clicks-value")


RECORD = {"type": "record", "name": "click", "fields": [{"name": "id", "type": "long"}]}


def written(schema_id: int, number: int) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, RECORD, {"id": number})
    return framed(schema_id, out.getvalue())


def test_a_schema_that_is_registered_late_is_found_by_the_next_block_and_asked_for_once_in_each() -> None:
    known: dict[str, str] = {"/schemas/ids/1": json.dumps(RECORD)}
    asked: list[str] = []

    def answer(path: str) -> tuple[int, bytes]:
        asked.append(path)
        found = known.get(path)
        if found is None:
            return 404, b'{"error_code": 40403, "message": "no such schema"}'
        return 200, json.dumps({"schema": found}).encode()

    with answering(answer) as url:
        decode = by_block(AvroPayload(RegistryPlace(url), None), StructType([StructField("id", LongType())]), "why")

        def block() -> list[Any]:
            messages = [message for n in range(50) for message in (written(1, n), written(7, n))]
            return list(decode(pa.array(messages, pa.binary())).to_pylist())

        first, second = block(), block()
        assert [row["id"] for row in first[::2]] == list(range(50))
        assert {row["why"] for row in first[1::2]} == {"unknown schema id 7"} == {row["why"] for row in second[1::2]}
        assert sorted(asked) == ["/schemas/ids/1", "/schemas/ids/7", "/schemas/ids/7"]
        known["/schemas/ids/7"] = json.dumps(RECORD)
        assert [row["id"] for row in block()[1::2]] == list(range(50))
        block()
        assert len(asked) == 4, "what is known is not asked for again"


@pytest.mark.parametrize("text", ["{", "not JSON", '"nobody.knows.this"', '{"type": "record"}', "[" * 3000])
def test_a_schema_that_nobody_can_read_is_the_messages_fault(text: str) -> None:
    with answering(lambda path: (200, json.dumps({"schema": text}).encode())) as url:
        decode = by_block(AvroPayload(RegistryPlace(url), None), StructType([StructField("id", LongType())]), "why")
        (row,) = decode(pa.array([written(1, 1)], pa.binary())).to_pylist()
    assert row["id"] is None
    assert "its schema can't be read" in row["why"]
