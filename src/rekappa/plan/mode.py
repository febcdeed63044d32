"""Which modes can replay a job rightly, which one `auto` takes, and the words for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rekappa.errors import PlanError
from rekappa.plan.keyed import objection, remarks
from rekappa.plan.plan import Mode
from rekappa.plan.shape import Keeps, Operation, Operator, Shape, Tolerance

OPEN = (Operation.AGGREGATE, Operation.OPEN_JOIN, Operation.OPEN_DEDUP, Operation.LIMIT)
"""State that nothing ends: what production holds depends on everything since it began."""
IN_ORDER = (
    Operation.CUSTOM,
    Operation.DEDUP_WITHIN,
    Operation.TIMED_DEDUP,
    Operation.OPEN_DEDUP,
    Operation.LIMIT,
    Operation.ORDER_SENSITIVE,
    Operation.UNKNOWN,
)
"""Output that depends on which event comes first, or that may."""
BY_SLICE = (Operation.CUSTOM, Operation.DEDUP_WITHIN, Operation.TIMED_DEDUP, Operation.OPEN_DEDUP)
"""What one batch job can run in the order of slices, key by key, if it is a query's only state."""
_UP_TO = {
    Tolerance.ORDER: "collections have no order of their own",
    Tolerance.ROUNDING: "floating-point numbers add up differently in another order",
}


@dataclass(frozen=True, slots=True)
class Safe:
    """The mode gives what production would have given, for on-time events."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unsafe:
    """The mode could give something else. `needs_warm_up` if a warm-up told by the user makes it safe.

    `checked` if the run itself finds out whether it went wrong, and then fails: it may be asked for, if not chosen.
    """

    reason: str
    needs_warm_up: bool = False
    checked: bool = False


Verdict = Safe | Unsafe


@dataclass(frozen=True, slots=True)
class Choice:
    mode: Mode
    reason: str
    warnings: tuple[str, ...] = ()


def assess(shape: Shape, *, warm_up_told: bool = False) -> dict[Mode, Verdict]:
    """Every mode's verdict on one output."""
    open_state = shape.of(*OPEN)
    ordered: Verdict
    if open_state and not warm_up_told:
        ordered = Unsafe(f"{_list(open_state)} keeps state for ever, so its output depends on all of history", True)
    elif shape.event_time is None and shape.stateful and not shape.taken.updates:
        ordered = Unsafe("its sink declares no event time, so its output can't be told to be in the window or not")
    elif shape.stateful:
        ordered = Safe(f"{shape.describe()}: events reach it in order, within the bound")
    else:
        ordered = Safe("keeps no state")
    in_order = tuple(operator for operator in shape.of(*IN_ORDER) if operator.kind is not Operation.UNKNOWN)
    bulk: Verdict
    if isinstance(ordered, Unsafe):
        bulk = ordered
    elif shape.has(Operation.AS_STREAMED):
        bulk = Unsafe(f"{_list(shape.of(Operation.AS_STREAMED))}: as a batch job it has other rows")
    elif shape.has(Operation.UNKNOWN) and not in_order:
        unknown = ", ".join(operator.detail for operator in shape.of(Operation.UNKNOWN))
        bulk = Unsafe(f"{unknown}: not known to give the same whatever the order and grouping of events")
    elif by_slice(shape):
        bulk = Safe(
            f"{shape.describe()}: one batch job runs it key by key in the order of slices, with the watermarks that "
            "micro-batches would have"
        )
    elif in_order:
        bulk = Unsafe(f"{_list(in_order)} depends on the order of events, which bulk does not keep{_mixed(shape)}")
    elif shape.stateful:
        bulk = Safe(f"{shape.describe()}: the same in any order once all inputs are read")
    else:
        bulk = Safe("keeps no state: each row depends on itself alone")
    exact = Safe("replays the micro-batches that production ran")
    verdicts: dict[Mode, Verdict] = {
        Mode.BULK: bulk, Mode.ORDERED: ordered, Mode.STRICT: ordered, Mode.EXACT: exact
    }  # fmt: skip
    return {mode: _by_key(shape, mode, verdict) for mode, verdict in verdicts.items()}


def by_slice(shape: Shape) -> bool:
    """Whether bulk runs this output slice by slice: its one stateful operator depends on order, and nothing else."""
    return shape.has(*BY_SLICE) and not _obstacle(shape)


def _obstacle(shape: Shape) -> str:
    """What keeps an operator of `BY_SLICE` from running slice by slice in one batch job."""
    others = [one for one in shape.operators if one.kind is not Operation.SORT and one.kind not in BY_SLICE]
    if others:
        return f"it stands beside {_list(others)}"
    if len([one for one in shape.operators if one.kind in BY_SLICE]) > 1:
        return "there are several"
    if shape.clock:
        return f"it reads the clock ({', '.join(shape.clock)})"
    if shape.event_time is None or shape.taken.updates:
        return "its sink takes rows by the batch that they come out in"
    if shape.taken.keeps is Keeps.LAST:
        return "its sink keeps the last row of a key"
    return shape.obstacle


def _mixed(shape: Shape) -> str:
    why = _obstacle(shape)
    return f" unless it goes slice by slice, and here {why}" if why and shape.has(*BY_SLICE) else ""


def _by_key(shape: Shape, mode: Mode, verdict: Verdict) -> Verdict:
    """The verdict, unless the mode can't tell the last row of a key for a sink that keeps only that."""
    found = objection(shape, mode)
    if found is None or isinstance(verdict, Unsafe):
        return verdict
    return Unsafe(found, checked=mode is Mode.BULK and not shape.stateful)


def choose(job: str, shapes: Sequence[Shape], asked: Mode | None = None, *, warm_up_told: bool = False) -> Choice:
    """The mode to run a job in: the one asked for, or the fastest that is safe for all its outputs.

    Refuses with `PlanError` when the mode asked for is unsafe, when none is safe, and, unless a mode was asked
    for, when the job reads the clock.
    """
    verdicts = [assess(shape, warm_up_told=warm_up_told) for shape in shapes]
    warnings = _warnings(job, shapes)
    clock = sorted({name for shape in shapes for name in shape.clock})
    if clock and asked is None:
        raise PlanError(
            f"Cannot replay job {job!r} faithfully: it reads the clock ({', '.join(clock)})",
            hint="Use the event's own time in the job; or name a mode (--mode bulk) to run it with today's clock.",
        )
    candidates = [asked] if asked is not None else [Mode.BULK, Mode.ORDERED, Mode.STRICT]
    refused: list[tuple[Mode, Unsafe]] = []
    for mode in candidates:
        answers = [one[mode] for one in verdicts]
        unsafe = next((answer for answer in answers if isinstance(answer, Unsafe)), None)
        if mode is Mode.BULK and unsafe is None:
            unsafe = _several(shapes)
        if unsafe is not None and not (asked and unsafe.checked):
            refused.append((mode, unsafe))
            continue
        reasons = list(dict.fromkeys(_words(answer) for answer in answers))
        if refused:
            reasons.append(f"not {refused[0][0]}: {refused[0][1].reason}")
        return Choice(mode, "; ".join(reasons), warnings)
    mode, unsafe = refused[-1]
    if unsafe.needs_warm_up:
        hint = "Say with --warm-up how far back the state that matters goes."
    elif "no event time" in unsafe.reason:
        hint = "Declare the sink's event_time in rekappa.yaml."
    elif "micro-batches" in unsafe.reason:
        hint = "Use --mode exact."
    elif "tells the last" in unsafe.reason:
        hint = "Use --mode strict, or name the column that ranks the rows of a key as the sink's version."
    else:
        hint = "Use --mode ordered, or leave --mode out."
    what = f"in {mode} mode" if asked is not None else "in any mode"
    raise PlanError(f"Cannot replay job {job!r} {what}: {unsafe.reason}", hint=hint)


def _several(shapes: Sequence[Shape]) -> Unsafe | None:
    """Slice by slice one output is made: each query of a stream has watermarks of its own."""
    found = [shape for shape in shapes if by_slice(shape)]
    if not found or len({shape.output for shape in shapes}) == 1:
        return None
    operators = _list([one for shape in found for one in shape.of(*BY_SLICE)])
    return Unsafe(f"{operators} goes slice by slice in bulk, which a job with several outputs can't")


def _words(verdict: Verdict) -> str:
    return f"{verdict.reason}; the run fails if it matters" if isinstance(verdict, Unsafe) else verdict.reason


def _warnings(job: str, shapes: Sequence[Shape]) -> tuple[str, ...]:
    warnings = []
    if clock := sorted({name for shape in shapes for name in shape.clock}):
        warnings.append(f"Job {job!r} reads the clock ({', '.join(clock)}): its output can't equal production's.")
    if chance := sorted({name for shape in shapes for name in shape.random}):
        warnings.append(f"Job {job!r} uses {', '.join(chance)}: these values differ in every run.")
    if tables := sorted({name for shape in shapes for name in shape.static}):
        warnings.append(f"Job {job!r} joins {', '.join(tables)} as it is now, not as it was in the window.")
    warnings += [text for shape in shapes for text in remarks(job, shape)]
    for operator in dict.fromkeys(operator for shape in shapes for operator in shape.of(Operation.ORDER_SENSITIVE)):
        warnings.append(
            f"Job {job!r} has an {operator}: no mode but exact gives it production's order, and where events tie, or "
            "an estimate depends on how they were grouped, production itself would not give the same twice."
        )
    for operator in dict.fromkeys(operator for shape in shapes for operator in shape.of(Operation.UNKNOWN)):
        warnings.append(
            f"Job {job!r} uses {operator.detail}: not known to give the same in a replay. Exact mode comes nearest."
        )
    for tolerance, why in _UP_TO.items():
        columns = sorted(
            {f"{shape.output}.{name}" for shape in shapes for name, one in shape.tolerances.items() if one is tolerance}
        )
        if columns:
            warnings.append(f"Equal to production only up to {tolerance} ({why}): {', '.join(columns)}.")
    return tuple(warnings)


def _list(operators: Sequence[Operator]) -> str:
    return " and ".join(dict.fromkeys(str(operator) for operator in operators))
