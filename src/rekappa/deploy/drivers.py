"""The processes that an app needs day and night: its live run and, if it archives, its router."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Literal

from rekappa.archive.tables import routes
from rekappa.config.fields import Option
from rekappa.config.load import Loaded
from rekappa.config.model import Profile
from rekappa.config.sizes import mebibytes
from rekappa.errors import ArchiveError, ConfigError

GRACE = timedelta(minutes=5)
"""How long a stop may take at least: the batch at work is finished first."""
MEMORY = "2g"
"""The driver's heap in a container, where the machine's own memory says nothing."""
CORES = 2
"""What `local[*]` is given in a container."""
_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?\Z")


@dataclass(frozen=True, slots=True)
class Driver:
    """One Spark driver that is to be kept running. `words` are its command, without the app; `profile_name` is the
    profile that it runs under, and `trigger` how often it makes a batch, as far as the configuration says."""

    role: Literal["live", "router"]
    words: tuple[str, ...]
    profile_name: Literal["live", "archive"]
    profile: Profile
    trigger: timedelta

    @property
    def grace(self) -> timedelta:
        """How long it may take to stop after SIGTERM. A kill after that loses nothing, but the batch is done again."""
        return max(GRACE, 3 * self.trigger)

    @property
    def local(self) -> bool:
        """Whether Spark runs inside this one process."""
        return self.profile.master.startswith("local")

    @property
    def cores(self) -> int:
        if not self.local:
            return int(self._number("spark.driver.cores", "1"))
        found = _LOCAL.match(self.profile.master)
        if found is None:
            raise ConfigError(f"Cannot tell how many cores profiles.{self.profile_name}.master means: {self.master}")
        return CORES if found[1] == "*" else int(found[1] or 1)

    @property
    def all_cores(self) -> bool:
        """Whether Spark takes as many cores as it finds."""
        return self.profile.master.startswith("local[*")

    @property
    def master(self) -> str:
        return self.profile.master

    def setting(self, key: str) -> str | None:
        """What the profile says for a key of Spark; secrets are not for manifests and count as not said."""
        value: Option | None = self.profile.spark.get(key)
        return None if value is None or not isinstance(value, str | int | float) else str(value)

    @property
    def heap(self) -> str:
        return self.setting("spark.driver.memory") or MEMORY

    @property
    def mebibytes(self) -> int:
        """What the process needs in all: the heap, and beside it Python, state and buffers as Spark reckons them."""
        heap, beside = mebibytes(self.heap), mebibytes(self.setting("spark.driver.memoryOverhead") or "")
        assert heap is not None, "sizes are checked when the configuration is read"
        return heap + (max(384, ceil(heap * 0.4)) if beside is None else beside)

    def _number(self, key: str, otherwise: str) -> str:
        text = self.setting(key) or otherwise
        if not text.isdigit() or int(text) == 0:
            raise ConfigError(f"Cannot use profiles.{self.profile_name}.{key}: {text!r} is no number of cores")
        return text


def drivers(loaded: Loaded) -> tuple[Driver, ...]:
    """The live run, and the router where a source has both a topic and an archive table."""
    config, profiles = loaded.config, loaded.config.profiles
    live = Driver("live", ("run",), "live", profiles.live, profiles.live.trigger or timedelta())
    router = Driver("router", ("archive", "run"), "archive", profiles.archive, config.archive.trigger)
    return (live, router) if _archives(loaded) else (live,)


def _archives(loaded: Loaded) -> bool:
    try:
        return bool(routes(loaded))
    except ArchiveError:
        return False


def set_flags(driver: Driver, settings: Mapping[str, str]) -> list[str]:
    """Settings of Spark as the words of a command line."""
    told = [f"profiles.{driver.profile_name}.{key}={value}" for key, value in settings.items()]
    return [word for one in told for word in ("--set", one)]
