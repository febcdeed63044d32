"""What a run must have passed before it may be published."""

from __future__ import annotations

from datetime import datetime

from rekappa.errors import PublishError
from rekappa.publish.plan import PublishPlan
from rekappa.staging.staged import Staged
from rekappa.validate.result import Outcome, outcome_of


def require_judged(staged: Staged, plan: PublishPlan) -> None:
    """Refuse a plan that would publish another state of staging than the one that was validated."""
    judged = {one["sink"]: one.get("staging") for one in (staged.run.validation or {}).get("sinks", ())}
    for one in plan.sinks:
        if one.sink in judged and judged[one.sink] != one.staging and not plan.done:
            raise PublishError(
                f"Cannot publish run {staged.run.id}: staging of sink {one.sink!r} has changed since it was validated",
                hint=f"`rekappa validate {staged.run.id}` again.",
            )


def require_validated(staged: Staged, *, accepted: bool = False) -> None:
    """Refuse a run whose validation is absent, failed, or of an earlier state of its staging.

    `accepted`: a person has said yes to what only needs that, a change in code that nobody had said to expect.
    """
    run, verdict = staged.run, staged.run.validation
    names = {one.name for one in staged.sinks}
    outcome = outcome_of(verdict, names)
    if verdict is None or outcome is None:
        raise PublishError(
            f"Cannot publish run {run.id}: it was not validated",
            hint=f"`rekappa validate {run.id}` compares it with production; --unvalidated publishes without.",
        )
    if outcome is Outcome.FAILED:
        raise PublishError(
            f"Cannot publish run {run.id}: it did not pass validation",
            hint=f"See `rekappa validate {run.id}`. To publish what nothing explains: --unvalidated.",
        )
    if run.ended and datetime.fromisoformat(str(verdict["at"])) < run.ended:
        raise PublishError(
            f"Cannot publish run {run.id}: it wrote to staging after it was validated",
            hint=f"`rekappa validate {run.id}` again.",
        )
    if outcome is Outcome.NEEDS_YES and not accepted:
        why = "; ".join(words for sink in verdict["sinks"] if sink["sink"] in names for words in sink["why"])
        raise PublishError(
            f"Cannot publish run {run.id} without a yes: {why}",
            hint=f"Say what was expected: `rekappa validate {run.id} --expect …`; or --accept-changes.",
        )
