"""Beyond one machine: workers that share no folder with the driver, an object store, a REST catalog, a team's store.

One story on one set of servers, told in the order of this file; each test can also be run alone. Every result is that
which is reckoned without Spark, whoever was killed in between, and nothing is kept beside the stores.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from leaks import leaks, run_store, told_by_spark, told_to_the_end
from project import wait_until
from servers.postgres import PostgresServer
from servers.rest_catalog import rest_catalog
from servers.s3 import s3
from servers.secured_kafka import secured_kafka
from servers.spark_cluster import spark_cluster
from storage_contract import keeps_the_contract
from team import (
    TOPIC,
    Driver,
    Servers,
    at_work,
    close_gate,
    driver,
    expected,
    in_window,
    kill_executor_at_the_gate,
    lose_files,
    open_gate,
    pack_environment,
    served,
    staged,
    table,
)

from rekappa.produce.topics import create_topics
from rekappa.sources.kafka import for_librdkafka
from rekappa.spark.private import ROCKSDB
from rekappa.storage.root import parse_location

pytestmark = pytest.mark.timeout(2400)

WINDOW = ("--start", "2026-11-01 00:00", "--end", "2026-11-01 01:00", "--sink", "totals")
ORDERED = (*WINDOW, "--mode", "ordered", "--slice-span", "1h")
IN_ROCKSDB = ("--set", f"profiles.backfill.spark.sql.streaming.stateStore.providerClass={ROCKSDB}")
CAPPED = ("--set", "sinks.totals.max_rows_per_second=10000", "--set", "sinks.served.max_rows_per_second=10000")
"""Never reached: what is shown is that executors ask the driver, from the JVM (Iceberg) and from Python."""
WHOLE, CLOSED = expected(180), 170
"""Events of so many minutes come before the driver dies; the windows that begin before the other are closed then."""


@pytest.fixture(scope="module")
def servers(
    postgres_server: PostgresServer, postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("cluster")
    for name in ("s3", "catalog", "gate", "history"):
        (folder / name).mkdir()
    pack_environment(folder / "environment.tar.gz")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        store = stack.enter_context(s3(folder / "s3"))
        for name, value in store.environ.items():
            patch.setenv(name, value)
        hadoop = parse_location(store.address("rekappa")).storage.hadoop()
        catalog = stack.enter_context(rest_catalog(folder / "catalog", f"s3a://{store.bucket}/warehouse", hadoop))
        cluster = stack.enter_context(spark_cluster(folder / "cluster"))
        kafka = stack.enter_context(secured_kafka(folder / "kafka"))
        made = Servers(folder, kafka, store, catalog, cluster, postgres_server, f"{postgres_url}?schema=clustered")
        create_topics(for_librdkafka({"bootstrap.servers": kafka.bootstrap, **kafka.options()}), [TOPIC], 2)
        yield made


@pytest.fixture(scope="module")
def live(servers: Servers) -> Iterator[Driver]:
    """The first machine, after a live run of which an executor was killed in its first batch, and a second one."""
    with driver(servers, "first") as first:
        servers.produce(0, 90)
        close_gate(servers)
        first.tell("run", "app", "--available-now", "--json")
        kill_executor_at_the_gate(servers)
        first.answer()
        servers.produce(90, 180)
        first.rekappa("run", "app", "--available-now")
        yield first


@pytest.fixture(scope="module")
def archived(live: Driver) -> Driver:
    live.rekappa("archive", "run", "app", "--available-now")
    return live


def test_an_object_store_keeps_the_contract(servers: Servers) -> None:
    keeps_the_contract(parse_location(servers.s3.address("contract")))


def test_a_live_run_whose_executor_is_killed(servers: Servers, live: Driver) -> None:
    assert table(servers, "clustered.totals") == in_window(WHOLE, CLOSED)
    assert served(servers) == in_window(WHOLE, CLOSED)
    assert leaks(servers, told_by_spark(servers)) == []
    assert live.files() == []


def test_ordered_and_exact_backfills_give_the_rows_of_one_machine(servers: Servers, archived: Driver) -> None:
    close_gate(servers)
    archived.tell("backfill", "app", *ORDERED, *IN_ROCKSDB, "--json")
    kill_executor_at_the_gate(servers)
    ordered = json.loads(archived.answer())["id"]
    exact = archived.rekappa("backfill", "app", *WINDOW, "--mode", "exact")["id"]
    for run in (ordered, exact):
        assert staged(servers, run) == in_window(WHOLE, 60), run
    assert archived.rekappa("validate", exact)["outcome"] == "passed"
    assert archived.files() == []


def test_a_bulk_backfill_repairs_production_and_is_undone(servers: Servers, archived: Driver) -> None:
    lose_files(servers, minutes=60)
    damaged = table(servers, "clustered.totals")
    assert in_window(damaged, 60) == {}
    assert archived.rekappa("plan", "app", *WINDOW)["jobs"][0]["mode"] == "bulk"
    bulk = archived.rekappa("backfill", "app", *WINDOW)["id"]
    assert staged(servers, bulk) == in_window(WHOLE, 60)
    found = archived.rekappa("validate", bulk, "--no-control", expect=1)
    assert found["outcome"] == "failed"
    archived.rekappa("publish", bulk, "--unvalidated", "--yes")
    assert table(servers, "clustered.totals") == damaged + in_window(WHOLE, 60)
    archived.rekappa("undo", bulk, "--yes")
    assert table(servers, "clustered.totals") == damaged
    assert archived.files() == []


def test_another_machine_goes_on_when_the_driver_dies(servers: Servers, archived: Driver) -> None:
    before = table(servers, "clustered.totals")
    close_gate(servers)
    archived.tell("backfill", "app", *ORDERED, "--json")
    wait_until(lambda: bool(at_work(servers)), "a task is at work")
    archived.kill()
    open_gate(servers)
    assert archived.files() == []
    # Its machine is gone with it.
    archived.folder.rename(servers.folder / "unreachable")
    with driver(servers, "second") as second:
        died = second.rekappa("runs", "--app", "clustered")[0]
        assert died["kind"] == "backfill"
        second.rekappa("resume", died["id"])
        assert staged(servers, died["id"]) == in_window(WHOLE, 60)
        servers.produce(180, 240)
        second.rekappa("run", "app", "--available-now", *CAPPED)
        added = in_window(expected(240), 230) - in_window(expected(240), CLOSED)
        assert table(servers, "clustered.totals") == before + added
        assert served(servers) == in_window(expected(240), 230)
        assert min(second.passed.values()) >= added.total(), "a cap was not asked for all rows"
        assert second.files() == []
    assert leaks(servers, {"the run store": run_store(servers), **told_to_the_end(servers)}) == []
