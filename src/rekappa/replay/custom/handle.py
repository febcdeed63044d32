"""The handle of a `StatefulProcessor` with the state of one key in memory: what Spark's handle does, without Spark.

    handle = KeyHandle(schemas)
    processor.init(handle)
    handle.open()               # the next key: what the processor sees and changes from now on is its state
    handle.expired(watermark)   # the timers that are due, lowest first

State lives as long as its key is driven; nothing is shared between keys. What is refused is what Spark refuses, and
what would ask the clock: a time to live, processing-time timers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from rekappa.errors import RunError
from rekappa.replay.custom.values import Stored, through

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class _Variable:
    """A named part of the open key's state. A variable without a value is not in the key's state at all."""

    def __init__(self, handle: KeyHandle, name: str, stored: Stored) -> None:
        self._handle, self._name, self._stored = handle, name, stored

    def exists(self) -> bool:
        return self._name in self._handle.variables

    def clear(self) -> None:
        self._handle.variables.pop(self._name, None)


class MemoryValue(_Variable):
    """One value."""

    def get(self) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._handle.variables.get(self._name)
        return found

    def update(self, newValue: tuple[Any, ...]) -> None:
        self._handle.variables[self._name] = self._stored(newValue)


class MemoryList(_Variable):
    """A list that keeps its order."""

    def get(self) -> Iterator[tuple[Any, ...]]:
        # As in Spark: looked up when the first element is asked for, and what is appended after that is not seen.
        yield from tuple(self._handle.variables.get(self._name, ()))

    def put(self, newState: list[tuple[Any, ...]]) -> None:
        self._handle.variables[self._name] = self._some(newState)

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        self.appendList([newState])

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:
        more = self._some(newState)
        self._handle.variables.setdefault(self._name, []).extend(more)

    def _some(self, values: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        stored = [self._stored(value) for value in values]
        if not stored:
            raise ValueError(f"Cannot write an empty list to state {self._name!r}: Spark refuses it; use clear()")
        return stored


class MemoryMap(_Variable):
    """A map from user keys to values. Its order is that in which keys came; Spark promises none."""

    def __init__(self, handle: KeyHandle, name: str, key: Stored, value: Stored, make: Callable[..., Any]) -> None:
        super().__init__(handle, name, value)
        self._key, self._make = key, make

    def getValue(self, key: tuple[Any, ...]) -> Any:
        found = self._entries.get(_hashable(self._key(key)))
        return None if found is None else self._make(*found[1])

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        return _hashable(self._key(key)) in self._entries

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        own = self._key(key)
        self._handle.variables.setdefault(self._name, {})[_hashable(own)] = (own, self._stored(value))

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        yield from tuple(self._entries.values())

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return (key for key, _ in self.iterator())

    def values(self) -> Iterator[tuple[Any, ...]]:
        return (value for _, value in self.iterator())

    def removeKey(self, key: tuple[Any, ...]) -> None:
        if self.exists():
            self._entries.pop(_hashable(self._key(key)), None)
            if not self._entries:
                self.clear()

    @property
    def _entries(self) -> dict[Any, tuple[tuple[Any, ...], tuple[Any, ...]]]:
        found: dict[Any, tuple[tuple[Any, ...], tuple[Any, ...]]] = self._handle.variables.get(self._name, {})
        return found


class KeyHandle:
    """What `init` gets. `schemas` are those that a processor declares as text: only Spark's parser reads them.

    All that the open key holds are its `variables` by name, and the times (ms) of its `timers`.
    """

    def __init__(self, schemas: Mapping[str, StructType] | None = None, *, timed: bool = True) -> None:
        self.variables: dict[str, Any] = {}
        self.timers: set[int] = set()
        self._schemas, self._timed = dict(schemas or {}), timed

    def open(self) -> None:
        """Begin with the next key, which holds nothing yet."""
        # Cleared, not made anew: there may be as many keys as events.
        self.variables.clear()
        self.timers.clear()

    def expired(self, watermark: int) -> list[int]:
        """The timers that are due, lowest first. Those that are set while these fire are not among them."""
        return sorted([moment for moment in self.timers if moment <= watermark])

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> MemoryValue:
        self._refuse_ttl(stateName, ttlDurationMs)
        return MemoryValue(self, stateName, through(self._schema(schema)))

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> MemoryList:
        self._refuse_ttl(stateName, ttlDurationMs)
        return MemoryList(self, stateName, through(self._schema(schema)))

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> MemoryMap:
        from pyspark.sql import Row

        self._refuse_ttl(stateName, ttlDurationMs)
        value = self._schema(valueSchema)
        key = through(self._schema(userKeySchema))
        return MemoryMap(self, stateName, key, through(value), Row(*value.names))

    def registerTimer(self, expiryTimestampMs: int) -> None:
        if not self._timed:
            self._refuse_timers()
        self.timers.add(int(expiryTimestampMs))

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        if not self._timed:
            self._refuse_timers()
        self.timers.discard(int(expiryTimestampMs))

    def listTimers(self) -> Iterator[int]:
        if not self._timed:
            self._refuse_timers()
        return iter(sorted(self.timers))

    def deleteIfExists(self, stateName: str) -> None:
        """Removes a variable that an earlier version of the processor kept: a replay begins without any."""

    def _schema(self, declared: Any) -> StructType:
        found: StructType = self._schemas[declared] if isinstance(declared, str) else declared
        return found

    def _refuse_timers(self) -> NoReturn:
        raise RunError("Cannot use timers: the processor's time mode is None")

    def _refuse_ttl(self, name: str, ttl: int | None) -> None:
        if ttl:
            raise RunError(
                f"Cannot replay state {name!r} in bulk mode: it expires by the clock after {ttl} ms",
                hint="Let an event-time timer clear it, or use --mode ordered.",
            )


def _hashable(value: Any) -> Any:
    """A user key as something that a dictionary takes: arrays and maps inside it are frozen."""
    if isinstance(value, list | tuple):
        return tuple(_hashable(part) for part in value)
    if isinstance(value, dict):
        return tuple(sorted((_hashable(key), _hashable(part)) for key, part in value.items()))
    return value
