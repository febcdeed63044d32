"""The clock in a job's own state: processing-time timers and timeouts, state that expires, code that asks the time.

    with watching() as seen:
        job.results(probes)
    seen   # {"processing-time timers (Sessions)", "TTL of state 'open' (Sessions)"}

Spark's plan tells the time mode and the timeout, but not that a state expires: a processor says so when it is
initialised. So a copy of it is, with a handle that only takes notes.

Not seen: a TTL that is set outside of `init`, and a clock that is read by any other way than the one Spark offers
(`datetime.now()` in a processor or in a function).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import CodeType
from typing import Any

_METHODS = ("transformWithState", "transformWithStateInPandas", "applyInPandasWithState")
_CLOCKS = ("getCurrentProcessingTimeInMs", "getCurrentProcessingTimeMs")


@contextmanager
def watching() -> Iterator[set[str]]:
    """While it is open, what custom state asks of the clock is collected in the set that it gives."""
    from pyspark.sql.pandas.group_ops import PandasGroupedOpsMixin

    seen: set[str] = set()
    originals = {name: getattr(PandasGroupedOpsMixin, name) for name in _METHODS}
    for name, original in originals.items():
        setattr(PandasGroupedOpsMixin, name, _noting(original, seen))
    try:
        yield seen
    finally:
        for name, original in originals.items():
            setattr(PandasGroupedOpsMixin, name, original)


def _noting(original: Callable[..., Any], seen: set[str]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    def noted(*args: Any, **kwargs: Any) -> Any:
        with suppress(TypeError):
            seen.update(_uses(signature.bind(*args, **kwargs).arguments))
        return original(*args, **kwargs)

    return noted


def _uses(given: dict[str, Any]) -> Iterator[str]:
    if "statefulProcessor" in given:
        processor = given["statefulProcessor"]
        name = type(processor).__name__
        if str(given.get("timeMode", "")).lower() == "processingtime":
            yield f"processing-time timers ({name})"
        for state in _expiring(processor):
            yield f"TTL of state {state!r} ({name})"
        methods = [value for one in type(processor).__mro__ for value in vars(one).values()]
    else:
        function = given.get("func")
        name = getattr(function, "__name__", "function")
        if str(given.get("timeoutConf", "")).lower() == "processingtimetimeout":
            yield f"processing-time timeout ({name})"
        methods = [function]
    for method in methods:
        for asked in set(_CLOCKS) & _names(getattr(method, "__code__", None)):
            yield f"{asked}() ({name})"


def _names(code: CodeType | None) -> set[str]:
    """The attributes and globals that a function's code names, inner functions included."""
    if code is None:
        return set()
    return set(code.co_names).union(*(_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _expiring(processor: Any) -> list[str]:
    """The names of the states for which a copy of the processor asks a time to live."""
    from pyspark import cloudpickle
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

    found: list[str] = []

    class Notes(StatefulProcessorHandle):
        def __init__(self) -> None:
            """Holds no connection to Spark."""

        def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
            return self._state(stateName, ttlDurationMs)

        def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
            return self._state(stateName, ttlDurationMs)

        def getMapState(
            self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
        ) -> Any:
            return self._state(stateName, ttlDurationMs)

        def _state(self, name: str, ttl: int | None) -> Any:
            if ttl:
                found.append(name)
            return _Inert()

        def registerTimer(self, expiryTimestampMs: int) -> None: ...

        def deleteTimer(self, expiryTimestampMs: int) -> None: ...

        def listTimers(self) -> Iterator[int]:
            return iter(())

        def deleteIfExists(self, stateName: str) -> None: ...

    # The job's own code may fail on a handle that holds nothing: what it asked for until then counts.
    with suppress(Exception):
        copy = cloudpickle.loads(cloudpickle.dumps(processor))  # type: ignore[no-untyped-call]
        copy.init(Notes())
    return found


class _Inert:
    """A state that holds nothing and takes everything."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None
