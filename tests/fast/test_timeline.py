"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.timeline import format_instant, parse_instant

ZONES = ("America/New_York", "Europe/Berlin", "Asia/Kolkata", "Pacific/Chatham", "UTC")


@given(st.datetimes(datetime(1990, 1, 1), datetime(2040, 1, 1)), st.sampled_from(ZONES))
def test_a_wall_clock_of_a_named_zone_is_one_instant_or_refused(wall: datetime, name: str) -> None:
    shown = [wall.replace(tzinfo=ZoneInfo(name), fold=fold).astimezone(UTC) for fold in (0, 1)]
    text = f"{wall.isoformat(sep=' ')} {name}"
    if shown[0] == shown[1]:
        assert parse_instant(text) == shown[0]
    else:
        with pytest.raises(ValueError, match=r"showed it twice|put forward"):
            parse_instant(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_is_written_is_read_back(moment: datetime) -> None:
    assert parse_instant(format_instant(moment)) == moment


def test_the_night_of_the_change_is_told() -> None:
    assert parse_instant("2013-11-03 06:00 America/New_York") == datetime(2013, 11, 3, 11, tzinfo=UTC)
    assert parse_instant("2013-11-03") == datetime(2013, 11, 3, tzinfo=UTC)
    with pytest.raises(ValueError, match=r"twice, at 2013-11-03T05:30Z and 2013-11-03T06:30Z"):
        parse_instant("2013-11-03 01:30 America/New_York")
    with pytest.raises(ValueError, match="put forward"):
        parse_instant("2013-03-10 02:30 America/New_York")


@pytest.mark.parametrize("text", ["", "noon", "2013-11-03 06:00 Nowhere/Else", "2013-11-03T06:00Z Asia/Kolkata", "x Z"])
def test_anything_else_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match="Cannot read") as refused:
        parse_instant(text)
    assert repr(text) in str(refused.value)
