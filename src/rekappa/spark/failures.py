"""Reading Spark's errors: what happened, where, and whether trying again could help.

Spark says it in many ways: a chain of Java exceptions, a Python traceback inside a Java message inside another
traceback, an error class with a paragraph of advice, and below all that the query's plan. What a person needs is the
innermost cause in one line, and the place in their own code if it has one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from rekappa.errors import LeaseLost, RekappaError

LONGEST = 400


class Again(Enum):
    """Whether the same work, tried again, could get through."""

    HELPS = "a server, a connection or a worker was away"
    USELESS = "code, data or a missing file: the same would happen again"
    UNKNOWN = "nothing tells"


@dataclass(frozen=True, slots=True)
class Failure:
    """`cause` is one line; `file` the data file that it is about, if it names one; `remedy` what must change first,
    empty where nothing is known to."""

    cause: str
    again: Again
    remedy: str = ""
    file: str | None = None


def read_failure(error: BaseException) -> Failure:
    """What an error of Spark, or of our own code called by Spark, says."""
    if isinstance(error, LeaseLost):
        return Failure(error.message, Again.USELESS)
    if isinstance(error, RekappaError):
        return Failure(error.message, Again.UNKNOWN, error.hint or "")
    return read_text(_text(error), type(error).__name__)


def read_text(text: str, kind: str = "") -> Failure:
    """The same for what was printed of it; `kind` names the outermost exception."""
    said = _PLAN.split(text, maxsplit=1)[0]
    file = _FILE.search(said)
    found = _python(said) or _spark_class(said, kind) or _java(said) or _first_line(said, kind)
    if found.again is Again.UNKNOWN and _AWAY.search(said):
        found = Failure(found.cause, Again.HELPS)
    return Failure(found.cause[:LONGEST], found.again, found.remedy, file.group(0) if file else None)


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
    own = [frame for frame in frames if not _LIBRARY.search(frame["file"]) and not frame["file"].startswith(_OURS)]
    said = f"{name}: {words}" if words else name
    if not own:
        return Failure(said, Again.UNKNOWN)
    place = f"{own[-1]['file']}:{own[-1]['line']}"
    cause = f"{said} ({place} in {own[-1]['name']})"
    if _AWAY.search(said):
        return Failure(cause, Again.HELPS)
    return Failure(cause, Again.USELESS, f"It will fail again until {place} is changed.")


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
