"""Asking which recovery fits an outage, and what to do about the answer."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rekappa.errors import PlanError, RunError
from rekappa.operations.changes import AskedChange, sets
from rekappa.operations.core import Core
from rekappa.timeline import Window, format_instant, parse_duration, parse_instant

TROUBLES = ("stopped", "wrong")
STATES = ("right", "wrong")


@dataclass(frozen=True, slots=True)
class OutageForm:
    """What a person says of an outage. `trouble` and `state` may be left empty: then they are found out."""

    start: str
    end: str
    trouble: str = ""
    state: str = ""

    def words(self) -> tuple[str, ...]:
        """The options of `rekappa advise`."""
        window = Window.parse(self.start, self.end)
        for value, known in ((self.trouble, TROUBLES), (self.state, STATES)):
            if value and value not in known:
                raise PlanError(f"Cannot use {value!r}", hint=f"It is one of {', '.join(known)}.")
        return (
            f"--start={format_instant(window.start)}",
            f"--end={format_instant(window.end)}",
            *((f"--trouble={self.trouble}",) if self.trouble else ()),
            *((f"--state-{self.state}",) if self.state else ()),
        )


def advise_change(core: Core, app: str, form: OutageForm) -> AskedChange:
    """`rekappa advise APP`: changes nothing."""
    loaded = core.loaded(app)
    words = ("advise", str(loaded.folder), *form.words(), *sets(loaded.overrides), "--json")
    return AskedChange("", f"Advice on {app}", words, (), app)


def since_when(text: str) -> datetime:
    """What `--from` says: a moment, or how long ago it was."""
    try:
        return datetime.now(UTC) - parse_duration(text)
    except ValueError:
        pass
    try:
        return parse_instant(text)
    except ValueError as error:
        raise RunError(
            f"Cannot bootstrap from {text!r}: it is neither a length of time nor a time",
            hint="Write it like 7d, '36 hours' or 2026-11-01T13:00Z.",
        ) from error


def bootstrap_change(core: Core, app: str, since: str) -> AskedChange:
    """`rekappa bootstrap APP --from SINCE`."""
    loaded = core.loaded(app)
    since_when(since)
    words = ("bootstrap", str(loaded.folder), f"--from={since.strip()}", *sets(loaded.overrides), "--json")
    tells = (
        "A new run builds its state from the archive, then goes on from Kafka at exactly the next offset.",
        "What history gives is held back where a run has written before. Stopped or failed, Start goes on with it.",
    )
    return AskedChange("bootstrap", f"Bootstrap {app}", words, tells, app, grave=True)


def options_of(commands: list[str], verb: str) -> Mapping[str, list[str]] | None:
    """What the first command of this name says, option by option; None if there is none."""
    told = next((shlex.split(one) for one in commands if one.startswith(f"rekappa {verb} ")), None)
    if told is None:
        return None
    found: dict[str, list[str]] = {}
    for at, word in enumerate(told):
        if word.startswith("--"):
            value = told[at + 1] if at + 1 < len(told) and not told[at + 1].startswith("--") else ""
            found.setdefault(word.removeprefix("--"), []).append(value)
    return found


def next_steps(advice: Mapping[str, Any]) -> dict[str, Any]:
    """What a page may offer for one piece of advice, from the commands that it names."""
    commands = [str(one) for one in advice.get("commands") or ()]
    plan, rewind = options_of(commands, "plan"), options_of(commands, "rewind")
    bootstrap = options_of(commands, "bootstrap")
    return {
        "backfill": plan and {"start": plan["start"][0], "end": plan["end"][0], "sinks": plan.get("sink", [])},
        "rewind": rewind and {"to": rewind["to"][0], "cascade": "cascade" in rewind},
        "bootstrap": bootstrap and bootstrap["from"][0],
        "start": any(one.startswith("rekappa run ") and "--fresh" not in one for one in commands),
        "verify": any(one.startswith("rekappa archive verify ") for one in commands),
    }
