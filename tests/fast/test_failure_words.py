"""Reading an error's text: whatever it is, something short is said; real errors are in the tests with Spark."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rekappa.spark.failures import LONGEST, Again, read_text

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
    assert bool(found.remedy) == (found.again is Again.USELESS)


def test_the_plan_below_an_error_is_never_the_cause() -> None:
    text = "ArithmeticException: odd\n=== Streaming Query ===\n+- Project [java.io.IOException: timed out]"
    found = read_text(text, "StreamingQueryException")
    assert "Project" not in found.cause
    assert found.again is Again.UNKNOWN
