"""Options of Kafka's Java client, said to confluent-kafka's library."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rekappa.sources.kafka import for_librdkafka

LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def _written(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])), st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_a_login(user: str, password: str) -> None:
    jaas = f"{LOGIN} username={_written(user)} password={_written(password)};"
    told = for_librdkafka({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas})
    assert told == {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": password,
    }  # fmt: skip


def test_certificates_and_what_has_no_counterpart() -> None:
    given_ = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem", "client.id": "a"}
    assert for_librdkafka(given_) == {"ssl.ca.location": "ca.pem", "client.id": "a"}
    written_out = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "-----BEGIN"}
    assert for_librdkafka(written_out) == {"ssl.ca.pem": "-----BEGIN"}
    kerberos = {"sasl.jaas.config": 'com.sun.security.auth.module.Krb5LoginModule required principal="a@B";'}
    assert for_librdkafka(kerberos) == kerberos
    assert for_librdkafka({"ssl.endpoint.identification.algorithm": ""}) == {
        "ssl.endpoint.identification.algorithm": "none"
    }


def test_what_was_told_in_its_own_words_stays() -> None:
    jaas = f'{LOGIN} username="java" password="java";'
    told = for_librdkafka({"sasl.jaas.config": jaas, "sasl.username": "own"})
    assert told == {"sasl.username": "own", "sasl.password": "java"}
