"""Which code a run runs: what belongs to it, and what it is called.

The identity is a hash of the folder's code and configuration: two folders with the same files are the same code, on
any machine. Left out are what Python and editors leave behind, documents, data and secrets; a secret
that stands in rekappa.yaml is masked in what is kept.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rekappa.masking import hidden, is_secret_name
from rekappa.version import __version__

MOST_OF_A_FILE = 2 << 20
"""A larger file is taken for data and left out; the record names it."""
MOST_OF_ALL = 32 << 20
"""A folder with more than this is not kept: it is no app's folder, but one that holds an app among other things."""

_LEFT_OUT_FOLDERS = ("__pycache__", "node_modules", "venv", "build", "dist", "*.egg-info", "spark-warehouse")
_LEFT_OUT_FILES = (
    "*.pyc", "*.pyo", "*.so", "*.jar", "*.whl",
    "*.md", "*.rst", "*.ipynb", "*.html", "*.svg", "*.png", "*.jpg", "*.pdf", "*.log", "*.tmp", "*.swp", "*~",
    "*.parquet", "*.orc", "*.avro", "*.arrow", "*.feather", "*.db", "*.sqlite", "*.gz", "*.zip", "*.tar", "*.zst",
)  # fmt: skip
_SECRET_FILES = (
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.truststore", "*.crt", "*.keytab", "id_*",
    "*secret*", "*credential*", "*password*", "*.env",
)  # fmt: skip
_ENTRY = re.compile(
    r"""(?P<before>(?P<name>[\w.\-]+)["']?\s*:[ \t]+)(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s,}#{\[&*|>][^,}\n#]*)"""
)
_BLOCK = re.compile(
    r"""(?m)^(?P<before>(?P<room>[ ]*)["']?(?P<name>[\w.\-]+)["']?\s*:[ \t]+)"""
    r"""(?P<value>[|>][^\n]*(?:\n(?:(?P=room)[ ]+[^\n]*|[ ]*(?=\n)))+)"""
)
_CONFIGURATION = ("rekappa.yaml", "rekappa.yml")


@dataclass(frozen=True, slots=True)
class Code:
    """What ran. `hash` is None when the folder could not be kept; `reason` says why.

    `commit` is git's, None outside a work tree; `dirty` says that the folder had changes which that commit lacks.
    """

    hash: str | None
    commit: str | None = None
    dirty: bool | None = None
    rekappa: str = ""
    spark: str = ""
    left_out: tuple[str, ...] = ()
    reason: str | None = None
    overrides: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Code:
        known = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        made = cls(**known)
        return replace(made, left_out=tuple(made.left_out), overrides=tuple(made.overrides))

    def __str__(self) -> str:
        short = self.hash[:12] if self.hash else f"not kept: {self.reason}"
        git = f", commit {self.commit[:12]}{' with changes' if self.dirty else ''}" if self.commit else ""
        return f"{short}{git}"


def read_code(folder: Path, overrides: tuple[str, ...] = ()) -> tuple[Code, dict[str, bytes]]:
    """The folder's code as it is now, and which code that is. Never refuses."""
    files, left_out, reason = code_files(folder)
    commit, dirty = _git(folder)
    digest = code_hash(files) if reason is None else None
    return Code(digest, commit, dirty, __version__, version("pyspark"), left_out, reason, overrides), files


def code_hash(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(files):
        for part in (name.encode(), files[name]):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()[:32]


def code_files(folder: Path) -> tuple[dict[str, bytes], tuple[str, ...], str | None]:
    """The files to keep, those that were left out for their size or as secrets, and why nothing can be kept."""
    found: dict[str, bytes] = {}
    left_out: list[str] = []
    whole = 0
    for file in _walk(folder):
        name = file.relative_to(folder).as_posix()
        try:
            size = file.stat().st_size
            if _secret(file.name) or size > MOST_OF_A_FILE:
                left_out.append(name)
                continue
            content = file.read_bytes()
        except OSError as error:
            left_out.append(f"{name} ({error.strerror})")
            continue
        whole += len(content)
        if whole > MOST_OF_ALL:
            return {}, (), f"the app's folder holds more than {MOST_OF_ALL >> 20} MB of code and configuration"
        found[name] = _masked(content) if name in _CONFIGURATION else content
    return found, tuple(left_out), None


def _walk(folder: Path) -> Iterator[Path]:
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _matches(name, _LEFT_OUT_FOLDERS))
        yield from (Path(at) / name for name in sorted(names) if not _matches(name, _LEFT_OUT_FILES))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return name.startswith(".") or any(fnmatch(name.lower(), pattern) for pattern in patterns)


def _secret(name: str) -> bool:
    return not name.endswith(".py") and any(fnmatch(name.lower(), pattern) for pattern in _SECRET_FILES)


def _masked(content: bytes) -> bytes:
    """Without the secrets that stand in it; what is taken from the environment (`${NAME}`) stands there by name."""
    text = content.decode("utf-8", errors="surrogateescape")
    for kind in (_BLOCK, _ENTRY):
        text = kind.sub(_masked_entry, text)
    lines = (line if "${" in line else hidden(line) for line in text.split("\n"))
    return "\n".join(lines).encode("utf-8", errors="surrogateescape")


def _masked_entry(found: re.Match[str]) -> str:
    secret = is_secret_name(found["name"]) and "${" not in found["value"]
    return f'{found["before"]}"***"' if secret else found[0]


def _git(folder: Path) -> tuple[str | None, bool | None]:
    commit = _ask_git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None, None
    changed = _ask_git(folder, "status", "--porcelain", "--", ".")
    return commit, None if changed is None else bool(changed)


def _ask_git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
