"""The `rekappa` command: a table of commands, each imported only when it is used."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from rekappa.errors import ArchiveError, LeaseLost, RekappaError, SinkError, SourceError, StackError, WorkFailed
from rekappa.home import Home
from rekappa.masking import hidden
from rekappa.version import __version__

REFUSED, FAILED, INTERRUPTED = 2, 1, 130
# Errors that come from work under way, not from what was asked.
_FAILURES = (ArchiveError, LeaseLost, SinkError, SourceError, StackError, WorkFailed)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the help page, and where the command is."""

    section: str
    target: str
    summary: str


COMMANDS: dict[str, Entry] = {
    "new": Entry("Apps", "rekappa.cli.new:new", "Make a small app that passes its own test."),
    "config": Entry("Apps", "rekappa.cli.config:config", "Show an app's configuration and where it came from."),
    "migrate": Entry("Apps", "rekappa.cli.migrate:migrate", "Give sink tables the columns that jobs have gained."),
    "run": Entry("Apps", "rekappa.cli.run:run", "Run an app from its selected sources."),
    "runs": Entry("Apps", "rekappa.cli.runs:runs", "List runs; show one, and the code it ran."),
    "query": Entry("Apps", "rekappa.cli.query:query", "SQL over sinks, staging, archive and dead letters."),
    "start": Entry("Apps", "rekappa.cli.jobs:start", "Run an app or its router detached, looked after."),
    "jobs": Entry("Apps", "rekappa.cli.jobs:jobs", "List what runs detached; start anew what was lost."),
    "stop": Entry("Apps", "rekappa.cli.run:stop", "Stop a run after its current batch."),
    "produce": Entry("Apps", "rekappa.cli.produce:produce", "Send a file's rows as events, also of past times."),
    "manifest": Entry("Apps", "rekappa.cli.manifest:manifest", "Write what keeps an app running elsewhere."),
    "archive": Entry("Archive", "rekappa.cli.archive:archive", "Copy topics into Iceberg tables; look after them."),
    "cost": Entry("Archive", "rekappa.cli.cost:cost", "Bytes in Kafka and in the archive, and their price."),
    "advise": Entry("Recover", "rekappa.cli.advise:advise", "Say which recovery fits an outage, and why."),
    "plan": Entry("Recover", "rekappa.cli.backfill:plan", "Show what a backfill would do; changes nothing."),
    "backfill": Entry("Recover", "rekappa.cli.backfill:backfill", "Re-run an app over a past window into staging."),
    "pause": Entry("Recover", "rekappa.cli.backfill:pause", "Pause a backfill after its current slice."),
    "resume": Entry("Recover", "rekappa.cli.backfill:resume", "Continue a paused, stopped or killed backfill."),
    "cancel": Entry("Recover", "rekappa.cli.backfill:cancel", "Give up a backfill."),
    "validate": Entry("Recover", "rekappa.cli.validate:validate", "Compare staging with production, key by key."),
    "diff": Entry("Recover", "rekappa.cli.diff:diff", "Show or export every difference that validate found."),
    "publish": Entry("Recover", "rekappa.cli.publish:publish", "Replace the window in production with staging."),
    "undo": Entry("Recover", "rekappa.cli.publish:undo", "Bring back the window as it was before publishing."),
    "bootstrap": Entry("Recover", "rekappa.cli.bootstrap:bootstrap", "Build state from the archive, then go live."),
    "clean": Entry("Recover", "rekappa.cli.publish:clean", "Remove staging that is no longer needed."),
    "checkpoints": Entry("Recover", "rekappa.cli.checkpoints:checkpoints", "What a live job can be restarted from."),
    "savepoint": Entry("Recover", "rekappa.cli.checkpoints:savepoint", "Keep such a point by name."),
    "rewind": Entry("Recover", "rekappa.cli.rewind:rewind", "Restart a live job from an earlier point."),
    "lineage": Entry("Recover", "rekappa.cli.lineage:lineage", "Which messages of a topic count."),
    "console": Entry("Console", "rekappa.cli.console:console", "Every operation in a browser."),
    "users": Entry("Console", "rekappa.cli.users:users", "Who may log in to the console, and as what."),
    "up": Entry("Stack", "rekappa.cli.stack:up", "Start the local Kafka broker and catalog."),
    "down": Entry("Stack", "rekappa.cli.stack:down", "Stop the local Kafka broker."),
    "status": Entry("Stack", "rekappa.cli.stack:status", "Show the local stack."),
    "demo": Entry("Stack", "rekappa.cli.demo:demo", "Tell the whole story on this machine."),
}


class Refusal(click.ClickException):
    """A `RekappaError` on its way to the terminal: what was asked can't be done."""

    exit_code = REFUSED

    def __init__(self, error: RekappaError) -> None:
        super().__init__(hidden(error.message))
        self.hint = hidden(error.hint) if error.hint else None

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {self.message}", err=True)
        if self.hint:
            click.echo(f"hint: {self.hint}", err=True)


class WorkFailure(Refusal):
    """The same for work that was under way."""

    exit_code = FAILED


class Defect(click.ClickException):
    """An error that nobody foresaw: one line, and where the rest was written."""

    exit_code = FAILED

    def __init__(self, error: Exception) -> None:
        summary = hidden(" ".join(str(error).split()))[:200]
        super().__init__(f"{type(error).__name__}: {summary}" if summary else type(error).__name__)
        self.log = _write_log(error)

    def show(self, file: Any = None) -> None:
        click.echo(f"error: unexpected {self.message}", err=True)
        where = f"The details are in {self.log}." if self.log else "The details could not be written to a file."
        click.echo(f"hint: {where} REKAPPA_DEBUG=1 shows them here.", err=True)


class LazyGroup(click.Group):
    """Commands from `COMMANDS`; one whose module is not there does not exist."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if any("\0" in word for word in args):
            raise Refusal(RekappaError("Cannot use a word with a zero byte in it"))
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, entry in COMMANDS.items() if _exists(entry)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None or not _exists(entry):
            return None
        module, _, attribute = entry.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            close = get_close_matches(args[0], known, n=1, cutoff=0.5)
            hint = f"Did you mean `rekappa {close[0]}`?" if close else "`rekappa --help` lists the commands."
            raise Refusal(RekappaError(f"There is no command {args[0]!r}", hint=hint))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            sections.setdefault(COMMANDS[name].section, []).append((name, COMMANDS[name].summary))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        with reported():
            return super().invoke(ctx)


@contextmanager
def reported() -> Iterator[None]:
    """Turn what goes wrong inside into what a person should see of it."""
    try:
        yield
    except RekappaError as error:
        _debug(error)
        raise (WorkFailure if isinstance(error, _FAILURES) else Refusal)(error) from error
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except (click.exceptions.Exit, click.Abort, click.ClickException, BrokenPipeError):
        raise
    except Exception as error:
        _debug(error)
        if isinstance(error, OSError) and (unusable := _not_ours(error)):
            raise Refusal(unusable) from error
        if known := _of_spark(error):
            raise WorkFailure(known) from error
        raise Defect(error) from error


def _not_ours(error: OSError) -> RekappaError | None:
    """A file or folder that this user may not use, or a project folder that can't be one."""
    inside = error.filename is not None and Path(os.fsdecode(error.filename)).is_relative_to(Home.locate().root)
    if not inside and not (isinstance(error, PermissionError) and error.filename):
        return None
    return RekappaError(
        f"Cannot use {os.fsdecode(error.filename)}: {error.strerror}",
        hint="Is it yours? REKAPPA_HOME names another project folder.",
    )


def _of_spark(error: Exception) -> RekappaError | None:
    """If Spark's own process is gone, that is why, whatever was raised; else what is known of Spark's own errors.

    Without Spark there is nothing to import.
    """
    if "pyspark" not in sys.modules:
        return None
    from rekappa.spark.failures import ended, explained

    return ended() or explained(error)


def _debug(error: Exception) -> None:
    if os.environ.get("REKAPPA_DEBUG", "") not in ("", "0"):
        click.echo("".join(traceback.format_exception(error)), err=True)


def _exists(entry: Entry) -> bool:
    return find_spec(entry.target.partition(":")[0]) is not None


def _write_log(error: Exception) -> Path | None:
    """Keep the traceback in the project folder, or, where there is none yet, in the system's temporary folder."""
    import tempfile

    home = Home.locate()
    folder = home.logs if home.root.is_dir() else Path(tempfile.gettempdir())
    name = f"rekappa-error-{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}.log"
    try:
        folder.mkdir(exist_ok=True)
        with open(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write("".join(traceback.format_exception(error)))
    except OSError:
        return None
    return folder / name


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "--version", prog_name="rekappa")
def main() -> None:
    """Re-run a streaming app over any past window, prove the result, publish it."""
    for stream in (sys.stdout, sys.stderr):
        # What the terminal's encoding can't show is no reason to end a command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    main()
