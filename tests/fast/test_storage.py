"""Where a project's storage root is, and what a location promises."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_contract import keeps_the_contract

from rekappa.errors import ConfigError, RunError
from rekappa.home import Home
from rekappa.storage.location import Location
from rekappa.storage.root import VARIABLE, parse_location, storage_root
from rekappa.storage.systems import S3Files


def test_the_project_folder_is_the_storage_root_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    assert home.checkpoint("app", "run").uri == f"file:{tmp_path}/checkpoints/app/run"
    (tmp_path / "storage").write_text("s3a://bucket/team\n")
    assert home.checkpoint("app", "run").uri == "s3a://bucket/team/checkpoints/app/run"
    monkeypatch.setenv(VARIABLE, "/mnt/shared folder")
    assert home.checkpoint("app", "run").uri == "file:/mnt/shared folder/checkpoints/app/run"


def test_an_object_store_is_told_to_spark_as_the_address_says() -> None:
    root = parse_location("s3://bucket/a/b/?endpoint=http://127.0.0.1:9000&region=eu-west-1")
    assert (str(root), root.storage.jars) == ("s3a://bucket/a/b", "s3a")
    assert root.storage.hadoop() == {
        "fs.s3a.bucket.bucket.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.bucket.bucket.connection.ssl.enabled": "false",
        "fs.s3a.bucket.bucket.endpoint.region": "eu-west-1",
        "fs.s3a.bucket.bucket.path.style.access": "true",
    }
    assert parse_location("s3a://bucket").storage == S3Files("bucket")
    assert parse_location("s3a://bucket").storage.hadoop() == {"fs.s3a.bucket.bucket.path.style.access": "false"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s3a://", "Cannot use the storage of REKAPPA_STORAGE: 's3a://'"),
        ("relative/folder", "is no absolute path"),
        ("ftp://host/folder", "Cannot use the storage"),
        ("hdfs://host/folder?user=me", "hdfs takes no parameters"),
        ("s3a://bucket/a?endpoint=minio:9000", "endpoint 'minio:9000' is no address"),
        ("s3a://bucket/a?key=abc", "unknown parameter 'key'"),
        ("s3a://bucket/a?path-style=maybe", "path-style is 'maybe'"),
    ],
)
def test_what_is_no_root_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        storage_root(tmp_path, {VARIABLE: text})
    assert said in refused.value.message
    assert refused.value.hint


def test_hadoops_file_systems_need_spark() -> None:
    root = parse_location("hdfs://namenode:8020/team/runs/")
    assert (root / "a").uri == "hdfs://namenode:8020/team/runs/a"
    with pytest.raises(RunError, match="Cannot look into hdfs://namenode:8020 without Spark"):
        root.exists()


@pytest.mark.parametrize(
    "text",
    [
        "s3a://AKIA:hunter2@bucket/a",
        "s3a://bucket/a?endpoint=http://u:hunter2@127.0.0.1:1&region=eu-west-1",
        "s3a://bucket/a?endpoint=http%3A%2F%2Fu%3Ahunter2%40minio",
        "s3a://bucket/a?endpoint=https://hunter2@minio",
        "s3a://bucket/a?endpoint=u:hunter2@minio:9000",
        "s3a://bucket/a?secret_key=hunter2",
        "ftp:/me:hunter2@host/a",
    ],
)
def test_keys_in_an_address_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_location(text)
    assert "hunter2" not in refused.value.message + (refused.value.hint or "")
    for sound in ("abfss://container@account.dfs.core.windows.net/a", "/mnt/me:you@home", "s3a://bucket/a@b"):
        parse_location(sound)


def test_a_file_is_no_root(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"{tmp_path}/file is no folder"):
        parse_location(f"{tmp_path}/file")


@pytest.fixture
def logged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys at hand: without any, S3's client would look for a machine that gives it some."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hunter2hunter2")


@contextmanager
def answering(status: int, code: str) -> Iterator[int]:
    """The port of what answers everything as S3 refuses."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [(403, "InvalidAccessKeyId", "INVALID_ACCESS_KEY_ID"), (404, "NoSuchBucket", "there is no such bucket")],
)
def test_an_object_store_that_refuses_is_named_with_its_setting(
    logged_in: None, status: int, code: str, said: str
) -> None:
    with answering(status, code) as port:
        root = parse_location(f"s3a://bucket/a?endpoint=http://127.0.0.1:{port}&region=eu-west-1")
        with pytest.raises(RunError, match="Cannot use the storage at s3a://bucket/a/points: ") as refused:
            (root / "points").names()
    assert said in refused.value.message
    assert "REKAPPA_STORAGE" in (refused.value.hint or "")
    assert "hunter2" not in refused.value.message


def test_a_disk_keeps_the_contract(location: Location) -> None:
    keeps_the_contract(location / "new")


@given(st.binary(max_size=5000), st.binary(max_size=5000))
def test_a_write_that_fails_leaves_what_was_there(first: bytes, second: bytes) -> None:
    import tempfile
    from unittest.mock import patch

    with tempfile.TemporaryDirectory() as folder:
        file = Location.local(Path(folder)) / "file"
        file.write(first)
        with patch("os.fsync", side_effect=OSError("full")), pytest.raises(OSError, match="full"):
            file.write(second)
        assert (file.read_bytes(), Location.local(Path(folder)).names()) == (first, ["file"])


def test_a_file_where_a_folder_belongs_is_named(location: Location) -> None:
    (location / "plays").write("not a folder")
    with pytest.raises(RunError, match="plays: it is a file where a folder belongs"):
        list((location / "plays").files())
