"""`rekappa demo rewind`: two chained apps, wrong for three hours, made right by one command."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rekappa.cli.demo_words import say, step
from rekappa.cli.output import Output

if TYPE_CHECKING:
    from rekappa.demo.chained import ChainStory


def tell_chain(story: ChainStory, out: Output) -> dict[str, Any]:
    """Tell it; answers what matters."""
    from rekappa.cli.rewind import picture
    from rekappa.demo.chained import BAD, END, HOUR, RIGHT, START, TABLE, WRONG, WRONG_TABLE
    from rekappa.timeline import format_instant

    began = time.monotonic()
    say("One app sends what was shown to a topic; another one counts, from that topic, what was shown each hour.")
    with step("rekappa up", "a Kafka broker of our own"):
        bootstrap = story.up()
        assert story.spark
    with step("rekappa run enrich; rekappa run hourly", "12:00 to 13:00, all well"):
        moment = story.run_hours(range(BAD), bootstrap).replace(microsecond=0) + timedelta(seconds=1)
    say(f"Somebody deploys a bug in the first: {RIGHT} became {WRONG}. It runs from 13:00 to 16:00.")
    story.deploy(wrong=True)
    with step("rekappa run enrich; rekappa run hourly", "three hours of events, wrong"):
        story.run_hours(range(BAD, END - 1), bootstrap)
    say("The fix is deployed. But the topic holds three hours of wrong messages, and the second app has counted them.")
    story.deploy(wrong=False)
    with step("rekappa run enrich; rekappa run hourly", "16:00 to 17:00, right again"):
        story.run_hours(range(END - 1, END), bootstrap)
    messages = story.in_topic()
    story.remember()
    with step(f"rekappa rewind enrich --to {format_instant(moment)} --cascade", "both, in one operation"):
        started = time.monotonic()
        plan = story.rewind(moment)
        seconds = time.monotonic() - started
    if not out.is_json:
        for text in picture(plan):
            say(f"    {text}")
    abandoned = sum(one.reset.removed for one in plan.queries)
    say(f"  {abandoned:,} messages of the topic no longer count; none is wiped")
    with step("rekappa run enrich; rekappa run hourly", "they go on from there, to the end of the topics"):
        story.run_both()
    with step("verify", "both apps, right, over all of Kafka, into a topic and a table of their own"):
        after = story.in_topic()
        story.clean_run()
    return {
        "wrong": f"[{format_instant(START + BAD * HOUR)}, {format_instant(START + (END - 1) * HOUR)})",
        "events": story.sent,
        "messages_that_no_longer_count": abandoned,
        "messages_wiped": messages + abandoned - after,
        "rows_wrong_before": story.differing(WRONG_TABLE),
        "rows_that_differ_from_a_clean_run": story.differing(TABLE),
        "rewind_seconds": round(seconds, 1),
        "demo_seconds": round(time.monotonic() - began),
    }
