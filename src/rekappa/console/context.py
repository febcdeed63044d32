"""What every page starts from: the project, who looks, and how to make HTML of values."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import ChainableUndefined, Environment, FileSystemLoader, StrictUndefined
from jinja2.runtime import Undefined
from jinja2.utils import missing
from markupsafe import Markup, escape

from rekappa.console import draw
from rekappa.console.guard import Attempts, session
from rekappa.console.hashing import Hashing
from rekappa.console.observed import Observed
from rekappa.home import Home
from rekappa.operations.core import Core
from rekappa.plan.words import size
from rekappa.shown import ranges, readable
from rekappa.timeline import format_duration
from rekappa.version import __version__

HERE = Path(__file__).parent


@dataclass(slots=True)
class Console:
    """One console. `token` lets in whoever started it, where no login is set up; `version` names its own assets."""

    home: Home
    folder: Path
    observed: Observed
    token: str | None = None
    owner: str = ""
    secure: bool = False
    attempts: Attempts = field(default_factory=Attempts)
    hashing: Hashing = field(default_factory=Hashing)


def console_of(request: Request) -> Console:
    found: Any = request.app.state.console
    assert isinstance(found, Console)
    return found


def core_of(request: Request) -> Core:
    """The operations' core, in the name of whoever asks."""
    console = console_of(request)
    return Core(console.home, console.folder, session(request).name, "console")


def page(request: Request, template: str, /, http: int = 200, **values: Any) -> HTMLResponse:
    """A whole page."""
    return HTMLResponse(fragment(request, template, **values), http)


def fragment(request: Request, template: str, **values: Any) -> str:
    """A piece of HTML from a template; everything in it is escaped unless it is markup already."""
    who = getattr(request.state, "session", None)
    return (
        templates()
        .get_template(template)
        .render(who=who, here=request.url.path, version=__version__, now=datetime.now(UTC), **values)
    )


class Absent(Undefined):
    """A name that a page was not given is a mistake; a field that a document lacks is just not there."""

    def __new__(cls, hint: str | None = None, obj: Any = missing, *rest: Any, **more: Any) -> Any:
        kind = StrictUndefined if obj is missing else ChainableUndefined
        return kind(hint, obj, *rest, **more)


@cache
def templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=Absent,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"at": at, "readable": readable, "bytes": _bytes, "ago": _ago, "number": _number, "state": state}
    made.filters |= {"short": draw.short, "duration": _duration, "shell": shlex.join, "ranges": ranges}
    return made


def at(moment: datetime | str | None) -> Markup:
    """A moment: in UTC, which the page's script turns into the reader's zone with UTC beside."""
    if not moment:
        return Markup('<span class="soft">-</span>')
    found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    utc = found.astimezone(UTC)
    return Markup(f'<time datetime="{utc.isoformat()}">{utc:%Y-%m-%d %H:%M:%S} UTC</time>')


_GOOD, _BAD = ("running", "finished", "done", "passed", "published", "complete", "yes"), ("failed", "died", "lost")
_WAITS = ("paused", "waiting", "starting", "needs a yes", "created", "publishing", "undoing")


def state(word: Any) -> Markup:
    """A word that says how something is doing, in its colour; never by colour alone."""
    text = readable(word)
    kind = "good" if text in _GOOD else "bad" if text in _BAD else "waits" if text in _WAITS else "quiet"
    return Markup(f'<span class="badge {kind}">{escape(text)}</span>')


def _ago(moment: datetime | str | None) -> str:
    if moment is None:
        return "never"
    found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return f"{draw.ago(datetime.now(UTC) - found)} ago"


def _number(value: float | int | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.0f}"


def _bytes(value: int | float | None) -> str:
    return "-" if value is None else size(int(value))


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(timedelta(seconds=round(seconds)))


def asked(request: Request) -> Mapping[str, str]:
    """The query of the address."""
    return dict(request.query_params)
