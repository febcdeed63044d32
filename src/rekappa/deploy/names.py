"""Names that Kubernetes and DNS accept."""

from __future__ import annotations

import hashlib
import re

from rekappa.errors import ConfigError

LONGEST = 40
"""Room for `-router` and for what Spark adds to the names of executors: it takes a prefix of at most 47 letters."""
_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?\Z")


def label(app: str) -> str:
    """An app's name as a DNS label, `_` written as `-`. One that has to be cut stays apart from others by a hash."""
    plain = app.replace("_", "-")
    if len(plain) <= LONGEST and _LABEL.match(plain):
        return plain
    mark = hashlib.sha256(app.encode()).hexdigest()[:8]
    return f"{plain[: LONGEST - 9].rstrip('-')}-{mark}"


def require_label(text: str, what: str, longest: int = 63) -> str:
    """The same text; refuses one that is no DNS label or is too long."""
    if not _LABEL.match(text) or len(text) > longest:
        raise ConfigError(
            f"Cannot use {what} {text!r}: it is no DNS label of at most {longest} letters",
            hint="Use lower-case letters, digits and -, beginning with a letter and ending with a letter or digit.",
        )
    return text
