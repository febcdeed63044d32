"""The identity of code: what counts, what is kept, what comes back, and what never leaves the folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rekappa.cli.main import main
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.store.address import Address
from rekappa.store.code import MOST_OF_A_FILE, Code
from rekappa.store.code_diff import code_diff
from rekappa.store.kept import keep_code, kept_files, kept_folder
from rekappa.store.record import Kind, Run, Start
from rekappa.store.runs import RunStore

names = st.from_regex(r"[a-z]{1,6}(/[a-z]{1,6})?\.(py|yaml|sql|avsc)", fullmatch=True)
folders = st.dictionaries(names, st.binary(max_size=60), min_size=1, max_size=5)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(folders, folders)
def test_equal_folders_are_the_same_code_and_come_back(
    tmp_path_factory: pytest.TempPathFactory, one: dict[str, bytes], two: dict[str, bytes]
) -> None:
    root = tmp_path_factory.mktemp("code")
    home = Home(root / ".rekappa")
    first, second = write(root / "one", one), write(root / "two", two)
    (first / "__pycache__").mkdir()
    (first / "__pycache__" / "a.pyc").write_bytes(b"x")
    (first / ".git").mkdir()
    (first / ".git" / "HEAD").write_bytes(b"x")
    a, b = keep_code(home, first), keep_code(home, second)
    assert (a.hash == b.hash) == (one == two)
    assert a.hash
    assert b.hash
    assert kept_files(home, a.hash) == one
    again = keep_code(home, kept_folder(home, b.hash))
    assert again.hash == b.hash
    assert (code_diff(one, two, ("a", "b")) == "") == (one == two)
    assert Code.from_json(a.as_json()) == a


def test_secrets_stay_where_they_are(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "app",
        {
            "app.py": b"x = 1\n",
            "secret_santa.py": b"y = 1\n",
            "rekappa.yaml": b"app: a\nsinks:\n  o: {type: postgres, password: hunter2, table: t}\n"
            b"  p:\n    password: ${PG_PASSWORD}\n    user: me\n    'sasl.jaas.config': \"very hidden\"\n",
            ".env": b"PASSWORD=hunter2",
            "prod.env": b"hunter2",
            "server.pem": b"hunter2",
            "credentials.json": b"hunter2",
            "events.parquet": b"PAR1",
            "big.json": b" " * (MOST_OF_A_FILE + 1),
        },
    )
    code = keep_code(Home(tmp_path / ".rekappa"), folder)
    assert code.hash
    kept = kept_files(Home(tmp_path / ".rekappa"), code.hash)
    assert set(kept) == {"app.py", "secret_santa.py", "rekappa.yaml"}
    assert set(code.left_out) == {"big.json", "credentials.json", "prod.env", "server.pem"}
    text = kept["rekappa.yaml"].decode()
    assert "hunter2" not in text
    assert "very hidden" not in text
    assert "${PG_PASSWORD}" in text
    assert 'password: "***", table: t}' in text
    write(folder, {"rekappa.yaml": (folder / "rekappa.yaml").read_bytes().replace(b"hunter2", b"changed")})
    assert keep_code(Home(tmp_path / ".rekappa"), folder).hash == code.hash, "a new password is no new code"


def test_git_says_commit_and_changes(tmp_path: Path) -> None:
    folder, home = write(tmp_path / "repo", {"app.py": b"x = 1\n"}), Home(tmp_path / ".rekappa")
    assert keep_code(home, folder).commit is None
    git = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "m"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    clean = keep_code(home, folder)
    assert clean.commit
    assert clean.dirty is False
    (folder / "app.py").write_text("x = 2\n")
    dirty = keep_code(home, folder)
    assert (dirty.commit, dirty.dirty) == (clean.commit, True)
    assert dirty.hash != clean.hash


def test_a_changed_blob_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / ".rekappa")
    one = keep_code(home, write(tmp_path / "a", {"app.py": b"1"})).hash
    two = keep_code(home, write(tmp_path / "b", {"app.py": b"2"})).hash
    assert one
    assert two
    store = RunStore.open(home)
    other = store.code(two)
    assert other is not None
    store.drop_code([one])
    store.keep_code(one, other)
    with pytest.raises(RunError, match="was changed since"):
        kept_folder(home, one)
    with pytest.raises(RunError, match="does not hold it"):
        kept_folder(home, "0" * 32)


def test_runs_shows_the_code_and_the_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / ".rekappa")
    monkeypatch.setenv("REKAPPA_HOME", str(home.root))
    store = RunStore.open(home)
    folder = write(tmp_path / "app", {"app.py": b"LIMIT = 10\nMORE = 1\n"})
    window = {"start": "2026-11-01T00:00Z", "end": "2026-11-01T01:00Z", "modes": {"j": "bulk"}}
    store.create(Run("live_1", "a", Kind.LIVE, str(folder)))
    store.create(Run("backfill_1", "a", Kind.BACKFILL, str(folder), spec=window))
    store.create(Run("backfill_2", "a", Kind.BACKFILL, str(folder), spec=window))
    store.record_start(Start("live_1", "out", 0, keep_code(home, folder)))
    write(folder, {"app.py": b"LIMIT = 20\nMORE = 1\n"})
    store.record_start(Start("backfill_1", "", 0, keep_code(home, folder)))

    def call(*words: str) -> str:
        result = CliRunner().invoke(main, ["runs", *words])
        assert result.exit_code == 0, result.output
        return result.stdout

    text = call("backfill_1", "--diff", "live_1")
    assert "--- live_1/app.py\n+++ backfill_1/app.py\n" in text
    assert "-LIMIT = 10\n+LIMIT = 20\n" in text
    shown = call("backfill_1")
    digest = store.starts("backfill_1")[0].code.hash
    assert digest
    for word in (digest[:12], "2026-11-01T01:00Z", "j: bulk", "not validated", "not published", "4.1.3"):
        assert word in shown
    assert call("live_1", "--diff", "live_1").startswith("the same code")
    refused = CliRunner().invoke(main, ["runs", "backfill_1", "--diff", "backfill_2"])
    assert refused.exit_code == 2
    assert "it was not recorded" in refused.stderr


def test_a_live_run_has_its_code_batch_by_batch(address: Address) -> None:
    store = RunStore(address)
    for batch, code in ((0, "a"), (7, "b"), (7, "c"), (9, "a")):
        store.record_start(Start("live_1", "out", batch, Code(code), "lake.t"))
    store.record_start(Start("live_1", "other", 3, Code("z")))
    assert [(one.batch, one.code.hash) for one in store.starts("live_1", "out")] == [(0, "a"), (7, "c"), (9, "a")]
