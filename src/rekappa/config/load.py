"""From `rekappa.yaml`, the environment and --set to one checked `AppConfig`.

    loaded = load("examples/take_rate", overrides=["sources.playbacks.selected=backfill"])

Everything that can be known without the app's code is checked here; `rekappa.config.bind` checks the rest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from rekappa.config import check, problems
from rekappa.config.document import parse
from rekappa.config.model import PLAIN, AppConfig, SinkBase, SinkChoice
from rekappa.config.origin import DEFAULT, Origin, Path
from rekappa.config.overrides import Override, apply, from_environment, from_flags, nearest
from rekappa.errors import ConfigError

FILE = "rekappa.yaml"


@dataclass(frozen=True, slots=True)
class Loaded:
    """An app's configuration, the folder it stands in, and where each value came from.

    `elsewhere` names the sinks for which another candidate is selected than the file selects, and that candidate:
    what is written to them is not production.
    """

    config: AppConfig
    folder: FilePath
    file: FilePath
    overrides: tuple[str, ...] = field(default=(), repr=False)
    origins: Mapping[Path, Origin] = field(default_factory=dict, repr=False)
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def origin(self, *path: str | int) -> Origin:
        """Where the value at this path came from; the default if nobody set it."""
        return self.origins.get(path, DEFAULT)


def load(app: str | FilePath, *, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Loaded:
    """Read and check one app's configuration; refuses with `ConfigError` that names file and line.

    `app` is a folder, its rekappa.yaml, or the name of an app in ./NAME, ./examples/NAME or the current folder.
    """
    file = locate(app)
    surroundings = os.environ if environ is None else environ
    name = shorter(file)
    document = parse(text_of(file), name, surroundings)
    if not isinstance(document.values, dict):
        raise ConfigError(
            f"Cannot read {name}: it must be a mapping that begins with `app: NAME`",
            hint="`rekappa new NAME` writes a complete example.",
        )
    values, origins = document.values, document.origins
    _collect_spark(values, origins)
    production = _selections(values)
    applied: dict[Path, Override] = {}
    for override in [*from_environment(surroundings, values), *from_flags(overrides)]:
        apply(override, values, origins)
        applied[override.path] = override
    _share(values, origins)
    _name_null(values)
    _name_formats(values, origins)
    config = _validated(values, origins, applied, name)
    found = check.problems(config, file.parent, origins, name)
    if found:
        raise problems.refused(found, name)
    now = {name: choice.selected for name, choice in config.choices.items()}
    elsewhere = {name: selected for name, selected in now.items() if selected != production.get(name, selected)}
    return Loaded(config, file.parent, file, tuple(overrides), origins, elsewhere)


def require_production(loaded: Loaded, doing: str) -> None:
    """Refuse a configuration in which a sink is not the one that the file selects: `doing` always means that one."""
    for name in loaded.elsewhere:
        told = loaded.origin("sinks", name, "selected")
        raise ConfigError(
            f"Cannot {doing} with {told}: that always means the sink that {shorter(loaded.file)} selects",
            hint=f"Leave it out; `rekappa run` takes it. To change production itself, change sinks.{name}.selected.",
        )


def locate(app: str | FilePath) -> FilePath:
    """The rekappa.yaml that `app` means."""
    text = str(app)
    if not text or "\0" in text:
        raise ConfigError(f"Cannot find app {text!r}", hint="Name an app or a folder that holds a rekappa.yaml.")
    try:
        return _located(text)
    except OSError as error:
        raise ConfigError(f"Cannot find app {text[:80]!r}: {error.strerror}") from None


def _located(text: str) -> FilePath:
    path = FilePath(text)
    if path.is_file():
        return path.resolve()
    bare = len(path.parts) == 1 and text not in (".", "..")
    folders = (path, FilePath("examples") / text) if bare else (path,)
    for folder in folders:
        if (folder / FILE).is_file():
            return (folder / FILE).resolve()
    if bare and _declared(FilePath(FILE)) == text:
        return FilePath(FILE).resolve()
    if path.is_dir():
        raise ConfigError(f"Cannot find app {text!r}: the folder has no {FILE}", hint="`rekappa new NAME` makes one.")
    known = sorted(
        {found.parent.name for pattern in ("*/", "examples/*/") for found in FilePath().glob(pattern + FILE)}
    )
    hint = nearest(text, known) if known else "Name a folder that holds a rekappa.yaml, or make one: rekappa new NAME"
    raise ConfigError(f"Cannot find app {text!r}", hint=hint)


def shorter(file: FilePath) -> str:
    """The path as a person in the current folder would write it."""
    try:
        return str(file.relative_to(FilePath.cwd()))
    except ValueError:
        return str(file)


def _declared(file: FilePath) -> str | None:
    if not file.is_file():
        return None
    for line in file.read_text("utf-8", errors="replace").splitlines():
        if line.startswith("app:"):
            return line.removeprefix("app:").split("#")[0].strip().strip("'\"")
    return None


def text_of(file: FilePath) -> str:
    """What stands in the file; refuses with `ConfigError` what is not UTF-8 text."""
    try:
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        raise ConfigError(f"Cannot read {shorter(file)}:{line}: it is not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"Cannot read {shorter(file)}: {error.strerror}") from None


def _collect_spark(values: dict[str, Any], origins: dict[Path, Origin]) -> None:
    """Move `spark.…` keys that stand directly in a profile under its `spark`, where overrides go too."""
    profiles = values.get("profiles")
    for name, profile in profiles.items() if isinstance(profiles, dict) else ():
        if not isinstance(profile, dict) or not isinstance(profile.get("spark") or {}, dict):
            continue
        loose = [key for key in profile if key.startswith("spark.")]
        if not loose:
            continue
        under = profile["spark"] = dict(profile.get("spark") or {})
        for key in loose:
            origin = origins.pop(("profiles", name, key))
            if key in under:
                raise ConfigError(
                    f"Cannot read {origin}: profiles.{name}.{key} is already set "
                    f"on line {origins[('profiles', name, 'spark', key)].line}",
                    hint="Keep one of the two.",
                )
            under[key] = profile.pop(key)
            origins[("profiles", name, "spark", key)] = origin


def _name_null(values: dict[str, Any]) -> None:
    """`type: null` is YAML's nothing, but means the sink of that name."""
    for sink in _mappings(values.get("sinks")).values():
        for one in (sink, *_mappings(sink.get("candidates")).values()):
            if "type" in one and one["type"] is None:
                one["type"] = "null"


def _name_formats(values: dict[str, Any], origins: dict[Path, Origin]) -> None:
    """`format: avro` is `format: {type: avro}`, set by whoever set the word."""
    for name, source in _mappings(values.get("sources")).items():
        here = ("sources", name, "format")
        if isinstance(source.get("format"), str):
            source["format"] = {"type": source["format"]}
            origins[(*here, "type")] = origins.get(here, DEFAULT)


def _selections(values: dict[str, Any]) -> dict[str, str]:
    """Which candidate the file selects of each sink: production."""
    default = str(SinkChoice.model_fields["selected"].default)
    return {
        name: sink.get("selected", default) if "candidates" in sink else PLAIN
        for name, sink in _mappings(values.get("sinks")).items()
    }


def _share(values: dict[str, Any], origins: dict[Path, Origin]) -> None:
    """Give what stands beside a sink's candidates to each of them that does not say it itself."""
    for name, sink in _mappings(values.get("sinks")).items():
        candidates = _mappings(sink.get("candidates"))
        for key in [key for key in sink if key in SinkBase.model_fields and candidates]:
            shared, here = sink.pop(key), ("sinks", name, key)
            moved = {path: origins.pop(path) for path in [path for path in origins if path[:3] == here]}
            for candidate, one in candidates.items():
                if key not in one:
                    one[key] = deepcopy(shared)
                    there = ("sinks", name, "candidates", candidate, key)
                    origins.update({(*there, *path[3:]): origin for path, origin in moved.items()})


def _mappings(value: Any) -> dict[str, dict[str, Any]]:
    """The members of a mapping that are mappings; what has another shape is refused later, by the model."""
    return {name: one for name, one in value.items() if isinstance(one, dict)} if isinstance(value, dict) else {}


def _validated(
    values: dict[str, Any], origins: dict[Path, Origin], applied: Mapping[Path, Override], name: str
) -> AppConfig:
    try:
        return AppConfig.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False)
    # A word like 2026 or true from outside the file is text where text is wanted.
    again = False
    for item in found:
        path = problems.walk(item, values)
        override = applied.get(path)
        if item["type"] == "string_type" and override is not None and isinstance(override.value, bool | int | float):
            apply(Override(override.path, override.text, override.text, override.origin), values, origins)
            again = True
    if again:
        return _validated(values, origins, {}, name)
    raise problems.refused(problems.translated(found, values, origins, name), name)
