"""Brokers and masters that can't be any are refused when the file is read, with what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.config.load import load
from rekappa.config.places import wrong_brokers, wrong_master
from rekappa.errors import ConfigError

HOSTS = st.from_regex(r"[a-z][a-z0-9-]{0,20}(\.[a-z]{2,5}){0,2}|\[::1\]|10\.0\.[0-9]{1,2}\.7", fullmatch=True)
PORTS = st.integers(1, 65535)


@given(st.lists(st.tuples(HOSTS, PORTS), min_size=1, max_size=4), st.sampled_from(["", "SASL_SSL://", "PLAINTEXT://"]))
def test_any_list_of_host_and_port_is_one_of_brokers(pairs: list[tuple[str, int]], scheme: str) -> None:
    assert wrong_brokers(", ".join(f"{scheme}{host}:{port}" for host, port in pairs)) is None
    host, port = pairs[0]
    assert wrong_brokers(f"{host}:{port + 65535}")
    assert wrong_brokers(host)
    assert wrong_master(f"spark://{host}:{port}") is None
    assert wrong_master(f"k8s://https://{host}:{port}") is None
    assert wrong_master(f"spark://{host}")


@pytest.mark.parametrize("good", ["stack", "kafka:9092", "a:1,b:2", "BROKERS-is-not-set"])
def test_brokers(good: str) -> None:
    assert wrong_brokers(good) is None


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("kafka", "lacks its port"),
        ("kafka:", "no host:port"),
        ("kafka:ninety", "no host:port"),
        ("kafka:0", "between 1 and 65535"),
        ("kafka:99999", "between 1 and 65535"),
        ("kafka:9092,", "no host:port"),
        ("kafka:9092 other:9092", "no host:port"),
        (":9092", "no host:port"),
        ("http://kafka:9092/path", "no host:port"),
        ("::1:9092", "no host:port"),
    ],
)
def test_what_is_no_broker(bad: str, words: str) -> None:
    assert words in (wrong_brokers(bad) or "")


@pytest.mark.parametrize(
    "good",
    ["local", "local[*]", "local[4]", "local[4,2]", "local[*, 3]", "local-cluster[2,1,1024]", "yarn",
     "spark://a:7077", "spark://a:7077,b:7077", "k8s://https://kubernetes.default.svc", "k8s://10.0.0.1:6443"],
)  # fmt: skip
def test_masters(good: str) -> None:
    assert wrong_master(good) is None


@pytest.mark.parametrize(
    "bad",
    ["", "local[]", "local[0]", "local[-1]", "local[four]", "lokal[2]", "spark:a:7077", "spark://", "mesos://a:5050", "k8s://",
     "http://a:7077", "yarn-client", "local[2] ", "k8s://https://a:99999"],
)  # fmt: skip
def test_what_is_no_master(bad: str) -> None:
    assert wrong_master(bad)


def test_the_file_says_where_and_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "rekappa.yaml").write_text(
        "app: shop\nclusters:\n  main: {bootstrap: kafka}\nsources:\n  clicks:\n"
        "    schema: id BIGINT, at TIMESTAMP\n    event_time: at\n    candidates: {live: {type: kafka, topic: c}}\n"
        'sinks:\n  out: {type: "null"}\nprofiles:\n  live: {master: "local[0]"}\n'
    )
    with pytest.raises(ConfigError) as refused:
        load(tmp_path)
    told = f"{refused.value.message} {refused.value.hint}"
    assert "rekappa.yaml:3: clusters.main.bootstrap names 'kafka', which lacks its port" in told
    assert "rekappa.yaml:12: profiles.live.master is 'local[0]', which is no master of Spark" in told
    assert "kafka-1:9092" in told
