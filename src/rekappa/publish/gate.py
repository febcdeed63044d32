"""What a run must have passed before it may be published."""

from __future__ import annotations

from datetime import datetime

from rekappa.errors import PublishError
from rekappa.staging.staged import Staged


def require_validated(staged: Staged) -> None:
    """Refuse a run whose validation is absent, failed, or of an earlier state of its staging."""
    run, verdict = staged.run, staged.run.validation
    if verdict is None:
        raise PublishError(
            f"Cannot publish run {run.id}: it was not validated",
            hint=f"`rekappa validate {run.id}` compares it with production; --unvalidated publishes without.",
        )
    if not verdict.get("passed"):
        raise PublishError(
            f"Cannot publish run {run.id}: it did not pass validation",
            hint=f"See `rekappa validate {run.id}`. If the differences are the repair you want: --unvalidated.",
        )
    if run.ended and datetime.fromisoformat(str(verdict["at"])) < run.ended:
        raise PublishError(
            f"Cannot publish run {run.id}: it wrote to staging after it was validated",
            hint=f"`rekappa validate {run.id}` again.",
        )
