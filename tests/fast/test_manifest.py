"""`rekappa manifest`: it fits Kubernetes' published schemas and systemd's own check, and holds no secret."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml  # type: ignore[import-untyped]
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from rekappa.cli.main import main
from rekappa.config.document import Variable, variables
from rekappa.config.load import load
from rekappa.deploy.names import LONGEST, label
from rekappa.deploy.ready import main as probe
from rekappa.home import Home
from rekappa.store.record import Kind, Run, State, new_run_id
from rekappa.store.runs import RunStore

APP = """\
from rekappa import App

app = App("web_shop")


@app.job
def totals(clicks):
    return clicks
"""
CONFIG = """\
app: web_shop
clusters:
  main:
    bootstrap: ${BROKERS}
    options: {sasl.password: "${KAFKA_PASSWORD}"}
catalogs:
  lake: {type: rest, uri: "http://${CATALOG:-catalog}:8181"}
sources:
  clicks:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: clicks}
      backfill: {type: iceberg, table: lake.events.clicks}
sinks:
  totals: {type: postgres, host: db, database: shop, table: totals, key: id, password: "${DB_PASSWORD}"}
archive: {trigger: 4 minutes}
profiles:
  live: {master: "k8s://https://kubernetes.default.svc", spark.driver.memory: 4g, spark.driver.cores: 3}
  archive: {master: "local[2]", spark.driver.memoryOverhead: 512m}
"""
IMAGE = ("--for", "kubernetes", "--image", "registry.example.org/shop:7")
UNITS = ("--for", "systemd", "--folder", "/srv/shop", "--set", "profiles.live.master=local[2]")
VERSIONS = ("1.28", "1.32", kubernetes_validate.latest_version())
Object = dict[str, Any]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "rekappa.yaml").write_text(CONFIG)
    (folder / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    for name in ("BROKERS", "KAFKA_PASSWORD", "CATALOG", "DB_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return folder


def call(*words: str) -> Result:
    return CliRunner().invoke(main, ["manifest", "shop", *words])


def objects(*words: str) -> list[Object]:
    told = call(*IMAGE, *words)
    assert told.exit_code == 0, told.stderr
    return list(yaml.safe_load_all(told.stdout))


def named(found: list[Object], kind: str, name: str) -> Object:
    (one,) = [one for one in found if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return one


def pod_of(found: list[Object], name: str) -> Object:
    pod: Object = named(found, "Deployment", name)["spec"]["template"]["spec"]
    return pod


def valid(found: list[Object]) -> None:
    for one in found:
        for version in VERSIONS:
            kubernetes_validate.validate(one, version, strict=True)


def templates(found: list[Object]) -> Iterator[Object]:
    for one in found:
        if one["kind"] == "ConfigMap":
            yield from (yaml.safe_load(text) for text in one["data"].values())


def test_every_object_and_template_fits_the_published_schemas(shop: Path) -> None:
    found = objects("--namespace", "streams", "--user", "1000", "--storage", "50Gi")
    kinds = ["ServiceAccount", "Role", "RoleBinding"]
    kinds += ["PersistentVolumeClaim", "ConfigMap", "Service", "Deployment", "PersistentVolumeClaim", "Deployment"]
    assert [one["kind"] for one in found] == kinds
    assert {one["metadata"]["namespace"] for one in found} == {"streams"}
    valid(found)
    (template,) = templates(found)
    valid([template])
    own = objects("--console")[len(found) :]
    assert [one["kind"] for one in own] == ["PersistentVolumeClaim", "Deployment", "Service"]
    valid(own)
    container = pod_of(own, "web-shop-console")["containers"][0]
    given = {one["name"]: one.get("value") for one in container["env"]}
    assert given["REKAPPA_STORE"] is given["REKAPPA_WEBHOOK"] is given["DB_PASSWORD"] is None, "secrets by name alone"
    told = CliRunner().invoke(main, [*container["args"], "--dry-run"])
    assert (told.exit_code, "no login is set up" in told.stderr) == (2, True), "the command is one that rekappa takes"


def test_the_check_would_see_a_wrong_field(shop: Path) -> None:
    found = named(objects(), "Deployment", "web-shop-live")
    found["spec"]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        valid([found])


def test_a_driver_is_one_pod_that_stops_in_peace(shop: Path) -> None:
    found = objects()
    for name, grace in (("web-shop-live", 300), ("web-shop-router", 720)):
        spec = named(found, "Deployment", name)["spec"]
        assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
        assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == grace
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    live, router = (pod_of(found, f"web-shop-{role}")["containers"][0] for role in ("live", "router"))
    assert live["resources"] == {"requests": {"cpu": "3", "memory": "5735Mi"}, "limits": {"memory": "5735Mi"}}
    assert router["resources"] == {"requests": {"cpu": "2", "memory": "2560Mi"}, "limits": {"memory": "2560Mi"}}


def test_executors_find_their_driver_and_what_they_share(shop: Path) -> None:
    found = objects()
    pod, service = pod_of(found, "web-shop-live"), named(found, "Service", "web-shop-live")
    settings = dict(word.removeprefix("profiles.live.").split("=", 1) for word in told_by(pod))
    assert settings["spark.driver.host"] == "web-shop-live.default.svc"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= named(found, "Deployment", "web-shop-live")["spec"]["template"][
        "metadata"]["labels"].items()  # fmt: skip
    assert [port["port"] for port in service["spec"]["ports"]] == [
        int(settings["spark.driver.port"]), int(settings["spark.driver.blockManager.port"])]  # fmt: skip
    (template,) = templates(found)
    shared = [volume for volume in pod["volumes"] if volume["name"] == "home"]
    assert template["spec"]["volumes"] == shared
    assert named(found, "PersistentVolumeClaim", "web-shop-live")["spec"]["accessModes"] == ["ReadWriteMany"]
    assert template["spec"]["containers"][0]["name"] == settings["spark.kubernetes.executor.podTemplateContainerName"]
    (mounted,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "executor"]
    (file,) = named(found, "ConfigMap", "web-shop-live-executor")["data"]
    assert settings["spark.kubernetes.executor.podTemplateFile"] == f"{mounted['mountPath']}/{file}"
    binding = named(found, "RoleBinding", "web-shop")
    assert binding["subjects"][0]["name"] == pod["serviceAccountName"]


def told_by(pod: Object) -> list[str]:
    words = pod["containers"][0]["args"]
    return [value for flag, value in pairwise(words) if flag == "--set"]


def test_the_command_in_the_pod_is_one_that_rekappa_takes(shop: Path) -> None:
    """Also what a person set, with every sign in it that Kubernetes would replace."""
    found = objects("--set", "owner=$(WHO) and $$ or $(")
    written = told_by(pod_of(found, "web-shop-live"))
    flags = [word.replace("=$(REKAPPA_POD)", "=pod-7").replace("$$", "$") for word in written]
    environ = {"BROKERS": "kafka:9092", "KAFKA_PASSWORD": "x", "DB_PASSWORD": "y"}
    config = load(shop, overrides=flags, environ=environ).config
    assert config.owner == "$(WHO) and $$ or $("
    assert config.profiles.live.spark["spark.kubernetes.driver.pod.name"] == "pod-7"
    assert config.profiles.live.spark["spark.kubernetes.container.image"] == "registry.example.org/shop:7"
    assert config.profiles.live.spark["spark.driver.memory"] == "4g"


def test_what_the_profile_says_stays(shop: Path) -> None:
    found = objects("--set", "profiles.live.spark.driver.port=9001")
    assert [p["port"] for p in named(found, "Service", "web-shop-live")["spec"]["ports"]] == [9001, 7079]
    assert told_by(pod_of(found, "web-shop-live")).count("profiles.live.spark.driver.port=9001") == 1
    assert not any("port=7078" in word for word in told_by(pod_of(found, "web-shop-live")))


def test_spark_knows_every_setting_of_kubernetes(shop: Path) -> None:
    """A key that Spark does not have would be ignored without a word."""
    import zipfile

    import pyspark

    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-kubernetes_*.jar")
    with zipfile.ZipFile(jar) as packed:
        known = b"".join(packed.read(name) for name in packed.namelist() if "deploy/k8s/Config" in name)
    keys = [word.split("=")[0].removeprefix("profiles.live.") for word in told_by(pod_of(objects(), "web-shop-live"))]
    asked = [key for key in keys if key.startswith("spark.kubernetes.")]
    assert len(asked) == 9
    for key in asked:
        assert key.encode() in known, key


@pytest.mark.parametrize("target", [IMAGE, UNITS])
def test_variables_are_named_and_no_value_is_written(
    shop: Path, monkeypatch: pytest.MonkeyPatch, target: tuple[str, ...]
) -> None:
    monkeypatch.setenv("BROKERS", "kafka-a1b2:9092")
    monkeypatch.setenv("KAFKA_PASSWORD", "value-c3d4")
    monkeypatch.setenv("REKAPPA__OWNER", "value-e5f6")
    monkeypatch.setenv("REKAPPA_STORE", "postgresql://me:value-g7h8@db/store")
    for as_json in ((), ("--json",)):
        told = call(*target, "--secret", "PGPASSWORD", *as_json)
        assert told.exit_code == 0, told.stderr
        assert not re.search("a1b2|c3d4|e5f6|g7h8|is-not-set", told.output)
    wanted = {"BROKERS": False, "KAFKA_PASSWORD": False, "CATALOG": True, "DB_PASSWORD": False}
    wanted |= {"REKAPPA__OWNER": False, "PGPASSWORD": False}
    assert {one["name"]: one["optional"] for one in json.loads(told.stdout)["variables"]} == wanted
    if target == IMAGE:
        found = objects("--secret", "PGPASSWORD")
        for pod in (pod_of(found, "web-shop-live"), pod_of(found, "web-shop-router")):
            references = {
                one["name"]: one["valueFrom"]["secretKeyRef"].get("optional", False)
                for one in pod["containers"][0]["env"] if "secretKeyRef" in one.get("valueFrom", {})
            }  # fmt: skip
            assert references == wanted | {"REKAPPA_STORE": False, "REKAPPA_STORAGE": True}
        (template,) = templates(found)
        assert {one["name"] for one in template["spec"]["containers"][0]["env"]} == set(wanted)


def test_with_a_local_master_it_is_a_single_pod_and_said_so(shop: Path) -> None:
    told = call(*IMAGE, "--set", "profiles.live.master=local[*]")
    assert "note: profiles.live.master is local[*]: all of Spark runs in the one pod web-shop-live" in told.stderr
    found = list(yaml.safe_load_all(told.stdout))
    valid(found)
    assert {one["kind"] for one in found} == {"PersistentVolumeClaim", "Deployment"}
    pod = pod_of(found, "web-shop-live")
    assert pod["automountServiceAccountToken"] is False
    assert pod["containers"][0]["resources"]["limits"]["cpu"] == "2"
    assert named(found, "PersistentVolumeClaim", "web-shop-live")["spec"]["accessModes"] == ["ReadWriteOnce"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--for", "kubernetes"), "Cannot write a manifest for Kubernetes without --image"),
        ((*IMAGE, "--set", "clusters.main.bootstrap=stack"), "clusters.main.bootstrap: stack"),
        ((*IMAGE, "--set", "catalogs.lake.type=stack"), "catalogs.lake.type: stack"),
        ((*IMAGE, "--set", "profiles.live.master=spark://m:7077"), "executors outside the cluster"),
        ((*IMAGE, "--set", "profiles.archive.master=yarn"), "profiles.archive.master: yarn"),
        ((*IMAGE, "--set", "profiles.live.spark.driver.memory=lots"), "is 'lots', which is no size"),
        ((*IMAGE, "--namespace", "Streams"), "Cannot use --namespace 'Streams'"),
        ((*IMAGE, "--name", "a" * 41), "no DNS label of at most 40 letters"),
        ((*IMAGE, "--user", "root"), "Cannot use --user 'root'"),
        ((*IMAGE, "--user", "0"), "Cannot use --user '0'"),
        ((*IMAGE, "--user", "99999999999"), "from 1 to 2147483647"),
        ((*IMAGE, "--user", "٣"), "Cannot use --user '٣'"),
        ((*IMAGE, "--folder", "app"), "Cannot use --folder 'app'"),
        ((*IMAGE, "--folder", "/app\nx"), "Cannot use --folder '/app\\nx'"),
        ((*IMAGE, "--set", "profiles.live.spark.driver.memory=0"), "is 0, which is no size"),
        ((*IMAGE, "--set", "profiles.live.spark.driver.memory=512k"), "is '512k', with which Spark does not start"),
        ((*IMAGE, "--set", "profiles.live.spark.driver.memory=4096"), "is 4096, without a unit"),
        (("--for", "systemd", "--folder", "/srv/../tmp/x", "--set", "profiles.live.master=local"), "without .."),
        ((*IMAGE, "--storage", "much"), "Cannot use --storage 'much'"),
        ((*IMAGE, "--image", "a b"), "Cannot use --image 'a b'"),
        ((*IMAGE, "--program", "/usr/bin/rekappa"), "Cannot use --program with --for kubernetes"),
        ((*IMAGE, "--secret", "PASSWORD=x9y8"), "Cannot use --secret"),
        (("--for", "systemd", "--folder", "/tmp/shop", "--set", "profiles.live.master=local"), "a /tmp of its own"),
        (("--for", "systemd", "--folder", "/srv/shop"), "Cannot write a systemd unit with profiles.live.master: k8s"),
        (("--for", "systemd", "--folder", "srv"), "Cannot use --folder 'srv'"),
        (("--for", "systemd", "--folder", "/srv/shop", "--user", "a b"), "Cannot use --user 'a b'"),
        (("--for", "systemd", "--folder", "/srv/shop", "--image", "x"), "Cannot use --image with --for systemd"),
    ],
)  # fmt: skip
def test_what_cannot_be_deployed_is_refused(shop: Path, words: tuple[str, ...], said: str) -> None:
    told = call(*words, "--out", "made")
    assert told.exit_code == 2
    assert said in told.stderr
    assert "x9y8" not in told.stderr
    assert told.stdout == ""
    assert not Path("made").exists()


def test_a_variable_that_no_manifest_can_name_is_refused(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKAPPA__OWNER OF", "x9y8")
    told = call(*IMAGE)
    assert told.exit_code == 2
    assert "REKAPPA__OWNER OF" in told.stderr
    assert "x9y8" not in told.output


def test_it_is_written_where_told_and_not_in_a_dry_run(shop: Path) -> None:
    assert "Would write shop.yaml" in call(*IMAGE, "--out", "shop.yaml", "--dry-run").stdout
    assert not Path("shop.yaml").exists()
    call(*IMAGE, "--out", "shop.yaml")
    call(*IMAGE, "--out", "shop")
    assert Path("shop.yaml").read_text() == Path("shop/web-shop.yaml").read_text() == call(*IMAGE).stdout
    made = json.loads(call(*UNITS, "--out", "units/here", "--json").stdout)
    names = ["rekappa-web-shop-live.service", "rekappa-web-shop-router.service"]
    assert [Path(path).name for path in made["written"]] == names
    assert {path.name for path in Path("units/here").iterdir()} == set(names)
    assert call(*UNITS, "--out", "shop.yaml").exit_code == 2
    Path("mine.yaml").write_text("mine: true")
    refused = call(*IMAGE, "--out", "mine.yaml")
    assert refused.exit_code == 2
    assert "did not write the file that is there" in refused.stderr
    assert Path("mine.yaml").read_text() == "mine: true"


def test_an_app_without_tables_needs_no_catalog(shop: Path) -> None:
    only_kafka = "sources.clicks.candidates={live: {type: kafka, topic: clicks}}"
    found = objects("--set", only_kafka, "--set", "catalogs.lake.type=stack")
    assert [one["metadata"]["name"] for one in found if one["kind"] == "Deployment"] == ["web-shop-live"]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("sinks.totals.host=127.0.0.1", "sinks.totals.host is an address of the machine itself"),
        ("clusters.main.bootstrap=kafka:9092,localhost:9092", "clusters.main.bootstrap is an address of the machine"),
        ("sinks.totals={type: parquet, path: /data/totals}", "sinks.totals.path is a folder of the pod"),
    ],
)
def test_places_that_a_pod_does_not_have_are_said(shop: Path, place: str, said: str) -> None:
    told = call(*IMAGE, "--set", place)
    assert told.exit_code == 0, told.stderr
    assert f"note: {said}" in told.stderr
    assert "machine itself" not in call(*IMAGE).stderr


def test_hive_tables_need_a_metastore_that_outlives_the_pod(shop: Path) -> None:
    hive = ("--set", "sinks.totals={type: hive, database: shop, table: totals, partition_by: day}")
    assert "Hive tables and no metastore" in call(*IMAGE, *hive).stderr
    assert objects(*hive, "--set", "profiles.live.spark.hadoop.hive.metastore.uris=thrift://metastore:9083")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine")
def test_units_pass_systemds_own_check(shop: Path) -> None:
    """With signs in the words that systemd would replace, and a word that needs quotes."""
    odd = ("--set", "owner=100% of \"$HOME\" \\ 'x'", "--set", "profiles.live.master=local[2]")
    # systemd looks the user up, so it must be one of this machine.
    told = call("--for", "systemd", "--folder", "/srv/a b", "--user", "root", *odd, "--console", "--out", "units")
    assert told.exit_code == 0, told.stderr
    units = sorted(str(path) for path in Path("units").iterdir())
    checked = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
    # Growing pauses came with systemd 254; older ones say that they ignore them.
    newer = re.compile(r"Unknown key.*'(RestartSteps|RestartMaxDelaySec)'.*ignoring")
    said = [line for line in checked.stderr.splitlines() if "rekappa-" in line and not newer.search(line)]
    assert (checked.returncode, said) == (0, [])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine")
def test_systemds_own_check_would_see_a_wrong_line(shop: Path) -> None:
    call("--for", "systemd", "--folder", "/srv/a", "--set", "profiles.live.master=local", "--out", "units")
    unit = Path("units/rekappa-web-shop-live.service")
    unit.write_text(unit.read_text().replace("KillMode=mixed", "KillMode=gently"))
    checked = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
    assert "KillMode" in checked.stderr or "kill mode" in checked.stderr


def test_a_unit_restarts_with_pauses_and_stops_in_peace(shop: Path) -> None:
    live, router = (one["text"] for one in json.loads(call(*UNITS, "--json").stdout)["files"])
    for line in ("Restart=on-failure", "StartLimitBurst=20", "KillSignal=SIGTERM", "KillMode=mixed", "MemoryMax=5735M",
                 "TimeoutStopSec=300", "EnvironmentFile=/etc/rekappa/web-shop.env"):  # fmt: skip
        assert line in live.splitlines()
    assert "TimeoutStopSec=720" in router.splitlines()
    program = Path(sys.executable).with_name("rekappa")
    *_, console = (one["text"] for one in json.loads(call(*UNITS, "--console", "--json").stdout)["files"])
    assert "KillMode=process" in console.splitlines(), "what was started from it goes on"
    assert "PrivateTmp=yes" not in console.splitlines(), "and so do its temporary files"
    assert f"ExecStart={program} console --behind-proxy --revive --port 8787" in console.splitlines()
    assert f"ExecStart={program} archive run /srv/shop --set profiles.live.master=local[2]" in router.splitlines()
    assert os.access(program, os.X_OK)


def test_a_probe_sees_its_own_drivers_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REKAPPA_HOME", str(tmp_path / ".rekappa"))
    store = RunStore.open(Home.locate())
    run = store.create(Run(id=new_run_id(Kind.LIVE), app="web_shop", kind=Kind.LIVE, folder="/app"))
    with store.claim(["live web_shop/totals"], "run") as claim:
        claim.begin(run.id)
        assert subprocess.run([sys.executable, "-m", "rekappa.deploy.ready", "web_shop", "live"]).returncode == 0
        assert probe(["web_shop", "archive"]) == 1
        claim.end(State.STOPPED)
    assert probe(["web_shop", "live"]) == 1
    assert "no live run of web_shop is at work on " in capsys.readouterr().err
    monkeypatch.setenv("REKAPPA_HOME", str(tmp_path / "elsewhere"))
    assert probe(["web_shop", "live"]) == 1
    assert capsys.readouterr().err.startswith("error: Cannot find a project")


PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()


@pytest.mark.parametrize("line", re.findall(r"^rekappa manifest (shop .*)$", PAGE, re.MULTILINE))
def test_the_commands_of_the_page_work(shop: Path, line: str) -> None:
    local = ("--set", "profiles.live.master=local[2]") if "systemd" in line else ()
    told = CliRunner().invoke(main, ["manifest", *line.split(), *local])
    assert told.exit_code == 0, told.stderr


def test_the_page_names_every_object_that_is_written(shop: Path) -> None:
    for one in objects():
        assert f"| {one['kind']}" in PAGE or f", {one['kind']}" in PAGE


@given(st.from_regex(r"[a-z][a-z0-9_-]{0,80}", fullmatch=True))
def test_every_apps_name_gives_a_label(app: str) -> None:
    made = label(app)
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", made)
    assert len(made) <= LONGEST
    assert label(made) == made


def test_variables_are_found_wherever_they_stand() -> None:
    text = "a: ${A}\nb: ['x-${B:-1}-${C}', {c: '${B:-2} $${D}'}] # ${E}\nf: &here\n  g: ${C:-3}\nh: *here\n"
    assert variables(text, "x") == (Variable("A", False), Variable("B", True), Variable("C", False))
