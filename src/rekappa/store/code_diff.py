"""The difference between two kept versions of an app's code, as people read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import unified_diff


def code_diff(before: Mapping[str, bytes], after: Mapping[str, bytes], names: tuple[str, str]) -> str:
    """A unified diff of all files, `names` being what the two versions are called; empty if they are equal."""
    return "".join(_lines(before, after, names))


def _lines(before: Mapping[str, bytes], after: Mapping[str, bytes], names: tuple[str, str]) -> Iterator[str]:
    for name in sorted({*before, *after}):
        one, two = before.get(name), after.get(name)
        if one == two:
            continue
        was = "/dev/null" if one is None else f"{names[0]}/{name}"
        now = "/dev/null" if two is None else f"{names[1]}/{name}"
        if not one and not two:
            yield f"Empty file: {was} became {now}\n"
            continue
        left, right = _text(one), _text(two)
        if left is None or right is None:
            yield f"Binary files {was} and {now} differ\n"
            continue
        for line in unified_diff(left, right, was, now):
            yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _text(content: bytes | None) -> list[str] | None:
    """The lines; None for what is not text."""
    try:
        return (content or b"").decode("utf-8").splitlines(keepends=True)
    except UnicodeDecodeError:
        return None
