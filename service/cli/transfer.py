"""The bar that commands show while bytes go to the service or come from it."""

from __future__ import annotations

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from service.cli.output import err


def transfer() -> Progress:
    """A bar on standard error, in bytes; nothing where that is not a terminal."""
    return Progress(
        TextColumn("[bold]{task.description}[/]"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
