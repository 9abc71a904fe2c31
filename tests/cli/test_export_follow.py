"""`zedlog export --follow`: every epoch once, whatever is killed when; as Parquet and as a table of Delta."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from engine.errors import InvalidRequestError, TargetExistsError
from service.cli.export_files import Folder
from service.cli.export_follow import follow_changes

EDGE = [{"name": "x", "type": "symbol"}, {"name": "n", "type": "number"}]
TC = {"relation": "edge"}


class Killed(BaseException):
    """The process is gone."""


class Service:
    """A feed of the relation `edge`, from a list of epochs that each insert and delete; and its subscriptions."""

    def __init__(self, epochs: list[tuple[list[Any], list[Any]]]) -> None:
        self.epochs = epochs
        self.calls: list[tuple[str, str, Any]] = []

    def state(self, epoch: int) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for inserted, deleted in self.epochs[: epoch + 1]:
            found.update(map(tuple, inserted))
            found.subtract(map(tuple, deleted))
        return +found

    def feed(self, path: str, about: Any, *, after: str | None, snapshot: bool, lost: Any) -> Iterator[Any]:
        assert (path, about) == ("/v1/changes", TC)
        first = int(after.partition("-")[0]) if after else 1
        if snapshot:
            rows = [list(row) for row in self.state(first)]
            for i, part in enumerate((rows[:1], rows[1:])):
                yield {
                    "event": "snapshot",
                    "epoch": first,
                    "part": i,
                    "relation": "edge",
                    "columns": EDGE,
                    "tuples": part,
                    "last": i == 1,
                    "token": f"{first}-abc",
                }
        for epoch in range(first + 1, len(self.epochs)):
            inserted, deleted = self.epochs[epoch]
            place = {"epoch": epoch, "token": f"{epoch}-abc"}
            if not inserted and not deleted:
                yield {"event": "progress", **place}
                continue
            yield {
                "event": "change",
                "changes": {"edge": {"inserted": inserted, "deleted": deleted}},
                **place,
            }

    def exchange(self, method: str, path: str, parameters: Any, body: Any, headers: Any, **_: Any) -> None:
        self.calls.append((method, path, body))


EPOCHS: list[tuple[list[Any], list[Any]]] = [
    ([], []),
    ([["a", 1], ["b", 2]], []),
    ([["c", 3]], [["a", 1]]),
    ([], []),
    ([["a", 1]], [["b", 2], ["c", 3]]),
    ([], [["a", 1]]),
]


def follow(
    service: Service, path: Path, until: int, *, as_delta: bool = False, name: str | None = None
) -> None:
    follow_changes(service, "edge", path, as_delta=as_delta, until=until, subscription=name)  # type: ignore[arg-type]


def rows(files: list[Path]) -> list[dict[str, Any]]:
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def of_delta(path: Path) -> list[Path]:
    """The files that a reader of the table sees."""
    found = []
    for version, file in enumerate(sorted((path / "_delta_log").glob("*.json"))):
        assert file.stem == f"{version:020d}"
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        assert (version == 0) == any("metaData" in action for action in actions)
        found += [path / action["add"]["path"] for action in actions if "add" in action]
    return found


def of_parquet(path: Path) -> list[Path]:
    return sorted(path.glob("[!._]*.parquet"))


def check(service: Service, files: list[Path], upto: int) -> None:
    """Each file once, and at each epoch the sum of the weights is the state."""
    assert len(set(files)) == len(files)
    found = rows(files)
    for epoch in range(1, upto + 1):
        total: Counter[Any] = Counter()
        for row in found:
            if row["epoch"] <= epoch:
                total[row["x"], row["n"]] += row["weight"]
        assert Counter({k: v for k, v in total.items() if v}) == service.state(epoch), epoch


@pytest.mark.parametrize("as_delta", [False, True])
def test_the_sum_of_the_weights_is_the_state_of_each_epoch(tmp_path: Path, as_delta: bool) -> None:
    service, path = Service(EPOCHS), tmp_path / "out"
    read = of_delta if as_delta else of_parquet
    for until in (2, 2, 3, 5):
        follow(service, path, until, as_delta=as_delta)
        check(service, read(path), until)
    names = [file.name for file in read(path)]
    assert names == [f"epoch-{n:020d}{'-snapshot' * (n == 1)}.parquet" for n in (1, 2, 4, 5)]


KILLS = ("_sync", "_first", "_whole", "move", "_keep")


@pytest.mark.parametrize("as_delta", [False, True])
@pytest.mark.parametrize("where", KILLS)
@pytest.mark.parametrize("afterwards", [False, True])
def test_a_kill_at_any_moment_neither_doubles_nor_loses_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_delta: bool, where: str, afterwards: bool
) -> None:
    service, path = Service(EPOCHS), tmp_path / "out"
    owner: Any = (
        Folder if where in ("move", "_keep") else __import__("service.cli.export_files", fromlist=["x"])
    )
    real: Callable[..., Any] = getattr(owner, where)
    seen = {"calls": 0, "at": 0}

    def killed(*arguments: Any) -> Any:
        seen["calls"] += 1
        at_last = seen["calls"] == seen["at"]
        if at_last and not afterwards:
            raise Killed
        done = real(*arguments)
        if at_last:
            raise Killed
        return done

    for at in range(1, 13):
        seen.update(calls=0, at=at)
        with monkeypatch.context() as patch:
            patch.setattr(owner, where, killed)
            with suppress(Killed):
                follow(service, path, 5, as_delta=as_delta)
    follow(service, path, 5, as_delta=as_delta)
    check(service, of_delta(path) if as_delta else of_parquet(path), 5)


def test_a_subscription_is_made_and_acknowledged_behind_the_files(tmp_path: Path) -> None:
    service = Service(EPOCHS)
    follow(service, tmp_path / "out", 4, name="lake")
    assert service.calls[0] == ("PUT", "/v1/subscriptions/lake", {"relations": ["edge"]})
    acked = [body["token"] for method, path, body in service.calls[1:]]
    assert acked == ["1-abc", "2-abc", "3-abc", "4-abc"]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("x")
    with pytest.raises(TargetExistsError, match="holds other things"):
        Folder(tmp_path / "other", TC, as_delta=False)
    Folder(tmp_path / "edge", TC, as_delta=False)
    with pytest.raises(TargetExistsError, match="has the changes of edge"):
        Folder(tmp_path / "edge", {"relation": "tc"}, as_delta=False)
    with pytest.raises(InvalidRequestError, match="has the format parquet"):
        Folder(tmp_path / "edge", TC, as_delta=True)


def test_columns_that_change_end_it_and_those_of_the_same_name_stay(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "edge", TC, as_delta=True)
    folder.take_columns([{"name": "weight", "type": "number"}, {"name": "x", "type": None}])
    assert folder.columns is None
    folder.take_columns([{"name": "weight", "type": "number"}, {"name": "x", "type": "float"}])
    with folder.writing(3) as file:
        file.add([[7, 2], [8, 2.5]], 1)
    assert pq.read_table(of_delta(folder.path)[0]).to_pylist() == [
        {"weight": 7, "x": 2.0, "zedlog_weight": 1, "epoch": 3},
        {"weight": 8, "x": 2.5, "zedlog_weight": 1, "epoch": 3},
    ]
    with pytest.raises(InvalidRequestError, match="other ones now"):
        folder.take_columns(EDGE)
