"""The one thing that every operation starts from: a project's folder, and where its apps are looked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from rekappa.config.load import FILE, Loaded, load
from rekappa.errors import ConfigError, RekappaError, RunError
from rekappa.home import Home
from rekappa.store.desk import Desk
from rekappa.store.runs import RunStore


@dataclass(frozen=True, slots=True)
class FoundApp:
    """An app of the project: its configuration as the next run would have it, or what is wrong with it."""

    name: str
    folder: Path
    loaded: Loaded | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Core:
    """Who does something (`who`), through which face, in which project. Apps stand in `folder` or just below it."""

    home: Home
    folder: Path
    who: str
    face: str

    def store(self) -> RunStore:
        return RunStore.open(self.home)

    def desk(self) -> Desk:
        return Desk.open(self.home)

    def apps(self) -> list[FoundApp]:
        """By name. Of two with one name the first that is found counts, in the order of the folders, and says so."""
        found: dict[str, FoundApp] = {}
        for file in self._files():
            one = self._found(file)
            first = found.setdefault(one.name, one)
            if first is not one:
                told = f"{one.folder} holds an app of the same name, which is not shown: rename one of them"
                found[one.name] = replace(first, problem=first.problem or told)
        return [found[name] for name in sorted(found)]

    def app(self, name: str) -> FoundApp:
        one = next((one for one in self.apps() if one.name == name), None)
        if one is None:
            raise RunError(f"Cannot find app {name!r} in {self.folder}", hint="`rekappa new NAME` makes one.")
        return one

    def loaded(self, name: str) -> Loaded:
        """The app's configuration with the overrides that are kept for its next runs; refuses one that is wrong."""
        one = self.app(name)
        if one.loaded is None:
            raise ConfigError(one.problem or f"Cannot read app {name!r}")
        return one.loaded

    def overrides(self, app: str) -> tuple[str, ...]:
        desk = Desk.found(self.home)
        return tuple(one.text for one in desk.overrides(app)) if desk else ()

    def _files(self) -> Iterator[Path]:
        for pattern in (FILE, f"*/{FILE}", f"examples/*/{FILE}"):
            yield from sorted(self.folder.glob(pattern))

    def _found(self, file: Path) -> FoundApp:
        changed = file.stat()
        bare = _read(file, (changed.st_mtime_ns, changed.st_size), ())
        overrides = self.overrides(bare.name) if bare.loaded else ()
        return _read(file, (changed.st_mtime_ns, changed.st_size), overrides) if overrides else bare


@lru_cache(maxsize=256)
def _read(file: Path, version: tuple[int, int], overrides: tuple[str, ...]) -> FoundApp:
    """Read once for each content of the file: pages are looked at more often than files are changed."""
    try:
        loaded = load(file, overrides=overrides)
    except RekappaError as error:
        told = error.message + (f" ({error.hint})" if error.hint else "")
        return FoundApp(file.parent.name, file.parent, None, told)
    return FoundApp(loaded.config.app, file.parent, loaded)
