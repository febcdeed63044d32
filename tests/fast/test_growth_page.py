"""The table of what grows: every row says what bounds it, and names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "growth.md").read_text()


def test_every_row_names_its_test() -> None:
    table = PAGE.split("\n\n")[1].splitlines()
    assert table[0].split("|")[4].strip() == "shown in"
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[2:]]
    assert len(rows) > 15
    for what, _, bounded, shown in rows:
        assert bounded, what
        named = re.findall(r"`([a-z]+/test_\w+\.py)`", shown)
        assert named, what
        for one in named:
            assert (TESTS / one).is_file(), one
