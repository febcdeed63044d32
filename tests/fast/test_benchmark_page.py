"""The benchmark page says what the results file says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))


def test_the_page_is_written_from_the_results() -> None:
    from benchmarks.__main__ import names
    from benchmarks._page import RESULTS, SECTIONS, page

    results = json.loads(RESULTS.read_text())
    assert set(SECTIONS) == set(names()), "every benchmark has its section"
    written = (ROOT / "docs" / "benchmarks.md").read_text()
    assert written == page(results), "run  python -m benchmarks._page > docs/benchmarks.md"
