"""Where the jars are: `jars("spark")` beside PySpark's own, `jars("broker")` for Kafka, `jars("s3a")` for S3.

They are declared in ivy.xml, downloaded at first use, kept per user and checked on each use.
`REKAPPA_JARS` names a folder with `spark/`, `broker/` and, if used, `s3a/` instead; then nothing is downloaded.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rekappa.errors import SetupError
from rekappa.jvm import manifest
from rekappa.jvm.cache import cache_folder
from rekappa.jvm.ivy import TYPES, declared, retrieve

IVY_FILE = Path(__file__).with_name("ivy.xml")
CONFS = ("spark", "broker")
"""What everybody needs; any other configuration is fetched when it is first asked for."""


def jars(conf: str) -> list[Path]:
    """The jars of one configuration of our ivy.xml, sorted by name."""
    given = os.environ.get("REKAPPA_JARS")
    return _given(Path(given), conf) if given else resolve(IVY_FILE, CONFS if conf in CONFS else (conf,))[conf]


def resolve(ivy_file: Path, confs: Sequence[str], types: Sequence[str] = TYPES) -> dict[str, list[Path]]:
    """Each configuration's files, from the per-user cache or else through Ivy, with a line on stderr while it works.

    Processes that ask at the same time wait for the one that downloads. A file that was damaged or removed since
    is fetched again.
    """
    name = hashlib.sha256(ivy_file.read_bytes() + repr((sorted(confs), sorted(types))).encode()).hexdigest()[:16]
    folder = cache_folder() / "jars" / name
    if not _intact(folder):
        with _alone():
            if not _intact(folder):
                _fill(folder, ivy_file, confs, types)
    return {conf: sorted((folder / conf).iterdir()) if (folder / conf).is_dir() else [] for conf in confs}


def _given(folder: Path, conf: str) -> list[Path]:
    """The jars of a folder that the user points at; refuses when one that ivy.xml names is not there."""
    found = sorted((folder / conf).glob("*.jar"))
    missing = sorted(set(declared(IVY_FILE, conf)) - {jar.name for jar in found})
    if missing:
        raise SetupError(
            f"Cannot use REKAPPA_JARS={folder}: {folder / conf} lacks {', '.join(missing)}",
            hint="copy them there, or unset REKAPPA_JARS to download them",
        )
    return found


def _intact(folder: Path) -> bool:
    known = manifest.read(folder)
    return known is not None and not manifest.damaged(folder, known)


def _fill(folder: Path, ivy_file: Path, confs: Sequence[str], types: Sequence[str]) -> None:
    """Resolve into a new folder beside the old one, then put it in its place."""
    known = manifest.read(folder)
    began = time.monotonic()
    _say(f"a cached jar was damaged, resolving {folder.name} again" if known else "resolving jars, once per user …")
    ivy_cache = cache_folder() / "ivy"
    fresh = Path(tempfile.mkdtemp(prefix="new-", dir=folder.parent))
    try:
        retrieve(ivy_file, confs, fresh, ivy_cache, types)
        found = manifest.survey(fresh)
        if known is not None and not manifest.same_content(known, found):
            # Ivy's own copy may be the damaged one.
            shutil.rmtree(fresh)
            shutil.rmtree(ivy_cache, ignore_errors=True)
            retrieve(ivy_file, confs, fresh, ivy_cache, types)
            found = manifest.survey(fresh)
        manifest.write(fresh, found)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    size = sum(entry.size for entry in found.values()) / 1e6
    _say(f"{len(found)} jars, {size:.0f} MB, in {time.monotonic() - began:.0f} s: {folder}")


@contextmanager
def _alone() -> Iterator[None]:
    folder = cache_folder() / "jars"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(message: str) -> None:
    print(f"rekappa: {message}", file=sys.stderr, flush=True)
