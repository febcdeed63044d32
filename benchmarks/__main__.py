"""`python -m benchmarks [NAME ...]`: run the benchmarks, or the named ones, and keep what they report.

A benchmark is a module of this folder whose `main()` returns what it measured, as JSON knows it. Each runs in a
process of its own, so that no Spark session, cache or warm JVM of one helps another. Results are merged by
name into results.json: a benchmark that was not run, or failed, keeps its last result. docs/benchmarks.md and the
README's paragraph are written from them. Exits with 1 where a benchmark failed or a target was missed.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks._page import missed, page
from benchmarks._readme import README, with_figures

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"
PAGE = FOLDER.parent / "docs" / "benchmarks.md"
_CHILD = """
import importlib, json, sys
from pathlib import Path
Path(sys.argv[2]).write_text(json.dumps(importlib.import_module(sys.argv[1]).main()))
"""


def names() -> list[str]:
    """Every benchmark there is; modules with an underscore are what benchmarks share."""
    files = sorted(FOLDER.glob("[!_]*.py"))
    return [file.stem for file in files if "\ndef main(" in file.read_text()]


def run(name: str) -> dict[str, Any] | None:
    """One benchmark's entry for the results file; None when it failed."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "result.json")
        began = time.monotonic()
        command = [sys.executable, "-c", _CHILD, f"benchmarks.{name}", str(answer)]
        done = subprocess.run(command, cwd=FOLDER.parent, check=False)
        if done.returncode or not answer.exists():
            return None
        return {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - began, 1),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
            "result": json.loads(answer.read_text()),
        }


def main(wanted: list[str]) -> int:
    known = names()
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        print(f"error: no benchmark {', '.join(unknown)}\nhint: there are {', '.join(known)}", file=sys.stderr)
        return 2
    failed, short = [], []
    for name in wanted or known:
        print(f"== {name}", flush=True)
        entry = run(name)
        if entry is None:
            failed.append(name)
            continue
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results[name] = entry
        RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
        write_pages(json.loads(RESULTS.read_text()))
        print(json.dumps(entry["result"], indent=2))
        short += [f"{name}: {words}" for words in missed(name, entry["result"])]
    for line in short:
        print(f"error: missed: {line}", file=sys.stderr)
    if failed:
        print(f"error: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed or short else 0


def write_pages(results: dict[str, Any]) -> None:
    """The page and the README's paragraph anew."""
    PAGE.write_text(page(results))
    README.write_text(with_figures(README.read_text(), results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
