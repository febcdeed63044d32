"""Every other file system that Hadoop knows (hdfs:, abfs:, gs: ...), through the JVM that Spark runs in.

PyArrow's own HDFS needs Hadoop's native library on the machine; the classes that Spark itself uses are there whenever
Spark is, with the same settings and logins. So these can be looked at only while Spark runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType, PyFileSystem

from rekappa.errors import RunError
from rekappa.storage.systems import Storage
from rekappa.timeline import EPOCH

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


@dataclass(frozen=True, slots=True)
class HadoopFiles(Storage):
    """`root` is scheme and authority, like hdfs://namenode:8020; paths are absolute below it."""

    root: str

    def files(self) -> FileSystem:
        return _opened(self.root)

    def uri(self, path: str) -> str:
        return f"{self.root}{path}"

    def put(self, path: str, content: bytes) -> None:
        handler = _Handler(self.root)
        unfinished = f"{path.rpartition('/')[0]}/.{path.rpartition('/')[2]}.{uuid4().hex}.tmp"
        handler.write(unfinished, content)
        handler.replace(unfinished, path)

    def share(self, source: str, target: str) -> None:
        handler = _Handler(self.root)
        handler.write(target, handler.read(source))


@lru_cache(maxsize=8)
def _opened(root: str) -> FileSystem:
    return PyFileSystem(_Handler(root))


class _Handler(FileSystemHandler):  # type: ignore[misc]  # PyArrow carries no types
    """What PyArrow asks of a file system, answered by Hadoop's. The JVM is asked for each time: it may be a new one."""

    def __init__(self, root: str) -> None:
        self.root = root

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Handler) and other.root == self.root

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        return "hadoop"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        return [self._looked_up(path) for path in paths]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        found: list[FileInfo] = []
        waiting = [selector.base_dir]
        while waiting:
            folder = waiting.pop()
            try:
                with _missing_told():
                    entries = list(self._fs().listStatus(self._path(folder)))
            except FileNotFoundError:
                if folder == selector.base_dir and not selector.allow_not_found:
                    raise
                continue
            for status in entries:
                path = f"{folder.rstrip('/')}/{status.getPath().getName()}"
                found.append(self._info(status, path))
                if selector.recursive and status.isDirectory():
                    waiting.append(path)
        return found

    def open_input_file(self, path: str) -> Any:
        from pyarrow import BufferReader

        return BufferReader(self.read(path))

    def delete_file(self, path: str) -> None:
        self._fs().delete(self._path(path), False)

    def delete_dir(self, path: str) -> None:
        self._fs().delete(self._path(path), True)

    open_input_stream = open_input_file

    def unused(self, *asked: Any, **more: Any) -> Any:
        """What no location asks for."""
        raise NotImplementedError

    create_dir = delete_dir_contents = delete_root_dir_contents = move = copy_file = unused
    open_output_stream = open_append_stream = unused

    def read(self, path: str) -> bytes:
        with _missing_told():
            stream = self._fs().open(self._path(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, path: str, content: bytes) -> None:
        stream = self._fs().create(self._path(path), True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def replace(self, path: str, target: str) -> None:
        """Rename over what is there: in one step where the file system has such a one."""
        spark, jvm = self._spark(), self._spark()._jvm
        where = jvm.java.net.URI(f"{self.root}/")
        context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(where, spark._jsc.hadoopConfiguration())
        how = jvm.org.apache.hadoop.fs.Options.Rename
        options = spark._gateway.new_array(how, 1)
        options[0] = how.OVERWRITE
        context.rename(self._path(path), self._path(target), options)

    def _looked_up(self, path: str) -> FileInfo:
        try:
            with _missing_told():
                return self._info(self._fs().getFileStatus(self._path(path)), path)
        except FileNotFoundError:
            return FileInfo(path, FileType.NotFound)

    def _info(self, status: Any, path: str) -> FileInfo:
        if status.isDirectory():
            return FileInfo(path, FileType.Directory)
        moment: datetime = EPOCH + timedelta(milliseconds=status.getModificationTime())
        return FileInfo(path, FileType.File, size=status.getLen(), mtime=moment.astimezone(UTC))

    def _path(self, path: str) -> Any:
        return self._spark()._jvm.org.apache.hadoop.fs.Path(f"{self.root}{path}")

    def _fs(self) -> Any:
        return self._path("/").getFileSystem(self._spark()._jsc.hadoopConfiguration())

    def _spark(self) -> Any:
        from pyspark import SparkContext

        active: Any = SparkContext._active_spark_context
        if active is None:
            raise RunError(
                f"Cannot look into {self.root} without Spark: it is Hadoop that knows how",
                hint="Ask with a command that starts Spark, or keep runs on a disk or in S3.",
            )
        return active


@contextmanager
def _missing_told() -> Iterator[None]:
    """A file that is not there, in Python's words."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() == "FileNotFoundException":
            raise FileNotFoundError(str(error.java_exception.getMessage())) from None
        raise
