"""Kept code: in the store, so that any machine can run it again when the app's folder has moved on, or is elsewhere.

code = keep_code(home, folder)          what `rekappa run` and `rekappa backfill` record
folder = kept_folder(home, code.hash)   the same files, months later, on another machine
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path, PurePosixPath

from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.store.code import Code, code_files, code_hash, read_code
from rekappa.store.record import Run
from rekappa.store.runs import RunStore

_ITS_TIME = (1980, 1, 1, 0, 0, 0)


def keep_code(home: Home, folder: Path, overrides: tuple[str, ...] = ()) -> Code:
    """Keep the folder's code as it is now, if it is not kept yet, and answer its identity. Never refuses."""
    code, files = read_code(folder, overrides)
    store = RunStore.open(home)
    if code.hash is not None and not store.has_code(code.hash):
        store.keep_code(code.hash, _packed(files))
    return code


def kept_files(home: Home, digest: str) -> dict[str, bytes]:
    """The kept code by path; refuses a hash that is not kept, and code that is not what its hash says."""
    packed = RunStore.open(home).code(digest)
    if packed is None:
        raise RunError(
            f"Cannot find code {digest[:12]}: the run store does not hold it",
            hint="`rekappa clean` removes code that no run needs any more.",
        )
    try:
        with zipfile.ZipFile(BytesIO(packed)) as kept:
            files = {name: kept.read(name) for name in kept.namelist()}
    except zipfile.BadZipFile:
        files = {}
    if code_hash(files) != digest:
        raise RunError(f"Cannot use code {digest[:12]}: it was changed since it was kept")
    outside = [name for name in files if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts]
    if outside:
        raise RunError(f"Cannot use code {digest[:12]}: it holds {outside[0]!r}, which is outside its folder")
    return files


def kept_folder(home: Home, digest: str) -> Path:
    """A folder with the kept code, as it was, made anew if it is not there or was touched."""
    files = kept_files(home, digest)
    folder = home.code / digest
    if folder.is_dir() and code_files(folder)[0] == files:
        return folder
    home.code.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{digest[:12]}.", dir=home.code))
    for name, content in files.items():
        file = unfinished / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        os.replace(unfinished, folder)
    except OSError:
        # Another process was quicker, with the same files.
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def folder_of(home: Home, run: Run) -> Path:
    """The app's folder; on a machine that does not have it, a folder with the code that the run began with."""
    folder = Path(run.folder)
    if (folder / "rekappa.yaml").is_file():
        return folder
    starts = RunStore.open(home).starts(run.id)
    if not starts or starts[0].code.hash is None:
        return folder
    return kept_folder(home, starts[0].code.hash)


def _packed(files: Mapping[str, bytes]) -> bytes:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        for name in sorted(files):
            out.writestr(zipfile.ZipInfo(name, _ITS_TIME), files[name], zipfile.ZIP_DEFLATED)
    return packed.getvalue()
