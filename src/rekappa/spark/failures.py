"""Reading Spark's errors: what happened, where, and whether trying again could help.

Spark says it in many ways: a chain of Java exceptions, a Python traceback inside a Java message inside another
traceback, an error class with a paragraph of advice, and below all that the query's plan. What a person needs is the
innermost cause in one line, and the place in their own code if it has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rekappa.errors import LeaseLost, RekappaError, WorkFailed
from rekappa.spark.ended import PATIENCE, EndOfSpark, ended_jvm
from rekappa.spark.remedies import KNOWN, MEMORY, Again

__all__ = ["LONGEST", "Again", "Failure", "ended", "explained", "is_own_code", "read_failure", "read_text", "told"]

LONGEST = 400


@dataclass(frozen=True, slots=True)
class Failure:
    """`cause` is one line; `file` the data file that it is about, if it names one; `remedy` what must change first,
    empty where nothing is known to. `own` says that the job's own code raised it."""

    cause: str
    again: Again
    remedy: str = ""
    file: str | None = None
    own: bool = False


def read_failure(error: BaseException) -> Failure:
    """What an error of Spark, or of our own code called by Spark, says."""
    if isinstance(error, LeaseLost):
        return Failure(error.message, Again.USELESS)
    if isinstance(error, RekappaError):
        return Failure(error.message, Again.UNKNOWN, error.hint or "")
    if gone := _gone(error):
        return _of_ended(gone)
    return read_text(_text(error), type(error).__name__)


def ended() -> WorkFailed | None:
    """What to say of any failure if Spark's own process is gone; None while it is there, or where there is none."""
    gone = ended_jvm()
    return None if gone is None else WorkFailed(_of_ended(gone).cause, hint=_of_ended(gone).remedy)


def explained(error: BaseException) -> WorkFailed | None:
    """What to say of an error of Spark's that happens to many; None of any other."""
    if not type(error).__module__.startswith(_SPARK_OWN) or not any(one.signs.search(_text(error)) for one in KNOWN):
        return None
    found = read_failure(error)
    return WorkFailed(f"Cannot go on: {found.cause}", hint=found.remedy)


@contextmanager
def told(doing: str, then: str) -> Iterator[None]:
    """Spark's errors inside leave as `WorkFailed`: what could not be done, why, and what to do `then`.

    Ours leave as they are, and so does what nobody foresaw.
    """
    try:
        yield
    except RekappaError:
        raise
    except Exception as error:
        if not type(error).__module__.startswith(_SPARK_OWN) and _gone(error) is None:
            raise
        found = read_failure(error)
        raise WorkFailed(f"Cannot {doing}: {found.cause}", hint=f"{found.remedy} {then}".strip()) from error


def read_text(text: str, kind: str = "") -> Failure:
    """The same for what was printed of it; `kind` names the outermost exception."""
    said = _PLAN.split(text, maxsplit=1)[0]
    file = _FILE.search(said)
    found = _python(said) or _spark_class(said, kind) or _java(said) or _first_line(said, kind)
    if not found.own:
        found = _as_known(found, said)
    if found.again is Again.UNKNOWN and _AWAY.search(said):
        found = replace(found, again=Again.HELPS)
    return replace(found, cause=found.cause[:LONGEST], file=file.group(0) if file else None)


def is_own_code(file: str) -> bool:
    """Whether the file is of the app: neither of a library nor of rekappa."""
    return not _LIBRARY.search(file) and not file.startswith(_OURS)


def _as_known(found: Failure, said: str) -> Failure:
    """The failure with what is known of its kind."""
    for known in KNOWN:
        if seen := known.signs.search(said):
            return replace(found, cause=f"{known.told(seen)}: {found.cause}", again=known.again, remedy=known.remedy)
    return found


def _gone(error: BaseException) -> EndOfSpark | None:
    """The JVM's end, if that is what the error comes from: a connection to it that broke or could not be made."""
    broken = isinstance(error, ConnectionError | EOFError) or type(error).__name__ in _NO_ANSWER
    return ended_jvm(PATIENCE if broken else 0.0)


def _of_ended(gone: EndOfSpark) -> Failure:
    why = ", as the system does when memory runs out" if gone.for_memory else ""
    remedy = f"Lower {MEMORY} in the profile, or give the machine more memory." if why else "Its log says why."
    return Failure(f"{gone}{why}", Again.USELESS, remedy)


_NO_ANSWER = ("Py4JError", "Py4JNetworkError")
# Below this a message goes on with the query's plan and state.
_PLAN = re.compile(r"\n=== Streaming Query ===|\nJVM stacktrace:")
_FILE = re.compile(r"[\w:/.\-=+%]*/[\w.\-=+%]+\.(?:parquet|avro|orc)")
_AWAY = re.compile(
    r"Timeout|TimedOut|timed out|Connect(?:ion)?(?:Refused|Reset|Aborted|Closed)?(?:Error|Exception)|Connection refused"
    r"|Connection reset|BrokenPipe|UnknownHost|NoHostAvailable|NoBrokersAvailable|DisconnectException|NotLeader"
    r"|OperationalError|ExecutorLost|FetchFailed|Lost executor|executor \w+ exited|failed to connect back"
    r"|worker exited unexpectedly|database is locked|SQLITE_BUSY|TransportError|ServiceUnavailable"
)
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_RAISED = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?:: ?(?P<words>.*))?$")
_SPARK_OWN = ("pyspark.", "py4j.")
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python3|pyspark\.zip|py4j|<frozen |^pyarrow/")
_OURS = str(Path(__file__).parents[1])
_CLASS = re.compile(
    r"\[(?P<name>[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] (?P<words>.+?)(?:\s+SQLSTATE: (?P<state>\w+)|\n|$)"
)
_WRAPPERS = {"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "FAILED_EXECUTE_UDF", "UDF_USER_CODE_UNEXPECTED"}
# Data exceptions, external routines (a user's function) and what analysis refuses, by the standard's classes.
_REPEATS = ("22", "39", "42", "0A", "21", "23")
_CALLED = re.compile(r'"(?P<call>[^"\n]+)" was called from\n(?P<place>\S+:\d+)')
_CAUSED = re.compile(r"^Caused by: (?P<name>[\w.$]+(?:Exception|Error))(?:: (?P<words>.*))?$", re.MULTILINE)
_THROWN = re.compile(r"(?P<name>(?:[a-z_][\w$]*\.)+[A-Z][\w$]*(?:Exception|Error)): (?P<words>[^\n]*)")
_GONE = re.compile(r"FileNotFound|NotFoundException|NoSuchFile|NoSuchKey")


def _text(error: BaseException) -> str:
    """All that the error says; one that Spark only names ("assertion failed") is told by what caused it."""
    said = str(error)
    cause = getattr(error, "_cause", None)
    return f"{_PLAN.split(said, maxsplit=1)[0]}\n{_text(cause)}" if isinstance(cause, BaseException) else said


def _python(text: str) -> Failure | None:
    """What Python raised: in a worker, in a job's function, or in our own code that Spark called."""
    start = text.rfind("Traceback (most recent call last):")
    if start < 0:
        return None
    frames: list[re.Match[str]] = []
    raised: re.Match[str] | None = None
    for line in text[start:].splitlines()[1:]:
        if frame := _FRAME.match(line):
            frames.append(frame)
        elif line and not line[0].isspace():
            raised = _RAISED.match(line)
            break
    if raised is None or raised["name"].startswith(_SPARK_OWN):
        return None
    name, words = raised["name"], (raised["words"] or "").strip()
    if name.startswith("rekappa.errors."):
        return Failure(words, Again.UNKNOWN)
    own = [frame for frame in frames if is_own_code(frame["file"])]
    said = f"{name}: {words}" if words else name
    if not own:
        return Failure(said, Again.UNKNOWN)
    place = f"{own[-1]['file']}:{own[-1]['line']}"
    cause = f"{said} ({place} in {own[-1]['name']})"
    if _AWAY.search(said):
        return Failure(cause, Again.HELPS, own=True)
    return Failure(cause, Again.USELESS, f"It will fail again until {place} is changed.", own=True)


def _spark_class(text: str, kind: str) -> Failure | None:
    """An error that Spark has a class for; the innermost of those that say more than "it failed"."""
    told = [one for one in _CLASS.finditer(text) if one["name"].split(".")[0] not in _WRAPPERS]
    if not told:
        return None
    last = told[-1]
    called = _CALLED.search(text)
    where = f" ({called['call']} called at {called['place']})" if called else ""
    cause = f"[{last['name']}] {last['words'].strip()}{where}"
    if (last["state"] or "").startswith(_REPEATS) or "AnalysisException" in kind:
        return Failure(cause, Again.USELESS, "It will fail again until the job or the data is changed.")
    return Failure(cause, Again.UNKNOWN)


def _java(text: str) -> Failure | None:
    """The root of a chain of Java exceptions."""
    chain = list(_CAUSED.finditer(text)) or list(_THROWN.finditer(text))
    if not chain:
        return None
    words = next((one["words"] for one in reversed(chain) if one["words"]), "")
    name = chain[-1]["name"].rsplit(".", 1)[-1]
    cause = f"{name}: {words}" if words else name
    if _GONE.search(text):
        return Failure(cause, Again.USELESS, "It will fail again until the file is back.")
    return Failure(cause, Again.UNKNOWN)


def _first_line(text: str, kind: str) -> Failure:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = (lines or ["no message"])[0].split(";\n", 1)[0]
    return Failure(f"{kind}: {first}" if kind else first, Again.UNKNOWN)
