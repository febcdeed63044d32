"""docs/configure.md is true: its files load, and it names every key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from rekappa.config.load import load
from rekappa.config.model import AppConfig

PAGE = (Path(__file__).parents[2] / "docs" / "configure.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", BLOCKS, ids=["smallest", "everything"])
def test_the_examples_load(tmp_path: Path, text: str) -> None:
    (tmp_path / "rekappa.yaml").write_text(text)
    assert load(tmp_path, environ={}).config.app == "shop"


def keys(kind: Any) -> Iterator[str]:
    """Every key of a model and of the models inside it."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            yield field.alias or name
            yield from keys(field.annotation)
    for inner in get_args(kind):
        yield from keys(inner)


@pytest.mark.parametrize("key", sorted(set(keys(AppConfig))))
def test_every_key_is_in_the_page(key: str) -> None:
    assert re.search(rf"\b{key}:", BLOCKS[1]), f"docs/configure.md does not show {key}"
