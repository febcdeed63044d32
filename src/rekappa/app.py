"""What a user writes: an `App` and its jobs.

    app = App("rmi")

    @app.job
    def plays(impressions: DataFrame, playbacks: DataFrame) -> DataFrame: ...

Parameters are bound to sources by name, the result to the sink of the job's name. A job with several
results declares their sinks and returns them by name:

    @app.job(sinks=["plays", "rates"])
    def both(impressions): return {"plays": ..., "rates": ...}

The decorator returns the function unchanged: a job can be called, tested and moved like any other. A
parameter with a default is not a source: it keeps its default. One that the configuration declares as a lookup gets a
`Lookup` instead of a stream, or `Answers` if it is a service.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rekappa.errors import AppError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rekappa.answers import Answers
    from rekappa.lookup import Lookup

_NOT_CALLED_AT_ONCE: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (inspect.iscoroutinefunction, "an async function"),
    (inspect.isasyncgenfunction, "an async generator"),
    (inspect.isgeneratorfunction, "a generator"),
)
Body = TypeVar("Body", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Job:
    """One streaming computation: which sources it reads, which outputs it makes.

    `lookups` are its parameters that are tables or services as they were then; `given` holds those that are open.
    """

    name: str
    sources: tuple[str, ...]
    outputs: tuple[str, ...]
    body: Callable[..., Any]
    lookups: tuple[str, ...] = ()
    given: Mapping[str, Lookup | Answers] = field(default_factory=dict)

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.body) or ""

    def results(self, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """Call the job; answer one DataFrame per output name."""
        opened = {name: self.given[name] for name in self.lookups}
        made = self.body(**{name: inputs[name] for name in self.sources}, **opened)
        if not isinstance(made, Mapping):
            if self.outputs != (self.name,):
                raise AppError(
                    f"Job {self.name!r} declares sinks {list(self.outputs)} but returned one {type(made).__name__}",
                    hint="Return a dict with one DataFrame per declared sink.",
                )
            made = {self.name: made}
        if set(made) != set(self.outputs):
            raise AppError(
                f"Job {self.name!r} returned {sorted(made)} but its sinks are {sorted(self.outputs)}",
                hint="Declare every result with @app.job(sinks=[...]).",
            )
        for output, value in made.items():
            if not hasattr(value, "isStreaming"):
                raise AppError(
                    f"Job {self.name!r} returned {type(value).__name__} for {output!r}, not a DataFrame",
                    hint="Does every path through the function return its result?",
                )
        return dict(made)


class App:
    """A named set of jobs. `rekappa.yaml` beside it says where its sources and sinks are."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._jobs: dict[str, Job] = {}

    @property
    def jobs(self) -> Mapping[str, Job]:
        return dict(self._jobs)

    def with_lookups(self, names: Collection[str]) -> App:
        """The same app, whose parameters of these names are lookups, not sources."""
        made = copy(self)
        made._jobs = {
            name: replace(
                job,
                sources=tuple(one for one in job.sources if one not in names),
                lookups=tuple(one for one in job.sources if one in names),
            )
            for name, job in self._jobs.items()
        }
        return made

    @overload
    def job(self, body: Body) -> Body: ...
    @overload
    def job(self, *, sinks: Sequence[str]) -> Callable[[Body], Body]: ...
    def job(self, body: Body | None = None, *, sinks: Sequence[str] = ()) -> Body | Callable[[Body], Body]:
        """Register a function as a job; with `sinks`, it returns a dict of results by these names."""
        if body is not None:
            return self._add(body, ())
        listed = isinstance(sinks, Sequence) and not isinstance(sinks, str)
        if not listed or not all(isinstance(name, str) and name for name in sinks):
            raise AppError(
                f"Cannot use sinks={sinks!r}: it must be a list of names",
                hint='For example  @app.job(sinks=["plays", "rates"])',
            )
        return lambda function: self._add(function, tuple(sinks))

    def _add(self, body: Body, sinks: tuple[str, ...]) -> Body:
        name = getattr(body, "__name__", "")
        if not name:
            raise AppError(
                f"Cannot make a job of {body!r}: it has no name",
                hint="Write a function with def; its name is the sink's.",
            )
        if name in self._jobs:
            raise AppError(f"App {self.name!r} has two jobs named {name!r}", hint="Rename one of the functions.")
        if len(set(sinks)) < len(sinks):
            raise AppError(f"Job {name!r} names a sink twice: {list(sinks)}")
        for is_one, kind in _NOT_CALLED_AT_ONCE:
            if is_one(inspect.unwrap(body)):
                raise AppError(
                    f"Job {name!r} is {kind}: it must return its result when it is called",
                    hint="Write a plain function that returns a DataFrame: Spark runs over the events.",
                )
        parameters = inspect.signature(body).parameters.values()
        odd = [p.name for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY)]
        sources = tuple(p.name for p in parameters if p.default is p.empty)
        if odd or not sources:
            raise AppError(
                f"Job {name!r} must name each source it reads as a parameter" + (f", not {odd[0]!r}" if odd else ""),
                hint="For example  def clicks(impressions, playbacks): ...",
            )
        self._jobs[name] = Job(name, sources, sinks or (name,), body)
        return body
