"""The project folder `.rekappa`: everything that rekappa keeps on this machine, and where it keeps the rest.

`REKAPPA_HOME` names it; without that it is the nearest `.rekappa` at or above the current folder,
or a new one in the current folder.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from rekappa.errors import RunError
from rekappa.storage.location import Location
from rekappa.storage.root import storage_root

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def local_uri(path: Path) -> str:
    """A local folder as Hadoop reads it: it does not decode `%20`, so the path stands there as it is."""
    return f"file:{path.absolute()}"


@dataclass(frozen=True, slots=True)
class Home:
    root: Path

    @classmethod
    def locate(cls, start: Path | None = None) -> Home:
        named = os.environ.get("REKAPPA_HOME")
        if named:
            return cls(Path(named).resolve())
        here = (start or Path.cwd()).resolve()
        for folder in (here, *here.parents):
            if (folder / ".rekappa").is_dir():
                return cls(folder / ".rekappa")
        return cls(here / ".rekappa")

    def made(self) -> Home:
        """The same folder, there now and closed to everybody but its owner, whatever is written into it later.

        Called before anything is written: passwords can stand in what is kept of overrides and in logs, and events are
        somebody's data.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.root.stat()
        if found.st_mode & 0o077 and found.st_uid == os.geteuid():
            self.root.chmod(stat.S_IMODE(found.st_mode) & ~0o077)
        return self

    def existing(self) -> Home:
        """The same folder, for those who only look: refuses one that is not there."""
        if not self.root.is_dir():
            raise RunError(
                f"Cannot find a project in {self.root.parent}",
                hint="Go to the folder in which you ran rekappa, name its .rekappa with REKAPPA_HOME, or the store of "
                "your team with REKAPPA_STORE.",
            )
        return self

    def address(self, path: str) -> str:
        """A path that a person wrote, as Spark reads it: one without a scheme is on this machine's disk, from the
        folder that holds the project's, whatever the default file system is."""
        return path if _SCHEME.match(path) else local_uri(self.root.parent / path)

    @property
    def stack(self) -> Path:
        """The broker's data, configuration, log and `stack.json`."""
        return self.root / "stack"

    @property
    def catalog(self) -> Path:
        """The SQLite file of the local Iceberg catalog, shared by Spark and PyIceberg."""
        return self.root / "catalog.db"

    @property
    def warehouse(self) -> Path:
        return self.root / "warehouse"

    @property
    def store(self) -> Path:
        """The run store, unless the project uses that of a team."""
        return self.root / "runs.db"

    @property
    def store_address(self) -> Path:
        """A file with the address of the team's run store, where there is one."""
        return self.root / "store"

    @property
    def code(self) -> Path:
        """The code that runs ran, once per content."""
        return self.root / "code"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def storage(self) -> Location:
        """The root of what a cluster and the next machine must see: this folder, unless the project names another."""
        return storage_root(self.root)

    def checkpoint(self, app: str, run: str) -> Location:
        """Where one run keeps its checkpoints and plan. Never shared between runs."""
        return self.storage / "checkpoints" / app / run

    def savepoints(self, app: str) -> Location:
        """Where an app's checkpoints that are kept by name are, one folder for each."""
        return self.storage / "savepoints" / app

    def answers(self, app: str, lookup: str) -> Location:
        """Where what a service answered lies until it is in the record."""
        return self.storage / "answers" / app / lookup
