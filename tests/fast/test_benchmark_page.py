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


def test_the_readme_says_what_the_results_say() -> None:
    from benchmarks._page import RESULTS
    from benchmarks._readme import HEADING, NEXT, how_fast

    said = (ROOT / "README.md").read_text().partition(HEADING)[2].partition(NEXT)[0]
    assert said == "\n" + how_fast(json.loads(RESULTS.read_text())), "run  python -m benchmarks._readme"


def test_a_target_that_is_missed_is_told() -> None:
    from benchmarks._page import missed, page

    result = {"cost": {"never_reached_to_plain": 9.6}, "kept": []}
    (told,) = missed("rate", result)
    assert told.endswith("9.6, wanted at most 2")
    entry = {"at": "2026-11-18T00:00:00", "machine": "2 cores", "result": result}
    assert "| 9.6 | at most 2: **missed** |" in page({"rate": entry})
    assert missed("rate", {"cost": {"never_reached_to_plain": 1.1}}) == []
    assert missed("sessions", {"bulk_to_ordered_15_min": 39.9})
    assert not missed("sessions", {"bulk_to_ordered_15_min": 40.0})
