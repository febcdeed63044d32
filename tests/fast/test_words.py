"""A word names one thing: no two classes have the same name, but for a sink and its settings."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "rekappa"


def test_every_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in sorted(SOURCES.rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(SOURCES)))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    sinks = {name for name, found in twice.items() if name.endswith("Sink") and "config/model.py" in found}
    assert {name: found for name, found in twice.items() if name not in sinks} == {}
