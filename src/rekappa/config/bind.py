"""The app's code and its configuration, brought together: every parameter a source, every result a sink."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from rekappa.app import App, Job
from rekappa.config.load import FILE, Loaded, shorter
from rekappa.config.model import AppConfig
from rekappa.config.overrides import nearest
from rekappa.config.problems import Problem, place
from rekappa.errors import AppError

_ENTRY = "rekappa_app_"


@dataclass(frozen=True, slots=True)
class Query:
    """One streaming query: one output of one job, into one sink. Its name is the sink's."""

    name: str
    job: str
    output: str
    sink: str


def load_app(loaded: Loaded) -> App:
    """Import the entry file and check that it fits the configuration; refuses with `AppError`."""
    app = _app(_imported(loaded), loaded).with_lookups(loaded.config.lookups)
    found = list(_problems(app, loaded))
    if len(found) == 1:
        raise AppError(f"Cannot bind {found[0].place}: {found[0].text}", hint=found[0].hint)
    if found:
        lines = [f"  {item.place}: {item.text}" + (f" ({item.hint})" if item.hint else "") for item in found]
        raise AppError("\n".join([f"Cannot bind app {app.name!r}: {len(found)} problems", *lines]))
    return app


@contextmanager
def visiting_app(loaded: Loaded) -> Iterator[App]:
    """Import another version of an app for as long as the `with` lasts.

    Its files have the same names as those of the version that is here already: that one's modules step aside and come
    back afterwards, so that neither sees a file of the other, however late it imports it.
    """
    homes = {entry for entry in sys.path if (Path(entry) / FILE).is_file()}
    aside = {name: module for name, module in sys.modules.items() if _of_an_app(name, module, homes)}
    path = list(sys.path)
    for name in aside:
        del sys.modules[name]
    sys.path[:] = [entry for entry in path if entry not in homes]
    try:
        yield load_app(loaded)
    finally:
        own = {str(loaded.folder)}
        for name in [name for name, module in sys.modules.items() if _of_an_app(name, module, own)]:
            del sys.modules[name]
        sys.path[:] = path
        sys.modules.update(aside)


def _of_an_app(name: str, module: ModuleType, folders: set[str]) -> bool:
    """Whether the module is an app's entry, or was imported by its name from one of these folders."""
    if name.startswith(_ENTRY):
        return True
    file = getattr(module, "__file__", None)
    parts = name.split(".")
    return file is not None and any(
        Path(file) in (Path(folder, *parts).with_suffix(".py"), Path(folder, *parts, "__init__.py"))
        for folder in folders
    )


def queries(config: AppConfig, app: App) -> tuple[Query, ...]:
    """One query per sink, in the order of the jobs and their outputs."""
    made: list[Query] = []
    for job in app.jobs.values():
        for output in job.outputs:
            sinks = [name for name, sink in config.sinks.items() if (sink.job or name) == output]
            made += [Query(name, job.name, output, name) for name in sinks]
    return tuple(made)


def live_queries(loaded: Loaded, app: App) -> tuple[Query, ...]:
    """The queries of a live run: all, or, where some sinks are told to be elsewhere, those alone.

    A run that tries the app elsewhere begins at the beginning, with checkpoints of its own: in production's sinks it
    would write everything anew.
    """
    every = queries(loaded.config, app)
    return tuple(query for query in every if query.sink in loaded.elsewhere) if loaded.elsewhere else every


def _imported(loaded: Loaded) -> ModuleType:
    entry = loaded.folder / loaded.config.entry
    if not entry.is_file():
        near = nearest(loaded.config.entry, sorted(file.name for file in loaded.folder.glob("*.py")))
        raise AppError(f"Cannot import {shorter(entry)}: there is no such file", hint=f"`entry` names it. {near}")
    _make_importable(loaded.folder)
    before = set(sys.modules)
    module = ModuleType(f"{_ENTRY}{loaded.config.app.replace('-', '_')}")
    module.__file__ = str(entry)
    sys.modules[module.__name__] = module
    try:
        exec(compile(entry.read_bytes(), str(entry), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise _import_failed(error, entry, loaded.folder) from error
    _pickle_by_value([module, *(sys.modules[name] for name in set(sys.modules) - before)], loaded.folder)
    return module


def _make_importable(folder: Path) -> None:
    """Let the app import its neighbours, also later, when a job is called.

    A neighbour of the same name that an app in this process brought along before makes room, also if it is the same
    file: it may have changed since, and the code that is recorded must be the code that runs.
    """
    importlib.invalidate_caches()
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))
    for neighbour in [*folder.glob("*.py"), *folder.glob("*/__init__.py")]:
        name = neighbour.stem if neighbour.parent == folder else neighbour.parent.name
        file = getattr(sys.modules.get(name), "__file__", None)
        brought = file is not None and any((folder / FILE).is_file() for folder in Path(file).parents[:2])
        if brought and not name.startswith(("test_", "conftest")):
            for module in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
                del sys.modules[module]


def _pickle_by_value(modules: list[ModuleType], folder: Path) -> None:
    """Spark's Python workers can't import the app's own files: send them what is defined there."""
    from pyspark import cloudpickle

    for module in modules:
        file = getattr(module, "__file__", None)
        if file and folder in Path(file).resolve().parents and module.__name__ in sys.modules:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _import_failed(error: BaseException, entry: Path, folder: Path) -> AppError:
    at = shorter(entry)
    if isinstance(error, SyntaxError) and error.filename:
        at, reason = f"{shorter(Path(error.filename))}:{error.lineno}", f"SyntaxError: {error.msg}"
    else:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _within(frame.filename, folder)]
        if frames:
            at = f"{shorter(Path(frames[-1].filename))}:{frames[-1].lineno}"
        reason = error.message if isinstance(error, AppError) else f"{type(error).__name__}: {error}".rstrip(": ")
    hint = error.hint if isinstance(error, AppError) else None
    if "SESSION_OR_CONTEXT_NOT_EXISTS" in reason or _needs_spark(error):
        reason = reason if ": " in reason else f"{reason}: Spark is not there yet"
        hint = "The file is read before Spark starts: build columns and schemas inside the job."
    return AppError(f"Cannot import {at}: {reason}", hint=hint)


def _needs_spark(error: BaseException) -> bool:
    """Whether PySpark found no Spark to work with, which it says by a bare assertion in places."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, AssertionError) and bool(frames) and "pyspark" in Path(frames[-1].filename).parts


def _within(file: str, folder: Path) -> bool:
    return folder in Path(file).parents


def _app(module: ModuleType, loaded: Loaded) -> App:
    found = {id(value): value for value in vars(module).values() if isinstance(value, App)}
    named = [app for app in found.values() if app.name == loaded.config.app]
    if len(named) == 1:
        return named[0]
    entry = shorter(loaded.folder / loaded.config.entry)
    if not found:
        raise AppError(f"Cannot find an app in {entry}", hint=f'It needs a line like  app = App("{loaded.config.app}")')
    if named:
        raise AppError(f"Cannot choose an app in {entry}: it has {len(named)} named {loaded.config.app!r}")
    names = ", ".join(repr(app.name) for app in found.values())
    where = place(("app",), loaded.origins, shorter(loaded.file))
    raise AppError(
        f"Cannot bind {where}: app is {loaded.config.app!r}, but {entry} has App({names})",
        hint="Give both the same name.",
    )


def _problems(app: App, loaded: Loaded) -> Iterator[Problem]:
    config = loaded.config
    made: dict[str, Job] = {}
    for job in app.jobs.values():
        at = _defined(job)
        if not job.sources:
            yield Problem(at, f"job {job.name!r} reads lookups alone", "A job has at least one source beside them.")
        for source in job.sources:
            if source not in config.sources:
                yield Problem(
                    at,
                    f"job {job.name!r} reads {source!r}, which is no source and no lookup",
                    nearest(source, (*config.sources, *config.lookups)),
                )
        for output in job.outputs:
            if output in made:
                yield Problem(at, f"jobs {made[output].name!r} and {job.name!r} both make {output!r}")
            made[output] = job
    taken = {sink.job or name for name, sink in config.sinks.items()}
    for output, job in made.items():
        if output not in taken:
            alike = config.sinks.get(output)
            hint = f"Sink {output!r} takes {alike.job!r}." if alike is not None else nearest(output, config.sinks)
            yield Problem(_defined(job), f"job {job.name!r} makes {output!r}, which no sink takes", hint)
    for name, sink in config.sinks.items():
        wanted = sink.job or name
        if wanted not in made:
            path = ("sinks", name, "job") if sink.job else ("sinks", name)
            where = place(path, loaded.origins, shorter(loaded.file))
            yield Problem(where, f"sink {name!r} takes {wanted!r}, which no job makes", nearest(wanted, made))


def _defined(job: Job) -> str:
    code = getattr(job.body, "__code__", None)
    return f"{shorter(Path(code.co_filename))}:{code.co_firstlineno}" if code else job.name
