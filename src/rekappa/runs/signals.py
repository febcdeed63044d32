"""Ctrl-C and SIGTERM as a polite request: finish what is at hand, then stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopping_on_signals() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; a second Ctrl-C interrupts as usual."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before[signal.SIGINT])

    for number in before:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
