"""`zedlog export WHAT FOLDER --follow`: what each epoch changes, as a file for each epoch, until Ctrl-C.

It runs here and not as a job of the engine: it needs no Spark, the changes come over the feed that every consumer
uses, with the rights of the caller, and the folder is one of the caller's machine. Always: the position in the folder
is moved after the file is there, so after a kill at any moment an epoch may come again, and replaces its own file. With
a subscription the service keeps the epochs that have not been written.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote

from rich.markup import escape

from engine.language.operators import is_relation_name
from service.cli.client import Json, ServiceClient
from service.cli.output import counted, note


def follow_changes(
    client: ServiceClient,
    what: str,
    path: Path,
    *,
    as_delta: bool,
    until: int | None,
    subscription: str | None,
) -> None:
    """Write what comes, until a signal or the epoch `until`."""
    # Here, for the other commands do without pyarrow.
    from service.cli.export_files import Folder

    about = {"relation" if is_relation_name(what) else "query": what}
    folder = Folder(path, about, as_delta=as_delta)
    if subscription is not None:
        body = {"relations": [what]} if "relation" in about else {"query": what}
        client.exchange("PUT", _path(subscription), {}, body, {}, repeatable=True)
    if folder.token is None:
        note(f"{escape(str(path))} is new: it begins with the state of the newest epoch")
    else:
        note(f"{escape(str(path))} has all up to the epoch {folder.epoch}; going on after it")
    work = _Following(client, folder, until, subscription)
    with _signals():
        try:
            work.run(about)
        except KeyboardInterrupt:
            note("stopped; started again, it goes on here")
    written = f"{counted(work.files, 'file')} with {counted(work.rows, 'row')} written"
    note(
        f"{written}; {escape(str(path))} is complete up to the epoch {folder.epoch}"
        if folder.token is not None
        else "nothing written: the state had not arrived as a whole"
    )


class _AgainError(Exception):
    """The state begins again with this part."""

    def __init__(self, part: Json) -> None:
        super().__init__()
        self.part = part


class _Following:
    def __init__(
        self, client: ServiceClient, folder: Any, until: int | None, subscription: str | None
    ) -> None:
        self._client, self._folder = client, folder
        self._until, self._subscription = until, subscription
        self.files = self.rows = 0

    def run(self, about: Json) -> None:
        folder = self._folder
        events = self._client.feed(
            "/v1/changes", about, after=folder.token, snapshot=folder.token is None, lost=self._lost
        )
        for event in self._stated(events):
            kind = event["event"]
            if kind == "change":
                self._change(event)
            if kind in ("change", "progress") and "epoch" in event:
                self._moved(event)
            if self._until is not None and folder.epoch >= self._until:
                return

    def _stated(self, events: Iterator[Json]) -> Iterator[Json]:
        """The events after the state, whose parts are written here."""
        for event in events:
            if event["event"] == "snapshot":
                self._state(event, events)
            else:
                yield event
            if self._until is not None and self._folder.epoch >= self._until:
                return

    def _state(self, first: Json, events: Iterator[Json]) -> None:
        """The state; when it begins again at its part 0, because the connection was lost, so does its file."""
        begin: Json | None = first
        while begin is not None:
            part, begin = begin, None
            self._folder.columns = None
            self._folder.take_columns(part["columns"])
            if self._folder.columns is None:
                # No tuple has given the columns types yet.
                assert not part["tuples"], "a tuple has types"
                break
            try:
                self._write_state(part, events)
            except _AgainError as again:
                begin = again.part
        if self._folder.columns is None:
            while not part["last"]:
                part = next(events)
            self._moved(part)

    def _write_state(self, part: Json, events: Iterator[Json]) -> None:
        with self._folder.writing(part["epoch"], snapshot=True) as file:
            file.add(part["tuples"], 1)
            while not part["last"]:
                part = next(events)
                if part["event"] != "snapshot":
                    continue
                if part["part"] == 0:
                    raise _AgainError(part)
                file.add(part["tuples"], 1)
                note(f"[dim]the state of the epoch {part['epoch']}: {counted(file.rows, 'row')} so far[/]")
            file.token = part["token"]
        self._told(part, f"the state, {counted(file.rows, 'row')}", file.rows)
        self._moved(part)

    def _change(self, event: Json) -> None:
        for columns in event.get("columns", {}).values():
            self._folder.take_columns(columns or ())
        for change in event["changes"].values():
            inserted, deleted = change["inserted"], change["deleted"]
            if not (inserted or deleted) or self._folder.has(event["epoch"]):
                continue
            with self._folder.writing(event["epoch"]) as file:
                file.token = event["token"]
                file.add(deleted, -1)
                file.add(inserted, 1)
            self._told(event, f"+{len(inserted):,} -{len(deleted):,}", len(inserted) + len(deleted))

    def _told(self, event: Json, what: str, rows: int) -> None:
        self.files += 1
        self.rows += rows
        note(f"epoch {event['epoch']}: {what}")

    def _moved(self, event: Json) -> None:
        if event["epoch"] <= self._folder.epoch:
            return
        if event["event"] == "progress":
            note(f"[dim]up to the epoch {event['epoch']}: nothing else[/]")
        self._folder.move(str(event["token"]), int(event["epoch"]))
        if self._subscription is not None:
            path, body = f"{_path(self._subscription)}/ack", {"token": event["token"]}
            self._client.exchange("POST", path, {}, body, {}, repeatable=True)

    @staticmethod
    def _lost(why: str, position: str | None) -> None:
        note(f"[yellow]{escape(why)}; going on after {escape(position or 'the beginning')}[/]")


def _path(subscription: str) -> str:
    return f"/v1/subscriptions/{quote(subscription, safe='')}"


@contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM stops it as Ctrl-C does."""

    def heard(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
