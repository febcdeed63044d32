"""What can be changed, as a value: the `rekappa` command that does it, and what to tell before it is done.

    change = publish_change(run, accept=False)
    change.tells            what it changes, for whoever is asked
    begin(core, change)     the command in a process of its own

The console asks, shows and starts; the command does the work. So neither face has logic of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rekappa.config.load import load
from rekappa.errors import PublishError, RunError
from rekappa.operations.core import Core
from rekappa.operations.runs import Resumption, resumption
from rekappa.store.record import Kind, Run
from rekappa.store.task import Task
from rekappa.tasks.start import start_task


@dataclass(frozen=True, slots=True)
class AskedChange:
    """`what` is its name in the audit trail; one that is empty changes nothing, and is not written there."""

    what: str
    title: str
    words: tuple[str, ...]
    tells: tuple[str, ...] = ()
    app: str | None = None
    run: str | None = None
    kept: bool = False
    grave: bool = False


def begin(core: Core, change: AskedChange) -> Task:
    """Start the command of a change."""
    return start_task(
        core.home,
        change.words,
        who=core.who,
        face=core.face,
        what=change.what,
        app=change.app,
        run=change.run,
        kept=change.kept,
        folder=core.folder,
    )


def sets(overrides: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"--set={one}" for one in overrides)


def live_change(core: Core, app: str, *, fresh: bool = False, overrides: tuple[str, ...] | None = None) -> AskedChange:
    """`rekappa start APP`, with the overrides that are kept for its next runs, or with others."""
    loaded = core.loaded(app) if overrides is None else load(core.app(app).folder, overrides=overrides)
    read = ", ".join(f"{name} from {source.selected}" for name, source in loaded.config.sources.items())
    words = ("run", str(loaded.folder), *(("--fresh",) if fresh else ()), *sets(loaded.overrides), "--json")
    begins = "A new run begins with empty state." if fresh else "It goes on where the last live run stopped, if any."
    tells = (f"Reads {read}; writes {', '.join(loaded.config.sinks)}.", begins, _AGAIN)
    return AskedChange("start", f"Start {app} live", words, tells, app, kept=True, grave=fresh)


def restart_change(core: Core, app: str) -> AskedChange:
    """`rekappa start APP --restart`."""
    change = live_change(core, app)
    words = ("start", str(core.loaded(app).folder), "--restart", "--json")
    tells = (
        "The live run stops after its current batch, and is started again with the code as it is now.",
        *change.tells,
    )
    return AskedChange("restart", f"Restart {app} live", words, tells, app)


def router_change(core: Core, app: str) -> AskedChange:
    """`rekappa start APP --archive`."""
    loaded = core.loaded(app)
    words = ("archive", "run", str(loaded.folder), *sets(loaded.overrides), "--json")
    tells = ("Copies the app's topics into its archive tables until it is stopped.", _AGAIN)
    return AskedChange("start archive", f"Start the router of {app}", words, tells, app, kept=True)


_AGAIN = "It runs detached, and is started again when it fails."


def archive_change(core: Core, app: str, verb: str) -> AskedChange:
    """`rekappa archive verify|compact APP`."""
    loaded = core.loaded(app)
    words = ("archive", verb, str(loaded.folder), *sets(loaded.overrides), "--json")
    if verb == "verify":
        return AskedChange(
            "verify", f"Verify the archive of {app}", words, ("Reads every offset once; changes nothing.",), app
        )
    if verb != "compact":
        raise RunError(f"Cannot do {verb!r} with an archive")
    tells = ("Merges small files, hour by hour. Events stay as they are; a running router is not disturbed.",)
    return AskedChange("compact", f"Compact the archive of {app}", words, tells, app)


def run_change(run: Run, verb: str) -> AskedChange:
    """What may be asked of one run: stop, pause, resume, cancel. Refused at once where the command would be."""
    words = (verb, run.id, "--json")
    tells: tuple[str, ...] = ()
    if verb == "stop":
        if not run.state.going:
            raise RunError(f"Cannot stop run {run.id}: it is {run.state}, not running")
        tells = ("It stops after its current batch; started again, it goes on from there.",)
    elif run.kind not in (Kind.BACKFILL, Kind.CONTROL):
        raise RunError(f"Cannot {verb} run {run.id}: it is a {run.kind} run, not a backfill")
    elif verb == "pause":
        if not run.state.going:
            raise RunError(f"Cannot pause run {run.id}: it is {run.state}, not running")
        tells = ("It waits before its next chunk or slice, and keeps what is done.",)
    elif verb == "resume":
        where = resumption(run)
        there = "It goes on in the process that waits."
        tells = (
            there if where is Resumption.THERE else "It goes on in a new process; what is staged is not made again.",
        )
    elif verb == "cancel":
        if not run.state.going and not run.state.resumable:
            raise RunError(f"Cannot cancel run {run.id}: it is {run.state}")
        tells = ("The backfill is given up. What it wrote stays in staging until `rekappa clean`.",)
    else:
        raise RunError(f"Cannot {verb} a run")
    title = f"{verb.capitalize()} {run.id}"
    return AskedChange(verb, title, words, tells, run.app, run.id, grave=verb == "cancel")


def validate_change(
    run: Run, *, expect: Sequence[str] = (), late: str | None = None, final_only: bool = False
) -> AskedChange:
    """`rekappa validate RUN`."""
    told = [f"--expect={one}" for one in expect]
    told += [f"--late={late}"] if late else []
    told += ["--final-only"] if final_only else []
    tells = (
        "Compares staging with production, key by key; production's own code is replayed to tell why they differ.",
        "Changes nothing in production. The verdict is kept with the run.",
    )
    return AskedChange("validate", f"Validate {run.id}", ("validate", run.id, *told, "--json"), tells, run.app, run.id)


def effect_change(run: Run, *, accept: bool, unvalidated: bool = False, force: bool = False) -> AskedChange:
    """`rekappa publish RUN --dry-run`: what publishing would do."""
    words = ("publish", run.id, "--dry-run", *_publish_flags(accept, unvalidated, force), "--json")
    return AskedChange("", f"Effect of publishing {run.id}", words, (), run.app, run.id)


def publish_change(run: Run, *, accept: bool, unvalidated: bool = False, force: bool = False) -> AskedChange:
    """`rekappa publish RUN`."""
    words = ("publish", run.id, "--yes", *_publish_flags(accept, unvalidated, force), "--json")
    tells = (
        "Replaces the window in production with what is staged: one atomic commit per table.",
        "Undo brings the window back as it was.",
    )
    return AskedChange("publish", f"Publish {run.id}", words, tells, run.app, run.id, grave=True)


def undo_change(run: Run, *, force: bool = False) -> AskedChange:
    """`rekappa undo RUN`; refused at once where the store knows that there is nothing to take back."""
    state = (run.publication or {}).get("state")
    if state in (None, "undone"):
        what = "it was undone already" if state else "it was not published, as far as the run store knows"
        raise PublishError(
            f"Cannot undo run {run.id}: {what}", hint=f"`rekappa undo {run.id}` looks at the tables themselves."
        )
    words = ("undo", run.id, "--yes", *(("--force",) if force else ()), "--json")
    tells = ("Brings the window back in production as it was before. What was appended elsewhere since then stays.",)
    return AskedChange("undo", f"Undo {run.id}", words, tells, run.app, run.id, grave=True)


def _publish_flags(accept: bool, unvalidated: bool, force: bool) -> tuple[str, ...]:
    flags = {"--accept-changes": accept, "--unvalidated": unvalidated, "--force": force}
    return tuple(name for name, wanted in flags.items() if wanted)
