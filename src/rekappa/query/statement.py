"""A statement of SQL, as far as names of tables go. Pure: Spark's own parser reads the rest.

Names like `staging.plays` are two words to SQL. In a statement they become one, in backticks, under which the table is
registered; strings, comments and longer names are left as they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from rekappa.errors import InputError

_TOKEN = re.compile(
    r"(?P<space>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")"
    r"|(?P<name>`(?:[^`]|``)*`|[^\W\d]\w*)"
    r"|(?P<other>\d\w*|.)",
    re.DOTALL,
)
QUERIES = ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "(")
"""The words with which a statement begins that only reads (Spark's parser has the last word on that)."""


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str

    @property
    def name(self) -> str:
        """What a name means: without backticks, whatever its case."""
        bare = self.text[1:-1].replace("``", "`") if self.text.startswith("`") else self.text
        return bare.lower()


def tokens(sql: str) -> list[Token]:
    """All of it, cut into pieces."""
    return [Token(match.lastgroup or "other", match.group()) for match in _TOKEN.finditer(sql)]


def require_query(sql: str) -> None:
    """Refuse what does not even begin as a query does."""
    first = next((one.text.upper() for one in tokens(sql) if one.kind != "space"), "nothing")
    if first not in QUERIES:
        raise refusal(first)


def refusal(what: str) -> InputError:
    """What is said of a statement that would do this."""
    return InputError(
        f"Cannot run {what} here: a query only reads", hint="Begin with SELECT, WITH, VALUES, FROM or TABLE."
    )


def mentioned(sql: str, known: Collection[str]) -> set[str]:
    """Which of the known names stand anywhere in the statement; a column of that name counts too."""
    return {name for _, _, name in _found(tokens(sql), known)}


def with_plain_names(sql: str, known: Collection[str]) -> str:
    """The statement with every known name in backticks, as one word."""
    cut = tokens(sql)
    for first, last, name in reversed(list(_found(cut, known))):
        if "." in name:
            cut[first : last + 1] = [Token("name", f"`{name}`")]
    return "".join(one.text for one in cut)


def _found(cut: list[Token], known: Collection[str]) -> Iterator[tuple[int, int, str]]:
    """The first and last token of each known name, and the name."""
    spelled = {name.lower(): name for name in known}
    solid = [at for at, one in enumerate(cut) if one.kind != "space"]
    skip = 0
    for index, at in enumerate(solid):
        if index < skip or cut[at].kind != "name" or (index and cut[solid[index - 1]].text == "."):
            continue
        after = [cut[place] for place in solid[index + 1 : index + 3]]
        pair = f"{cut[at].name}.{after[1].name}" if len(after) == 2 and after[0].text == "." else ""
        if pair in spelled and after[1].kind == "name":
            skip = index + 3
            yield at, solid[index + 2], spelled[pair]
        elif cut[at].name in spelled:
            yield at, at, spelled[cut[at].name]
