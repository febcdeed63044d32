"""The cap on rows per second: the bucket's promise, and the server that tasks ask."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.errors import ConfigError, RunError
from rekappa.rate import Cap, Pace, TokenBucket, limit_calls
from rekappa.tokens import RateReport, ask, bucket, passed, reports

asks = st.lists(st.tuples(st.integers(1, 500), st.floats(0, 3)), min_size=1, max_size=60)


@given(rate=st.floats(0.5, 10_000), burst=st.floats(1, 1000), asks=asks)
def test_no_stretch_of_time_passes_more_than_the_rate_and_one_burst(
    rate: float, burst: float, asks: list[tuple[int, float]]
) -> None:
    tokens = TokenBucket(rate, burst)
    now, uses = 0.0, []
    for count, pause in asks:
        now += pause
        uses.append((now + tokens.reserve(count, now), count))
    assert uses == sorted(uses, key=lambda use: use[0])
    for first in range(len(uses)):
        total = 0
        for at, count in uses[first:]:
            total += count
            # The first of them may use tokens that were saved up, and itself may be larger than a burst.
            assert total <= burst + uses[first][1] + rate * (at - uses[first][0]) + 1e-6 * total + 1e-6


@given(rate=st.floats(1, 1000), counts=st.lists(st.integers(1, 50), min_size=1))
def test_whoever_never_pauses_gets_the_whole_rate(rate: float, counts: list[int]) -> None:
    tokens = TokenBucket(rate, 1.0)
    now = 0.0
    for count in counts:
        now += tokens.reserve(count, now)
    assert now == pytest.approx(sum(counts) / rate)


@pytest.mark.parametrize("cap", [0, -1, float("nan"), float("inf")])
def test_a_cap_that_is_none_is_refused(cap: float) -> None:
    with pytest.raises(ConfigError, match="must be above 0"):
        Cap("sink plays", cap)


def test_tasks_share_one_bucket_by_name() -> None:
    one, same, other = (bucket("127.0.0.1", name, 1e6) for name in ("shared", "shared", "other"))
    assert one == same
    assert other != one
    with ThreadPoolExecutor(1) as pool:
        list(pool.map(lambda rows: ask(one, rows), range(1, 11)))
    Pace((one, other)).wait(45)
    assert passed("shared") == 100
    ask(one, -40)
    assert passed("shared") == 60, "what a task did not use is given back"
    assert passed("other") == 45
    assert {report.name for report in reports()} >= {"shared", "other"}


def test_a_stranger_is_not_served() -> None:
    mine = bucket("127.0.0.1", "mine", 1e6)
    with pytest.raises(RunError, match="Cannot ask the rate limiter"):
        ask(replace(mine, secret=bytes(16)), 1)
    assert passed("mine") == 0


def test_a_worker_survives_a_lost_connection() -> None:
    from rekappa import tokens

    mine = bucket("127.0.0.1", "lost", 1e6)
    ask(mine, 1)
    for connection in tokens._connections.values():
        connection.shutdown(socket.SHUT_RDWR)
    ask(mine, 1)
    assert passed("lost") == 2


def test_rows_pass_in_pieces_no_larger_than_the_smallest_cap_allows() -> None:
    import pyarrow as pa

    slow, fast = bucket("127.0.0.1", "slow", 5000), bucket("127.0.0.1", "fast", 1e6)
    whole = pa.RecordBatch.from_pydict({"id": list(range(1200))})
    pieces = list(Pace((fast, slow)).through([whole]))
    assert [piece.num_rows for piece in pieces] == [500, 500, 200]
    assert [row for piece in pieces for row in piece.column(0).to_pylist()] == list(range(1200))


def test_pandas_frames_are_cut_alike() -> None:
    import pandas as pd

    frames = list(Pace((bucket("127.0.0.1", "frames", 5000),)).through([pd.DataFrame({"id": range(600)})]))
    assert [len(frame) for frame in frames] == [500, 100]


def test_no_cap_is_the_very_same_function() -> None:
    assert limit_calls(iter, None) is iter


def test_the_progress_line_shows_current_and_cap() -> None:
    assert str(RateReport("sink plays", 987.6, 1000)) == "sink plays 988/1,000 rows/s"
