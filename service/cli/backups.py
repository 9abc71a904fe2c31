"""`zedlog backup`, `zedlog restore`, `zedlog dump`: a database as a file, and back.

A backup is written under a temporary name beside its own, checked as a restore would check it, and renamed at the end;
so a file that has the name is a whole backup. The progress bar is shown on a terminal.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import TaskID

from service.cli import options
from service.cli.client import Json, ServiceClient
from service.cli.jobs import follow, report, size
from service.cli.output import counted, note, out
from service.cli.transfer import transfer

if TYPE_CHECKING:
    from engine.backup.reading import Backup

_PORTION = 1 << 20
Epoch = Annotated[
    int | None, typer.Option(help="An older epoch, if it is still retained. Default: the newest.")
]


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the backup, a zip.")],
    url: options.Url = options.URL,
    epoch: Epoch = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of that name.")] = False,
) -> None:
    """Back up one epoch of a running database into a file, while others go on writing.

    Facts with their weights and sources, rules and declarations, as Parquet and JSON in a zip with checksums;
    README.txt in it says how to read it without Zedlog. Derived tuples are derived again after a restore.

    Examples:

    - `zedlog backup monday.zip`
    - `zedlog backup before.zip --epoch 1234`
    """
    if file.exists() and not overwrite:
        raise typer.BadParameter(f"{file} exists; --overwrite replaces it", param_hint="FILE")
    with _beside(file) as partial:
        with ServiceClient(url) as client:
            checked = _download(client, partial, epoch)
        os.replace(partial, file)
    manifest = checked.manifest
    out.print(
        f"epoch [bold]{manifest.epoch}[/] of {escape(manifest.database)} is in [bold]{escape(str(file))}[/] "
        f"({size(file.stat().st_size)}), written and checked: {counted(manifest.rows, 'fact')}, "
        f"{counted(manifest.rules, 'rule')}"
    )


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    url: options.Url = options.URL,
    check: Annotated[
        bool, typer.Option("--check", help="Only check the file and show what is in it. Needs no service.")
    ] = False,
) -> None:
    """Restore a backup into an empty database, as one epoch: all of it, or nothing.

    The file is checked first; a damaged one is refused with the name of its damaged part. Afterwards the numbers of
    tuples, derived ones included, are compared with those of the backup; exit status 1 if they differ.

    Examples:

    - `zedlog restore monday.zip`
    - `zedlog restore monday.zip --url http://127.0.0.1:9000`
    - `zedlog restore monday.zip --check`
    """
    found = _checked(file)
    if check:
        _show(found)
        return
    with ServiceClient(url) as client:
        job = follow(client, _send(client, file))
    report(job)
    if job["result"]["differences"]:
        raise typer.Exit(1)


def dump(
    target: Annotated[
        Path, typer.Argument(metavar="DIR|FILE.dl", help="A new folder; or one program with the facts in it.")
    ],
    url: options.Url = options.URL,
    epoch: Epoch = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="BACKUP", help="Dump a backup; needs no service.")
    ] = None,
) -> None:
    """Write one epoch as program text and files of facts, for Souffle, for zedlog run, or for people.

    A folder gets `program.dl` and one `.facts` for each relation that has facts; a name that ends in .dl becomes one
    program with the facts as clauses. What Souffle does not know is said. Weights, and which source asserts which
    facts, are not kept; a backup keeps them.

    Examples:

    - `zedlog dump folder` and then `zedlog run folder/program.dl -F folder -D -`
    - `zedlog dump all.dl`
    - `zedlog dump folder --from monday.zip`
    """
    from engine.backup.dumping import dump_folder, dump_program

    if target.exists():
        raise typer.BadParameter(f"{target} exists already; name a new one", param_hint="DIR|FILE.dl")
    with tempfile.TemporaryDirectory(prefix="zedlog-dump-") as scratch:
        if source is not None:
            found = _checked(source)
        else:
            with ServiceClient(url) as client:
                found = _download(client, Path(scratch) / "backup.zip", epoch)
        with _beside(target) as partial:
            if target.suffix == ".dl":
                remarks = dump_program(found, partial)
            else:
                partial.mkdir()
                remarks = dump_folder(found, partial)
            os.replace(partial, target)
    for remark in remarks:
        note(f"[yellow]note:[/] {escape(remark)}")
    manifest = found.manifest
    out.print(
        f"epoch [bold]{manifest.epoch}[/] of {escape(manifest.database)} is in [bold]{escape(str(target))}[/]: "
        f"{counted(manifest.rows, 'fact')}, {counted(manifest.rules, 'rule')}"
    )


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A temporary name beside the target; what has it is removed at the end, if it is still there."""
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        yield partial
    except OSError as error:
        raise typer.BadParameter(
            f"{error.filename or target} cannot be written: {error.strerror}", param_hint="FILE"
        ) from error
    finally:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


def _download(client: ServiceClient, path: Path, epoch: int | None) -> Backup:
    """The backup of an epoch, in a file, checked."""
    with path.open("wb") as file, transfer() as progress:
        task = progress.add_task("backing up", total=None)
        for portion in client.download("/v1/backup", as_of=epoch):
            file.write(portion)
            progress.advance(task, len(portion))
        file.flush()
        os.fsync(file.fileno())
    return _checked(path)


def _checked(path: Path) -> Backup:
    from engine.backup.reading import opened

    with transfer() as progress:
        task: TaskID | None = None

        def told(done: int, whole: int) -> None:
            nonlocal task
            if task is None:
                task = progress.add_task("checking", total=whole)
            progress.update(task, completed=done)

        return opened(path, told)


def _send(client: ServiceClient, path: Path) -> Json:
    with path.open("rb") as stream, transfer() as progress:
        task = progress.add_task("sending", total=path.stat().st_size)

        def portions() -> Iterator[bytes]:
            while portion := stream.read(_PORTION):
                progress.advance(task, len(portion))
                yield portion

        return client.upload("/v1/restore", None, portions())


def _show(found: Backup) -> None:
    manifest = found.manifest
    written = datetime.fromtimestamp(manifest.written).strftime("%Y-%m-%d %H:%M:%S")
    out.print(
        f"a whole backup of epoch [bold]{manifest.epoch}[/] of {escape(manifest.database)}, written {written} "
        f"by version {escape(manifest.version)}: {counted(manifest.rules, 'rule')}"
    )
    for one in manifest.collections:
        tuples = one.tuples
        if one.hidden:
            place = one.place
            facts = f"{counted(tuples['asserted'], 'fact')} of {escape(place['relation'])}"
            out.print(f"  the source {escape(place['source'])} asserts {facts}")
            continue
        out.print(
            f"  {escape(str(one.schema))}: {counted(tuples['asserted'], 'fact')}"
            + (f", {tuples['derived']:,} derived" if tuples["derived"] else "")
        )
