"""The file systems that a storage root can be on, each through PyArrow, and told to Spark.

PyArrow's are a dependency already and answer in milliseconds without a JVM, so that commands that only look need no
Spark. What an address says of its store (endpoint, region) is told to both, so it is said once; keys are taken by both
from where that store's own tools take them.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


class Storage(ABC):
    """One file system. Values: two that mean the same are equal."""

    jars: str | None = None
    """The configuration of ivy.xml that Spark needs to reach it, if any."""

    @abstractmethod
    def files(self) -> FileSystem:
        """PyArrow's view of it; the same object each time."""

    @abstractmethod
    def uri(self, path: str) -> str:
        """A path as Hadoop, and so Spark, reads it."""

    @abstractmethod
    def put(self, path: str, content: bytes) -> None:
        """Write a file with its folders, whole or not at all."""

    def share(self, source: str, target: str) -> None:
        """Make a finished file known by a second path, at the least cost. Raises FileNotFoundError."""
        self.files().copy_file(source, target)

    def is_missing(self) -> bool:
        """Whether it says that all of it, and not only a folder, is not there."""
        return False

    def shown(self, path: str) -> str:
        """A path for people."""
        return self.uri(path)

    def hadoop(self) -> Mapping[str, str]:
        """What Hadoop must be told to reach it."""
        return {}


@dataclass(frozen=True, slots=True)
class LocalFiles(Storage):
    """A disk that this machine mounts."""

    def files(self) -> FileSystem:
        return _local()

    def uri(self, path: str) -> str:
        # Hadoop does not decode `%20`: the path stands there as it is.
        return f"file:{path}"

    def shown(self, path: str) -> str:
        return path

    def put(self, path: str, content: bytes) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
        try:
            with unfinished.open("xb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            os.replace(unfinished, target)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    def share(self, source: str, target: str) -> None:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError:
            # A file system without hard links, or another one.
            shutil.copy2(source, target)


@dataclass(frozen=True, slots=True)
class S3Files(Storage):
    """S3, or a store that speaks its protocol. Keys come from the environment or the machine's role."""

    jars = "s3a"
    bucket: str
    endpoint: str | None = None
    region: str | None = None
    path_style: bool = False

    def files(self) -> FileSystem:
        return _s3(self)

    def uri(self, path: str) -> str:
        return f"s3a://{path}"

    def put(self, path: str, content: bytes) -> None:
        # An object appears when its upload ends; a process that is killed before leaves none.
        # As it is: by default PyArrow would compress what is called .gz once more.
        with self.files().open_output_stream(path, compression=None) as out:
            out.write(content)

    def share(self, source: str, target: str) -> None:
        try:
            self.files().copy_file(source, target)
        except OSError:
            if self.files().get_file_info(source).is_file:
                raise
            raise FileNotFoundError(self.uri(source)) from None

    def is_missing(self) -> bool:
        try:
            return bool(self.files().get_file_info(self.bucket).type.name == "NotFound")
        except OSError:
            # Who may list a folder need not be allowed to ask about the bucket.
            return False

    def hadoop(self) -> Mapping[str, str]:
        told = {"path.style.access": "true" if self.path_style else "false"}
        if self.endpoint:
            told["endpoint"] = self.endpoint
            told["connection.ssl.enabled"] = "false" if self.endpoint.startswith("http:") else "true"
        if self.region:
            told["endpoint.region"] = self.region
        # Of this bucket alone: those of tables may be elsewhere.
        return {f"fs.s3a.bucket.{self.bucket}.{key}": value for key, value in told.items()}


@lru_cache(maxsize=1)
def _local() -> FileSystem:
    from pyarrow.fs import LocalFileSystem

    return LocalFileSystem()


@lru_cache(maxsize=8)
def _s3(storage: S3Files) -> FileSystem:
    from pyarrow.fs import S3FileSystem

    at = urlsplit(storage.endpoint or "")
    return S3FileSystem(
        endpoint_override=at.netloc or None,
        scheme=at.scheme or "https",
        region=storage.region,
        force_virtual_addressing=bool(storage.endpoint) and not storage.path_style,
    )
