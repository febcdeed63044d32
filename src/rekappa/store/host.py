"""Which machine this is: a process number means something only there, and only until it is started anew."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Host:
    """`name` is for people; `machine` is what tells it apart, also from a container with numbers of its own."""

    name: str
    machine: str


@cache
def this_host() -> Host:
    name = socket.gethostname()
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return Host(name, f"{name}/{boot}/{os.readlink('/proc/self/ns/pid')}")
    except OSError:
        return Host(name, f"{name}/{uuid.getnode():x}")
