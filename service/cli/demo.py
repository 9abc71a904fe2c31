"""`zedlog demo`: the service, live, over the dependency graph of this machine's Python packages.

Starts the whole service on a data directory of its own that is deleted when the demo ends, tells the story (story.py)
over REST, and leaves the service running in the foreground for the reader to try.
"""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.markup import escape

from service.cli.bulk_story import BulkStory
from service.cli.client import ServiceClient
from service.cli.output import counted, note, out, show
from service.cli.packages import installed
from service.cli.serve import DEFAULT_PORT, Deployment, run
from service.cli.story import Story
from service.cli.trust_story import TrustStory


def demo(
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port to listen on. Default: 8321, or a free port."),
    ] = None,
    path: Annotated[
        list[Path] | None, typer.Option(help="Look at the packages in this site-packages folder instead.")
    ] = None,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Skip the chapter about Spark, which takes half a minute.")
    ] = False,
    exit: Annotated[bool, typer.Option("--exit", help="End the service after the story.")] = False,
) -> None:
    """Show what Zedlog does, on real data: which installed Python packages are exposed to a vulnerable one?

    Examples:

    - `zedlog demo`
    - `zedlog demo --exit`
    - `zedlog demo --path /usr/lib/python3/dist-packages`
    """
    facts = installed([str(folder) for folder in path] if path else None)
    if not facts.requires:
        where = ", ".join(map(str, path)) if path else "this environment"
        note(f"[yellow]No package in {escape(where)} requires another one, so there is no graph to show.[/]")
        raise typer.Exit(1)
    out.print(
        f"Read the metadata of {counted(len(facts.version), 'installed package')}: "
        f"{counted(len(facts.requires), 'dependency', 'dependencies')}, with versions and licences."
    )

    def told(url: str) -> bool:
        with ServiceClient(url) as client:
            story = Story(client, facts)
            story.tell()
            TrustStory(url, story).tell()
            if not no_spark:
                BulkStory(client, facts, folder / "import").tell()
        if exit:
            out.print(
                "\n[dim]The service stops now and its data is deleted. "
                "Without --exit it keeps running, for you to try.[/]"
            )
        else:
            _say_what_next(url, story)
        return not exit

    with tempfile.TemporaryDirectory(prefix="zedlog-demo-") as name:
        folder = Path(name)
        (folder / "import").mkdir()
        folders = {"IMPORT_ROOT": "import", "EXPORT_ROOT": "export", "BATCH_DIR": "batches"}
        variables = {f"ZEDLOG_{name}": str(folder / inside) for name, inside in folders.items()}
        run(Deployment(port=_port(port), data_dir=folder, variables=variables), told)


def _port(given: int | None) -> int:
    """The port that was asked for; otherwise the usual one if nothing listens there; otherwise any."""
    if given is not None:
        return given
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", DEFAULT_PORT))
        except OSError:
            return 0
    return DEFAULT_PORT


def _say_what_next(url: str, story: Story) -> None:
    option = "" if url.endswith(f":{DEFAULT_PORT}") else f" --url {url}"
    goal = f"depends(p, {show(story.vulnerable)})"
    body = orjson.dumps({"query": goal}).decode()
    out.print("\n[bold]The service is still running. Try, in another terminal:[/]")
    lines = [
        f"zedlog query '{goal}'{option}",
        f"zedlog epochs{option}",
        f"zedlog rules list{option}",
        f"curl -s {url}/v1/query -H 'content-type: application/json' -d '{body}'",
        f"curl -s '{url}/v1/relations/exposed/facts?limit=5'",
    ]
    if story.cut is not None:
        lines.insert(1, f"zedlog facts add 'requires({', '.join(map(show, story.cut))}).' --delta{option}")
    for line in lines:
        out.print(f"  {escape(line)}")
    out.print(f"[dim]API: {url}/docs[/]   [bold]Ctrl-C stops it[/] (and deletes the demo's data).")
    out.print(f"\n[bold]Or open it in a browser: {url}/[/]")
