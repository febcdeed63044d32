"""The example in docs/plan.md is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "plan.md"


def test_the_example_holds() -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 1
    exec(compile(examples[0], str(PAGE), "exec"), {})
