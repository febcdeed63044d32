"""What a command shows, apart from how: as text for a person, or as JSON for a program.

    out = output(as_json)
    out.table("Runs", ["run", "app"], rows)

Data goes to stdout; progress and remarks go to stderr. As JSON a `table` is an array of objects and a
`record` an object; a command that shows several things as text gives `document` the whole of it as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

import click

from rekappa.shown import plain, readable

if TYPE_CHECKING:
    from rich.console import Console

SECONDS_BETWEEN_LINES = 5.0
WIDTH_OF_A_PIPE = 200


class ProgressBar(ABC):
    """One line that moves."""

    @abstractmethod
    def update(self, done: float, *, total: float | None = None, text: str | None = None) -> None:
        """Say how far the work is. Cheap: may be called as often as one likes."""


class Output(ABC):
    """One way to show things."""

    is_json: bool

    @abstractmethod
    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Show rows of values under named columns."""

    @abstractmethod
    def record(self, values: Mapping[str, Any], title: str | None = None) -> None:
        """Show one thing by its named values."""

    @abstractmethod
    def document(self, value: Any) -> None:
        """JSON only: everything at once. Text shows nothing."""

    @abstractmethod
    def message(self, text: str) -> None:
        """Tell a person something: stdout as text, stderr beside JSON."""

    @abstractmethod
    def progress(self, title: str, total: float | None = None) -> AbstractContextManager[ProgressBar]:
        """A line on stderr while the `with` block lasts."""


def output(as_json: bool) -> Output:
    """The output that `--json` asks for."""
    return JsonOutput() if as_json else TextOutput()


_STDOUT: ContextVar[TextIO | None] = ContextVar("stdout", default=None)


@contextmanager
def stdout_for_data() -> Iterator[None]:
    """Inside, stdout takes the data of `JsonOutput` alone: what anybody else prints, such as an app, goes to stderr,
    and so does what programs print that it starts."""
    with _own_descriptor(sys.stdout) as own:
        kept = _STDOUT.set(own)
        try:
            with redirect_stdout(sys.stderr):
                yield
        finally:
            _STDOUT.reset(kept)


@contextmanager
def _own_descriptor(stdout: TextIO) -> Iterator[TextIO]:
    """The same stream by a descriptor that nobody else knows; the process's own leads to stderr meanwhile.

    A stream that is not the process's own is answered as it is.
    """
    try:
        ours = stdout.fileno() == 1
    except (OSError, ValueError):
        ours = False
    if not ours:
        yield stdout
        return
    stdout.flush()
    descriptor = os.dup(1)
    os.dup2(2, 1)
    data = os.fdopen(descriptor, "w", encoding=stdout.encoding, errors=stdout.errors)
    try:
        yield data
    finally:
        os.dup2(descriptor, 1)
        with suppress(OSError):
            data.close()


class JsonOutput(Output):
    is_json = True

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        keys = [column.strip().lower().replace(" ", "_") for column in columns]
        self.document([dict(zip(keys, row, strict=True)) for row in rows])

    def record(self, values: Mapping[str, Any], title: str | None = None) -> None:
        self.document(values)

    def document(self, value: Any) -> None:
        click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False), file=_STDOUT.get())

    def message(self, text: str) -> None:
        click.echo(text, err=True)

    @contextmanager
    def progress(self, title: str, total: float | None = None) -> Iterator[ProgressBar]:
        yield _Lines(title, total)


class TextOutput(Output):
    is_json = False

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        values = [list(row) for row in rows]
        made = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        for index, column in enumerate(columns):
            numbers = [row[index] for row in values if row[index] is not None]
            right = bool(numbers) and all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers)
            made.add_column(Text(column), justify="right" if right else "left", overflow="fold")
        for row in values:
            made.add_row(*(Text(readable(value)) for value in row))
        _console().print(made)

    def record(self, values: Mapping[str, Any], title: str | None = None) -> None:
        from rich.table import Table
        from rich.text import Text

        made = Table.grid(padding=(0, 2))
        made.add_column(style="bold")
        made.add_column(overflow="fold")
        for key, value in values.items():
            made.add_row(Text(key.replace("_", " ")), Text(readable(value)))
        if title:
            _console().print(Text(title, style="bold underline"))
        _console().print(made)

    def document(self, value: Any) -> None:
        pass

    def message(self, text: str) -> None:
        click.echo(text)

    @contextmanager
    def progress(self, title: str, total: float | None = None) -> Iterator[ProgressBar]:
        console = _console(err=True)
        if not console.is_terminal:
            yield _Lines(title, total)
            return
        from rich import progress

        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=30),
            progress.TaskProgressColumn(),
            progress.TimeRemainingColumn(compact=True),
            progress.TextColumn("{task.fields[text]}", markup=False),
        )
        with progress.Progress(*columns, console=console, transient=True) as shown:
            yield _Bar(shown, shown.add_task(title, total=total, text=""))


class _Bar(ProgressBar):
    def __init__(self, shown: Any, task: Any) -> None:
        self._shown, self._task = shown, task

    def update(self, done: float, *, total: float | None = None, text: str | None = None) -> None:
        given = {key: value for key, value in (("total", total), ("text", text)) if value is not None}
        self._shown.update(self._task, completed=done, **given)


class _Lines(ProgressBar):
    """For a log: one line every few seconds."""

    def __init__(self, title: str, total: float | None) -> None:
        self._title, self._total, self._last = title, total, time.monotonic()

    def update(self, done: float, *, total: float | None = None, text: str | None = None) -> None:
        self._total = total if total is not None else self._total
        now = time.monotonic()
        if now - self._last < SECONDS_BETWEEN_LINES:
            return
        self._last = now
        share = f" {100 * done / self._total:.0f} %" if self._total else ""
        click.echo(f"{self._title}{share}" + (f"  {text}" if text else ""), err=True)


def _console(err: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=err, highlight=False, markup=False, soft_wrap=False)
    return console if console.is_terminal else Console(stderr=err, highlight=False, markup=False, width=WIDTH_OF_A_PIPE)
