"""Values that are kept for the next runs of an app, in place of those of rekappa.yaml."""

from __future__ import annotations

from rekappa.config.load import load
from rekappa.errors import ConfigError
from rekappa.masking import hidden, is_secret_name
from rekappa.operations.core import Core


def keep_override(core: Core, app: str, text: str) -> None:
    """Keep `KEY=VALUE`; refuses what the configuration would refuse, and secrets."""
    key, value = keepable(core, app, text)
    desk = core.desk()
    desk.tell(core.who, core.face, "override", app, None, key=key, value=value)
    desk.override(app, key, value, core.who)


def keepable(core: Core, app: str, text: str) -> tuple[str, str]:
    """The key and the value of what may be kept; refuses the rest."""
    key, equals, value = (part.strip() for part in text.partition("="))
    if not key or not equals:
        raise ConfigError(f"Cannot use {text!r}: write it as KEY=VALUE")
    if key == "app":
        raise ConfigError("Cannot keep another name of an app: what is kept is found by its name")
    if any(ord(letter) < 32 for letter in value):
        raise ConfigError(f"Cannot keep a value for {key!r}: it holds a sign that can't be written")
    if is_secret_name(key) or hidden(value) != value:
        raise ConfigError(
            f"Cannot keep a value for {key!r}: it looks like a secret, and would be shown",
            hint="Name it in rekappa.yaml as ${VARIABLE}, and set that variable.",
        )
    found = core.app(app)
    others = [one.text for one in core.desk().overrides(app) if one.key != key]
    load(found.folder, overrides=(*others, f"{key}={value}"))
    return key, value


def drop_override(core: Core, app: str, key: str) -> None:
    """Take a kept value back: rekappa.yaml's counts again."""
    desk = core.desk()
    if key not in {one.key for one in desk.overrides(app)}:
        raise ConfigError(f"Cannot take back {key!r}: no value is kept for it")
    desk.tell(core.who, core.face, "override", app, None, key=key, value=None)
    desk.override(app, key, None, core.who)
