"""Fixtures that every test may use: a project folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekappa.home import Home


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """One project folder for the whole test run: the broker and the catalog live here."""
    root: Path = tmp_path_factory.mktemp("project") / ".rekappa"
    root.mkdir()
    return Home(root)
