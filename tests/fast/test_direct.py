"""When Spark's JVM is started by ourselves, and what others can see of it."""

from __future__ import annotations

import os
import shlex
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from rekappa.errors import SetupError
from rekappa.home import Home
from rekappa.spark import launch
from rekappa.spark.direct import Jvm, JvmOrder, direct
from rekappa.spark.launch import Launch, begun

LOG = Path("spark.log")


def order(log: Path, program: str) -> JvmOrder:
    """An order for a program that stands in for the JVM: only how it is started and ended is looked at."""
    return JvmOrder((sys.executable, "-c", program), log)


def options(settings: dict[str, str], own: Sequence[str] = ()) -> tuple[str, ...]:
    found = direct(settings, own, LOG, (Path("ours.jar"),))
    assert found is not None
    return found.command


def test_settings_are_not_on_the_command_line() -> None:
    said = options({"spark.driver.memory": "3g", "spark.sql.catalog.lake.token": "hunter2"}, ["-Down=1"])
    assert "-Xmx3g" in said
    assert "-Down=1" in said
    assert "ours.jar" in said[said.index("-cp") + 1].split(os.pathsep)
    assert "hunter2" not in shlex.join(said)


def test_a_users_java_options_are_taken_apart_as_a_shell_would() -> None:
    said = options({"spark.driver.extraJavaOptions": """-Da="two words" -XX:+UseG1GC"""})
    assert "-Da=two words" in said
    assert "-XX:+UseG1GC" in said


@pytest.mark.parametrize(
    "key", ["spark.jars", "spark.jars.packages", "spark.driver.extraClassPath", "spark.files", "spark.kerberos.keytab"]
)
def test_what_sparks_scripts_must_sort_out_is_left_to_them(key: str) -> None:
    assert direct({key: "x"}, (), LOG, ()) is None


@pytest.mark.parametrize("name", ["SPARK_HOME", "HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS"])
def test_a_users_own_spark_is_started_by_its_scripts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "/somewhere")
    assert direct({}, (), LOG, ()) is None


def test_a_jvm_that_ends_by_itself_says_where_its_words_are(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(SetupError, match="it ended with code 7") as refused:
        Jvm(order(log, "import sys; print('no memory'); sys.exit(7)")).gateway()
    assert str(log) in str(refused.value.hint)
    assert "no memory" in log.read_text()


def test_only_the_owner_can_see_by_which_word_the_jvm_is_spoken_to(tmp_path: Path) -> None:
    told = tmp_path / "told"
    program = (
        "import os, pathlib, stat, time\n"
        "folder = pathlib.Path(os.environ['_PYSPARK_DRIVER_CONN_INFO_PATH']).parent\n"
        f"pathlib.Path({str(told)!r}).write_text(f'{{stat.S_IMODE(folder.stat().st_mode)}} {{folder}}')\n"
        "time.sleep(600)"
    )
    jvm = Jvm(order(tmp_path / "log", program))
    while not (told.is_file() and told.read_text()):
        time.sleep(0.01)
    mode, folder = told.read_text().split()
    jvm.end()
    assert int(mode) == stat.S_IRWXU
    assert not Path(folder).exists()
    assert jvm.process.poll() is not None


def test_a_jvm_that_has_begun_ends_when_the_command_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Jvm] = []

    class Seen(Jvm):
        def __init__(self, wanted: JvmOrder) -> None:
            super().__init__(order(wanted.log, "import time; time.sleep(600)"))
            started.append(self)

    monkeypatch.setattr(launch, "Jvm", Seen)
    with pytest.raises(ValueError, match="no such job"), begun(Launch({}, Home(tmp_path))):
        raise ValueError("no such job")
    assert [one.process.poll() is not None for one in started] == [True]
