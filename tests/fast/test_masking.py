"""Secrets: whatever a client calls them and wherever they stand, they are not shown."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.config.model import Cluster
from rekappa.config.origin import shown
from rekappa.home import Home
from rekappa.masking import MASK, hidden, is_secret_name
from rekappa.store.kept import keep_code, kept_files

NAMES = [
    # Kafka and its schema registries
    "sasl.jaas.config", "kafka.sasl.jaas.config", "sasl.password", "ssl.key.password", "ssl.keystore.password",
    "ssl.truststore.password", "ssl.keystore.key", "ssl.key.pem", "basic.auth.user.info", "bearer.auth.token",
    "schema.registry.basic.auth.user.info", "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    # JDBC, PostgreSQL, Cassandra, OpenSearch, Hive
    "password", "jdbc.password", "pwd", "dsn", "es.net.http.auth.pass", "spark.cassandra.auth.password",
    "spark.hadoop.javax.jdo.option.ConnectionPassword",
    # S3, Azure, Google
    "fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token", "fs.s3a.bucket.events.secret.key",
    "fs.s3a.encryption.key", "fs.s3a.server-side-encryption.key", "s3.access-key-id", "s3.secret-access-key",
    "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net", "fs.azure.sas.box.lake.blob.core.windows.net",
    "fs.azure.account.oauth2.client.secret", "adls.sas-token.lake", "adls.connection-string.lake", "adls.account-key",
    "fs.gs.auth.service.account.private.key", "gcs.oauth2.token",
    # HTTP, Iceberg's REST catalog, Spark itself
    "header.Authorization", "header.X-Api-Key", "header.Cookie", "Proxy-Authorization", "credential", "token",
    "api_key", "client_secret", "spark.authenticate.secret", "spark.ssl.keyStorePassword",
]  # fmt: skip
HARMLESS = [
    "key", "topic", "bootstrap", "group.id", "key.serializer", "ssl.keystore.location", "ssl.keystore.type",
    "security.protocol", "sasl.mechanism", "fs.s3a.endpoint", "fs.s3a.aws.credentials.provider", "warehouse", "uri",
    "sasl.username", "basic.auth.credentials.source", "sasl.oauthbearer.token.endpoint.url", "monkey", "compass.path",
    "spark.sql.shuffle.partitions", "partition_by", "event_time",
]  # fmt: skip
passwords = st.text(string.ascii_letters + string.digits + "-_.~!$%^*()+:/?#[]|<>{}", min_size=12, max_size=40)
plain = st.text(string.ascii_lowercase, min_size=1, max_size=8)
TEMPLATES = [
    "postgresql://{user}:{password}@db.example:5432/shop",
    "https://{user}:{password}@search.example/index",
    "mongodb://{user}:{password}@a.example,b.example/shop",
    "could not connect to https://{user}:{password}@search.example: refused",
    "jdbc:postgresql://db.example/shop?user={user}&password={password}",
    "jdbc:sqlserver://db.example;user={user};password={password}",
    "jdbc:oracle:thin:{user}/{password}@//db.example:1521/shop",
    "DefaultEndpointsProtocol=https;AccountName={user};AccountKey={password}",
    "Endpoint=sb://bus.example/;EntityPath={user};SharedAccessKey={password}",
    "https://lake.blob.example/box?sv=2024-11-04&sp=r&sig={password}",
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{password}";',
    "host=db.example user={user} password='{password}'",
    "Authorization: Bearer {token}",
    "Authorization: Basic {token}",
]


@pytest.mark.parametrize("name", NAMES)
def test_what_clients_call_secrets(name: str) -> None:
    assert is_secret_name(name)
    assert shown(("clusters", "main", "options", name), "hunter2") == MASK
    assert "hunter2" not in repr(Cluster(bootstrap="b:9092", options={name: "hunter2"}))


@pytest.mark.parametrize("name", HARMLESS)
def test_what_may_be_shown(name: str) -> None:
    assert not is_secret_name(name)
    assert shown((name,), "hunter2") == "hunter2"


def test_a_yes_or_no_is_no_secret() -> None:
    assert shown(("token-refresh",), True) is True
    assert Cluster(bootstrap="b:9092", options={"token-refresh": True}).options["token-refresh"] is True


@given(st.sampled_from(TEMPLATES), plain, passwords, st.text(string.ascii_letters + string.digits, min_size=12))
def test_no_secret_shows_inside_a_text(template: str, user: str, password: str, token: str) -> None:
    for mark in ("&", ";", '"', "'") if "://{" not in template else ():
        password = password.replace(mark, "_")
    text = template.format(user=user, password=password, token=token)
    said = hidden(text)
    assert (password if "{password}" in template else token) not in said
    assert MASK in said
    assert hidden(said) == said
    if "{user}" in template:
        assert user in said


@given(st.text())
def test_hiding_never_fails_and_needs_no_second_time(text: str) -> None:
    assert hidden(hidden(text)) == hidden(text)


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1:9092,127.0.0.1:9093", "s3://bucket/path", "http://host:8181/catalog", "key=[id]", "me@example.org",
     "several rows have the key id=5", "changed=playback_id,missing=0"],
)  # fmt: skip
def test_what_holds_no_secret_stays_as_it_is(text: str) -> None:
    assert hidden(text) == text


YAML = """\
app: a
catalogs:
  lake: {type: rest, uri: 'https://me:hunter2@lake/x', options: {header.Authorization: Bearer hunter2hunter2}}
clusters:
  main:
    bootstrap: b:9092
    options:
      basic.auth.user.info: me:hunter2
      sasl.jaas.config: |
        PlainLoginModule required
        username="me" password="hunter2";
      ssl.key.password: hunter2$hunter2
      sasl.password: ${KAFKA_PASSWORD}
sinks:
  out: {type: postgres, key: [id], database: shop}
"""


def test_no_secret_of_the_configuration_is_kept_with_the_code(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "rekappa.yaml").write_text(YAML)
    home = Home(tmp_path / ".rekappa")
    code = keep_code(home, tmp_path / "app")
    assert code.hash
    text = kept_files(home, code.hash)["rekappa.yaml"].decode()
    assert "hunter2" not in text
    assert "${KAFKA_PASSWORD}" in text
    assert "out: {type: postgres, key: [id], database: shop}" in text
