"""What every story of the demo stands on: a folder of its own with apps, a broker and a Spark session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rekappa.app import App
from rekappa.config.bind import load_app
from rekappa.config.load import Loaded, load
from rekappa.home import Home
from rekappa.store.record import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Telling(ABC):
    """`close` stops the broker and Spark. `sent` counts the events so far."""

    folder: Path
    sent: int = 0

    @property
    @abstractmethod
    def spark(self) -> SparkSession:
        """One session for the whole demo: starting Spark is the slowest part of a small job."""

    @property
    def home(self) -> Home:
        return Home(self.folder / ".rekappa")

    def load(self, app: str, *overrides: str) -> tuple[Loaded, App]:
        loaded = load(self.folder / app, overrides=overrides)
        return loaded, load_app(loaded)

    def run_live(self, app: str, *overrides: str, fresh: bool = False) -> Run:
        """`rekappa run APP --available-now`."""
        from rekappa.runs.live import run_live

        assert self.spark
        return run_live(*self.load(app, *overrides), self.home, available_now=True, fresh=fresh)

    def close(self, *, broker: bool = True) -> None:
        from rekappa.stack.broker import down

        if "spark" in self.__dict__:
            self.spark.stop()
        if broker:
            down(self.home)
