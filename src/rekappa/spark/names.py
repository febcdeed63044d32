"""Names of columns as Spark's SQL and its functions read them: a dot or a backtick in one means nothing more."""

from __future__ import annotations


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
