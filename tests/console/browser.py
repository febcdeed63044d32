"""A real browser: the machine's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOW = "no Chromium on this machine: `apt-get install chromium`, or name one with CHROMIUM=/path"


def chromium() -> str | None:
    """Its path: the one that CHROMIUM names, or what the system has."""
    named = os.environ.get("CHROMIUM")
    return named or next((found for name in ("chromium", "chromium-browser", "google-chrome")
                          if (found := shutil.which(name))), None)  # fmt: skip


@contextmanager
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    options: dict[str, Any] = {"executable_path": chromium(), "args": ["--no-sandbox"] if os.geteuid() == 0 else []}
    with sync_playwright() as running:
        opened = running.chromium.launch(**options)
        yield opened
        opened.close()
