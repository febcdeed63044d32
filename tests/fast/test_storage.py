"""Where a project's storage root is, and what a location promises."""

from __future__ import annotations

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


def test_keys_in_an_address_are_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_location("s3a://AKIA:hunter2@bucket/a")
    assert "hunter2" not in refused.value.message + (refused.value.hint or "")


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
