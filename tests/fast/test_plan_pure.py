"""The planner stands on the standard library: it can be imported where nothing else is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import rekappa.plan

PROBE = """
import sys
before = set(sys.modules)
for name in sys.argv[1:]:
    __import__(name)
roots = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(roots - set(sys.stdlib_module_names) - {"rekappa"}))
"""


def test_planning_imports_nothing_but_the_standard_library() -> None:
    modules = [f"rekappa.plan.{file.stem}" for file in Path(rekappa.plan.__file__).parent.glob("[!_]*.py")]
    done = subprocess.run([sys.executable, "-c", PROBE, *modules], check=True, capture_output=True, text=True)
    assert "rekappa.plan.ordered" in modules
    assert done.stdout.split() == []
