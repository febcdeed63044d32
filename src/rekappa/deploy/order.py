"""What is to be deployed, said once for every kind of manifest."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from rekappa.config.document import Variable, variables
from rekappa.config.load import Loaded, load, locate, shorter, text_of
from rekappa.config.overrides import PREFIX
from rekappa.config.places import UNSET
from rekappa.deploy.drivers import Driver, drivers
from rekappa.deploy.names import LONGEST, label, require_label
from rekappa.errors import ConfigError
from rekappa.storage.root import VARIABLE as STORAGE
from rekappa.store.address import VARIABLE

GIVEN = (VARIABLE, STORAGE, "REKAPPA_HOME", "XDG_CACHE_HOME")
"""Variables that every manifest takes care of itself."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Order:
    """One app and the processes it needs. `folder` is where the app will be; `variables` are what its environment
    must bring, by name: no value of any of them is kept here. `console`: with the app's console beside them."""

    loaded: Loaded
    name: str
    folder: str | None
    drivers: tuple[Driver, ...]
    variables: tuple[Variable, ...]
    console: bool = False

    @property
    def app(self) -> str:
        return self.loaded.config.app

    def words(self, driver: Driver, folder: str, settings: Sequence[str] = ()) -> list[str]:
        """The command after `rekappa`: what the person set by --set goes with it."""
        told = [word for override in self.loaded.overrides for word in ("--set", override)]
        return [*driver.words, folder, *told, *settings]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was written: the text of each file, and what a person should know before using it."""

    files: Mapping[str, str]
    notes: tuple[str, ...] = ()
    variables: tuple[Variable, ...] = field(default=())


def make_order(
    app: str | Path,
    *,
    overrides: Sequence[str] = (),
    name: str | None = None,
    folder: str | None = None,
    secrets: Sequence[str] = (),
    console: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Order:
    """Read the app's configuration. A variable that is not set here is no obstacle: it is only named."""
    here = os.environ if environ is None else environ
    file = locate(app)
    named = variables(text_of(file), shorter(file))
    unset = {one.name: f"{one.name}{UNSET}" for one in named if not one.optional and one.name not in here}
    loaded = load(file, overrides=overrides, environ={**here, **unset})
    above = [Variable(_key(one), False) for one in sorted(here) if one.upper().startswith(PREFIX)]
    asked = [Variable(_name(one), False) for one in secrets]
    needed = {one.name: one for one in [*named, *above, *asked] if one.name not in GIVEN}
    chosen = label(loaded.config.app) if name is None else require_label(name, "--name", LONGEST)
    if folder is not None:
        _require_whole(folder)
    return Order(loaded, chosen, folder, drivers(loaded), tuple(needed.values()), console)


def _key(name: str) -> str:
    """The name of a variable that is set here; refuses one that no manifest can write."""
    if not _NAME.match(name):
        raise ConfigError(
            f"Cannot write a manifest with the variable {name!r}: the name of a variable has letters, digits and _",
            hint="Say it by --set, or in rekappa.yaml, and unset the variable.",
        )
    return name


def _require_whole(folder: str) -> None:
    """Refuse what names another folder there, or none: a part of a path, a way up, a line's end."""
    path = PurePosixPath(folder)
    if not path.is_absolute() or ".." in path.parts or not folder.isprintable():
        raise ConfigError(
            f"Cannot use --folder {folder!r}: it must be a whole path, without ..", hint="For example --folder /srv/APP"
        )


def _name(text: str) -> str:
    """A variable's name; the text is not repeated if it is none, since it may be the secret itself."""
    if not _NAME.match(text):
        raise ConfigError(
            "Cannot use --secret: it takes the name of an environment variable, never its value",
            hint="For example --secret PGPASSWORD",
        )
    return text
