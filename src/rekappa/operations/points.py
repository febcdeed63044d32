"""Savepoints and rewinds as changes that a person asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rekappa.checkpoints.savepoints import require_name
from rekappa.errors import RunError
from rekappa.operations.changes import AskedChange, sets
from rekappa.operations.core import Core
from rekappa.recovery.choose import parse_to
from rekappa.store.record import Kind


def savepoint_change(core: Core, app: str, name: str = "") -> AskedChange:
    """`rekappa savepoint take APP [NAME]`."""
    loaded = core.loaded(app)
    if name:
        require_name(name)
    words = ("savepoint", "take", str(loaded.folder), *((name,) if name else ()), *sets(loaded.overrides), "--json")
    tells = ("Keeps the newest committed batch of every query under a name. The run goes on meanwhile.",)
    return AskedChange("savepoint", f"Take a savepoint of {app}", words, tells, app)


def drop_change(core: Core, app: str, name: str) -> AskedChange:
    """`rekappa savepoint drop APP NAME`."""
    require_name(name)
    words = ("savepoint", "drop", str(core.loaded(app).folder), name, "--json")
    tells = (f"Savepoint {name!r} is forgotten. What the run itself still has stays.",)
    return AskedChange("drop savepoint", f"Drop savepoint {name} of {app}", words, tells, app, grave=True)


@dataclass(frozen=True, slots=True)
class RestartFrom:
    """Where to restart from: a batch or moment, a savepoint by name, one taken now (`new`), or no state (`nothing`)."""

    to: str = ""
    savepoint: str = ""
    new: bool = False
    nothing: bool = False

    def words(self) -> tuple[str, ...]:
        """The options of `rekappa rewind`; refuses unless it is exactly one of the four, and one that can be."""
        told = [
            *([f"--to={self.to}"] if self.to else []),
            *([f"--savepoint={self.savepoint}"] if self.savepoint else []),
            *(["--new-savepoint"] if self.new else []),
            *(["--no-state"] if self.nothing else []),
        ]
        if len(told) != 1:
            raise RunError("Cannot restart the job: choose one point to restart it from")
        if self.to:
            parse_to(self.to)
        if self.savepoint:
            require_name(self.savepoint)
        return tuple(told)


def rewind_change(
    core: Core, app: str, point: RestartFrom, *, with_it: Sequence[str] = (), dry: bool = False
) -> AskedChange:
    """`rekappa rewind APP`; dry, only what it would do. `with_it` are the apps that are rewound with it."""
    loaded = core.loaded(app)
    told = (*point.words(), *(("--cascade",) if with_it else ()), *sets(loaded.overrides))
    if dry:
        words = ("rewind", str(loaded.folder), *told, "--dry-run", "--json")
        return AskedChange("", f"What a rewind of {app} would do", words, (), app)
    live = next(iter(core.store().page(1, app=app, kind=Kind.LIVE)), None)
    if live is not None and live.state.going and not with_it:
        raise RunError(f"Cannot rewind {app!r}: run {live.id} is going", hint="Stop it first.")
    stopped = f"{app}, {', '.join(with_it)} are stopped first." if with_it else "It must be stopped."
    tells = (
        "The job goes on as a new run from that point. What the abandoned batches wrote is taken out of its sinks.",
        *(
            ("The others go back to their last point before the first message that no longer counts.",)
            if with_it
            else ()
        ),
        f"{stopped} Afterwards, start it; the old run is kept, and `rekappa rewind --undo` goes back to it.",
    )
    words = ("rewind", str(loaded.folder), *told, "--yes", "--json")
    return AskedChange("rewind", f"Rewind {app}", words, tells, app, grave=True)


def undo_rewind_change(core: Core, app: str) -> AskedChange:
    """`rekappa rewind APP --undo`."""
    loaded = core.loaded(app)
    tells = (
        "The run that was abandoned goes on again, and what its batches wrote is put back.",
        "It must be stopped. What the rewound run wrote since is taken out.",
    )
    words = ("rewind", str(loaded.folder), "--undo", *sets(loaded.overrides), "--yes", "--json")
    return AskedChange("undo rewind", f"Undo the rewind of {app}", words, tells, app, grave=True)
