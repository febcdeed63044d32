"""What a person says of a backfill, as text: from a form, or for the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rekappa.errors import PlanError
from rekappa.operations.changes import AskedChange, sets
from rekappa.operations.core import Core
from rekappa.timeline import Window, format_instant, parse_duration

MODES = ("auto", "bulk", "ordered", "strict", "exact")
MARGINS = ("warm-up", "drain", "clock-skew", "slice-rows", "slice-span")


@dataclass(frozen=True, slots=True)
class WindowForm:
    """`margins` are by their names on the command line, as they were written; those left empty are derived."""

    start: str
    end: str
    regions: tuple[str, ...] = ()
    mode: str = "auto"
    margins: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    allow_incomplete: bool = False
    sinks: tuple[str, ...] = ()

    @property
    def window(self) -> Window:
        """Refuses what is no window."""
        return Window.parse(self.start, self.end)

    def words(self) -> tuple[str, ...]:
        """The options of `rekappa plan` and `rekappa backfill`, checked as far as they can be without Spark."""
        window = self.window
        if self.mode not in MODES:
            raise PlanError(f"Cannot use mode {self.mode!r}", hint=f"It is one of {', '.join(MODES)}.")
        start, end = format_instant(window.start), format_instant(window.end)
        told = {name: self.margins.get(name, "").strip() for name in MARGINS}
        # One word each: what a person wrote is never taken for another option.
        return (
            f"--start={start}",
            f"--end={end}",
            f"--mode={self.mode}",
            *(f"--region={region}" for region in self.regions),
            *(f"--sink={sink}" for sink in self.sinks),
            *(f"--{name}={_margin(name, value)}" for name, value in told.items() if value),
            *(f"--profile-set={setting}" for setting in self.settings),
            *(("--allow-incomplete",) if self.allow_incomplete else ()),
        )


def _margin(name: str, value: str) -> str:
    if name == "slice-rows":
        if not value.isdigit():
            raise PlanError(f"Cannot use slices of {value!r} rows: it must be a number")
        return value
    try:
        parse_duration(value)
    except ValueError as error:
        raise PlanError(str(error)) from None
    return value


def plan_change(core: Core, app: str, form: WindowForm) -> AskedChange:
    """`rekappa plan APP`: changes nothing."""
    return AskedChange("", f"Plan of {app}", _command(core, "plan", app, form), (), app)


def backfill_change(core: Core, app: str, form: WindowForm) -> AskedChange:
    """`rekappa backfill APP`."""
    tells = (
        f"Replays {form.window} from the archive into staging, beside the live job.",
        "Production is not touched: that is `publish`, after `validate`.",
    )
    return AskedChange("backfill", f"Backfill {app}", _command(core, "backfill", app, form), tells, app)


def _command(core: Core, verb: str, app: str, form: WindowForm) -> tuple[str, ...]:
    loaded = core.loaded(app)
    overrides: Sequence[str] = loaded.overrides
    return (verb, str(loaded.folder), *form.words(), *sets(overrides), "--json")
