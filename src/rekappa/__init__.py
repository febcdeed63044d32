"""rekappa re-runs the same Spark streaming app over any past window, and proves it before it publishes."""

from rekappa.answers import Answers
from rekappa.app import App
from rekappa.errors import RekappaError
from rekappa.lookup import Lookup
from rekappa.rate import limit_calls, rate_limit
from rekappa.version import __version__

__all__ = ["Answers", "App", "Lookup", "RekappaError", "__version__", "limit_calls", "rate_limit"]
