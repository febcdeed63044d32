"""A folder of jars and the proof that it is still what was downloaded.

The manifest holds each file's SHA-256. Checking it on every start would read a hundred megabytes, so size and
modification time are kept as well: only a file whose time changed is read again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

VERSION = 1
NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class JarEntry:
    sha256: str
    size: int
    mtime_ns: int


Manifest = dict[str, JarEntry]


def digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def survey(folder: Path) -> Manifest:
    """What is in the folder now, read in full."""
    found = {}
    for file in sorted(folder.glob("*/*")):
        stat = file.stat()
        found[file.relative_to(folder).as_posix()] = JarEntry(digest(file), stat.st_size, stat.st_mtime_ns)
    return found


def write(folder: Path, manifest: Manifest) -> None:
    entries = {
        name: {"sha256": entry.sha256, "size": entry.size, "mtime_ns": entry.mtime_ns}
        for name, entry in manifest.items()
    }
    fresh = folder / f"{NAME}.new"
    fresh.write_text(json.dumps({"version": VERSION, "files": entries}, indent=1) + "\n")
    fresh.replace(folder / NAME)


def read(folder: Path) -> Manifest | None:
    """The manifest of a folder; None when there is none that this version can use."""
    try:
        data = json.loads((folder / NAME).read_text())
        if data["version"] != VERSION:
            return None
        return {name: JarEntry(**entry) for name, entry in data["files"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def damaged(folder: Path, manifest: Manifest) -> list[str]:
    """The files that are gone or no longer what the manifest says."""
    wrong = []
    for name, entry in manifest.items():
        file = folder / name
        try:
            stat = file.stat()
        except OSError:
            wrong.append(name)
            continue
        if stat.st_size != entry.size or (stat.st_mtime_ns != entry.mtime_ns and digest(file) != entry.sha256):
            wrong.append(name)
    return wrong


def same_content(one: Manifest, other: Manifest) -> bool:
    return {name: entry.sha256 for name, entry in one.items()} == {name: entry.sha256 for name, entry in other.items()}
