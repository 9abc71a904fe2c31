"""The commands of history and sources, as a user types them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from service.cli.main import run
from tests.live import LiveSystem

Zedlog = Callable[..., tuple[int, str, str]]


@pytest.fixture
def zedlog(
    own_live: LiveSystem, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Zedlog:
    monkeypatch.setenv("ZEDLOG_URL", own_live.url)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        status = run(arguments)
        seen = capsys.readouterr()
        return status, seen.out, seen.err

    return call


def test_a_file_is_kept_in_step(zedlog: Zedlog, tmp_path: Path) -> None:
    boss = tmp_path / "cli_boss.csv"
    boss.write_text("who,of\nann,bob\nbob,cid\n")
    zedlog(
        "rules",
        "add",
        "cli_over(x, y) :- cli_boss(x, y).",
        "cli_over(x, z) :- cli_over(x, y), cli_boss(y, z).",
    )
    status, out, err = zedlog("sync", "cli hr", "cli_boss.csv", "--header", "--dry-run")
    assert (status, "would be epoch" in out, "cli hr would assert 2 rows of cli_boss" in err) == (
        0,
        True,
        True,
    )
    assert '+ cli_over("ann", "cid")' in out
    assert zedlog("sync", "cli hr", "cli_boss.csv", "--header", "-m", "first")[0] == 0
    assert zedlog("query", "cli_over(x, y)")[1].splitlines()[1:] == ["ann,bob", "ann,cid", "bob,cid"]
    assert zedlog("relations", "--format", "csv")[1].count("who: symbol") == 1
    assert "no tuple appeared" in zedlog("sync", "cli hr", "cli_boss.csv", "--header")[1]
    boss.write_text("who,of\nann,bob\nbob,dan\n")
    (tmp_path / "cli_age.tsv").write_text("ann\t40\n")
    status, out, _ = zedlog("sync", "cli hr", "cli_boss.csv", "cli_age.tsv", "--header", "--delta")
    # The header of the second file was its only row.
    assert status == 1
    status, out, _ = zedlog("sync", "cli hr", "cli_boss.csv", "--header", "--delta", "--message", "second")
    assert (status, '- cli_boss("bob", "cid")' in out, '+ cli_boss("bob", "dan")' in out) == (0, True, True)
    assert "cli_over +2 -2" in out
    assert zedlog("sync", "cli hr", "cli_age.tsv", "--delta")[0] == 0
    listed = zedlog("sources", "list", "--format", "csv")[1].splitlines()
    assert [line.split(",")[:3] for line in listed[1:] if line.startswith("cli hr")] == [
        ["cli hr", "cli_age", "1"],
        ["cli hr", "cli_boss", "2"],
    ]
    boss.write_text("")
    status, _, err = zedlog("sync", "cli hr", "cli_boss.csv")
    assert (status, "--allow-empty" in err, "Nothing was sent" in err) == (1, True, True)
    assert "cli_boss -2" in zedlog("sync", "cli hr", "cli_boss.csv", "--allow-empty", "--dry-run")[1]
    boss.write_text("a,b\nc\n")
    status, _, err = zedlog("sync", "cli hr", "cli_boss.csv")
    assert (status, "line 2" in err) == (1, True)
    assert zedlog("sync", "cli hr", "cli_boss.csv", "cli_boss.csv")[0] == 2
    assert zedlog("sync", "cli hr", "-")[0] == 2
    status, out, _ = zedlog("sources", "remove", "cli hr", "--delta")
    assert (status, "cli_boss -2" in out, "nothing any more" in out) == (0, True, True)
    # No relation of that name is left, but its past is.
    rows = zedlog("history", 'cli_age("ann", x)', "--format", "csv")[1].splitlines()
    assert [line.split(",")[2] for line in rows[1:]] == ["went", "appeared"]
    status, _, err = zedlog("blame", 'cli_age("ann", 40)')
    assert (status, 'cli_age("ann", 40) went at epoch' in err) == (1, True)
    assert zedlog("blame", 'cli_never("ann")')[0] == 1
    status, _, err = zedlog("sources", "remove", "cli hr")
    assert (status, "unknown_source" in err) == (1, True)


def test_blame_history_lists_and_rollback(zedlog: Zedlog, tmp_path: Path) -> None:
    zedlog("rules", "add", "cli_seen(x) :- cli_at(x, n), n > 1.")
    (tmp_path / "cli_at.csv").write_text("ann,1\n")
    zedlog("sync", "cli b", "cli_at.csv")
    (tmp_path / "cli_at.csv").write_text("ann,1\nann,2\n")
    out = zedlog("sync", "cli b", "cli_at.csv", "-m", "two")[1]
    epoch = int(out.split()[1])
    status, out, _ = zedlog("blame", 'cli_seen("ann")')
    assert status == 0
    assert f"since epoch {epoch}, " in out
    assert "for the source cli b: two" in out
    assert "derived by a rule" in out
    status, out, _ = zedlog("blame", 'cli_at("ann", n)')
    assert (status, out.count("asserted by cli b (1)")) == (0, 2)
    assert zedlog("blame", 'cli_seen("bob")')[0] == 1
    assert zedlog("blame", "cli_at(x, x)")[0] == 2
    assert zedlog("blame", "cli_at(x)")[0] == 2
    assert zedlog("blame", "cli_at(x")[0] == 1
    status, out, _ = zedlog("rollback", str(epoch - 1), "--dry-run")
    assert (status, '- cli_seen("ann")' in out, '- cli_at("ann", 2)' in out) == (0, True, True)
    assert zedlog("rollback", str(epoch - 1), "-m", "back")[0] == 0
    status, _, err = zedlog("blame", 'cli_seen("ann")')
    assert status == 1
    assert f"went at epoch {epoch + 1}" in err
    assert ": back" in err
    rows = zedlog("history", 'cli_seen("ann")', "--format", "csv")[1].splitlines()
    assert [line.split(",")[0::2][:2] for line in rows[1:]] == [
        [str(epoch + 1), "went"],
        [str(epoch), "appeared"],
    ]
    listed = zedlog("transactions", "list", "--limit", "2", "--status", "committed", "--format", "csv")[
        1
    ].splitlines()
    assert f"rollback to {epoch - 1}" in listed[1]
    assert ",cli b,two," in listed[2]
    assert len(listed) == 3
    assert zedlog("transactions", "list", "--source", "cli b", "--format", "csv")[1].count("\n") == 3
    status, _, err = zedlog("rollback", "100000")
    assert (status, "epoch_not_retained" in err) == (1, True)


def test_every_command_explains_itself(zedlog: Zedlog) -> None:
    for command in (
        ("sync",),
        ("sources", "list"),
        ("sources", "remove"),
        ("blame",),
        ("history",),
        ("rollback",),
    ):
        status, out, _ = zedlog(*command, "--help")
        assert (status, f"zedlog {' '.join(command)}" in out) == (0, True)
    assert zedlog("transactions", "list", "--status", "lost")[0] == 1
