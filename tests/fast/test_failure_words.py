"""Reading an error's text: whatever it is, something short is said; real errors are in the tests with Spark."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa import App
from rekappa.errors import AppError, RunError, WorkFailed
from rekappa.spark.calling import results_of
from rekappa.spark.failures import LONGEST, Again, read_text, told

PIECES = st.sampled_from(
    [
        "Traceback (most recent call last):",
        '  File "app.py", line 3, in job',
        "    raise ValueError()",
        "ValueError: odd",
        "pyspark.errors.exceptions.captured.PythonException: ",
        "py4j.protocol.Py4JJavaError: An error occurred while calling o1.save.",
        ": org.apache.spark.SparkException: Job aborted",
        "Caused by: java.io.FileNotFoundException: File file:/a/b.parquet does not exist",
        "\tat org.apache.spark.Task.run(Task.scala:1)",
        "[STREAM_FAILED] Query [id = 1] terminated with exception: x SQLSTATE: XXKST",
        "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012",
        "=== Streaming Query ===",
        "+- ~Project [id#0L]",
        "",
    ]
)


@given(st.lists(PIECES | st.text(max_size=20)), st.sampled_from(["", "Py4JJavaError", "AnalysisException"]))
def test_something_short_is_always_said(lines: list[str], kind: str) -> None:
    found = read_text("\n".join(lines), kind)
    assert 0 < len(found.cause) <= LONGEST
    assert "\n" not in found.cause
    if found.again is Again.USELESS:
        assert found.remedy


def test_the_plan_below_an_error_is_never_the_cause() -> None:
    text = "ArithmeticException: odd\n=== Streaming Query ===\n+- Project [java.io.IOException: timed out]"
    found = read_text(text, "StreamingQueryException")
    assert "Project" not in found.cause
    assert found.again is Again.UNKNOWN


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment.", "Kafka does not"),
        ("java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: "
         "This server does not host this topic-partition.", "A topic is missing"),
        ("Caused by: java.lang.OutOfMemoryError: Java heap space", "Spark ran out of memory"),
        ('java.io.IOException: Cannot run program "/x/python": error=2', "there is no program /x/python"),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", "The Python process"),
    ],
)  # fmt: skip
def test_what_happens_to_many_comes_with_a_remedy(said: str, known: str) -> None:
    found = read_text(said, "Py4JJavaError")
    assert known in found.cause
    assert found.remedy
    assert found.again is not Again.UNKNOWN


def test_the_jobs_own_error_is_its_own_whatever_it_says() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/apps/shop/app.py", line 3, in job\n'
        "ValueError: OutOfMemoryError is what I call my exception\n"
    )
    found = read_text(text)
    assert found.cause.startswith("ValueError: OutOfMemoryError is what")
    assert "/apps/shop/app.py:3" in found.cause
    assert found.again is Again.USELESS


def test_what_a_jobs_function_raises_is_told_with_job_file_and_line() -> None:
    def of_a_job(events: Any) -> Any:
        raise KeyError("no such column")

    app = App("a")
    app.job(of_a_job)
    with pytest.raises(AppError) as refused:
        results_of(app.jobs["of_a_job"], {"events": None})  # type: ignore[dict-item]
    line = of_a_job.__code__.co_firstlineno + 1
    assert refused.value.message == f"Job 'of_a_job' failed at {__file__}:{line}: KeyError: 'no such column'"
    assert refused.value.hint == f"It will fail again until {__file__}:{line} is changed."


def test_sparks_errors_are_told_and_others_are_left_alone() -> None:
    from pyspark.errors import PySparkRuntimeError

    with pytest.raises(WorkFailed, match="Cannot go on: ") as failed, told("go on", "Try again."):
        raise PySparkRuntimeError("odd")
    assert failed.value.hint == "Try again."
    with pytest.raises(ZeroDivisionError), told("go on", "Try again."):
        raise ZeroDivisionError
    with pytest.raises(RunError, match="ours"), told("go on", "Try again."):
        raise RunError("ours")
