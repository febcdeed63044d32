"""Pictures of the main pages: `make screens` writes them into docs/screens/."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from console.browser import browser
from console.sample import ADVICE, DONE, LIVE, PLAN, PUBLISHED, TOKEN, sample_console, served

PAGES = {
    "apps": "/",
    "app": "/apps/plays",
    "runs": "/runs",
    "run": f"/runs/{DONE}",
    "live": f"/runs/{LIVE}",
    "backfill": f"/apps/plays/backfill?start=2026-11-01T12:40Z&end=2026-11-01T14:00Z&plan={PLAN}",
    "validation": f"/runs/{DONE}/validation",
    "publish": f"/runs/{DONE}/publish",
    "published": f"/runs/{PUBLISHED}/publish",
    "archive": "/apps/plays/archive",
    "checkpoints": "/apps/plays/checkpoints",
    "advice": f"/apps/plays/advise?start=2026-11-01T12:40Z&end=2026-11-01T14:00Z&task={ADVICE}",
    "job": "/tasks/task_20261101_145500_cccc",
    "audit": "/audit",
    "topic": "/topics/rates",
}


SHOWN = ["apps", "backfill", "validation", "publish", "checkpoints", "advice", "backfill-dark", "run-phone"]
"""What docs/console.md shows; others by their names."""


def main(folder: Path, wanted: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    project = Path(tempfile.gettempdir()) / "rekappa-demo"
    shutil.rmtree(project, ignore_errors=True)
    with browser() as opened, served(sample_console(project)) as address:
        for scheme, width, mark in (("light", 1200, ""), ("dark", 1200, "-dark"), ("light", 390, "-phone")):
            page = opened.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto(f"{address}/login?token={TOKEN}")
            for name, path in PAGES.items():
                if name + mark not in (wanted or SHOWN):
                    continue
                page.goto(address + path)
                page.wait_for_load_state("load")
                if name == "backfill":
                    page.wait_for_selector("#estimate table")
                page.screenshot(path=folder / f"{name}{mark}.png", full_page=True)
            page.close()
    shutil.rmtree(project, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
