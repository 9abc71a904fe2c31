"""`zedlog explain`: why a tuple holds, why it does not, and why it changed, as a tree."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape
from rich.tree import Tree

from engine.explain.rendering import Line, as_mermaid
from engine.explain.rendering_answer import answer_lines
from service.cli import options
from service.cli.client import Json, ServiceClient
from service.cli.output import counted, note, out

_STYLES = {
    "fact": "green",
    "absent": "yellow",
    "fails": "bold red",
    "repair": "bold green",
    "cause": "bold",
    "condition": "dim",
    "again": "dim",
    "more": "dim",
    "open": "dim",
    "withheld": "dim",
}


def explain(
    tuple_: Annotated[
        str,
        typer.Argument(
            metavar="TUPLE", help='A tuple, such as \'tc("a", "d")\'; an id of a node is one, too.'
        ),
    ],
    why_not: Annotated[
        bool,
        typer.Option(
            "--why-not",
            help="For a tuple that does not hold: also look for changes of facts that would make it hold.",
        ),
    ] = False,
    repairs: Annotated[
        int, typer.Option(min=1, max=10, help="With --why-not: how many such changes to look for.")
    ] = 3,
    at: Annotated[
        int | None, typer.Option(min=0, metavar="EPOCH", help="At this epoch, if it is still kept.")
    ] = None,
    changed: Annotated[
        int | None,
        typer.Option(min=0, metavar="EPOCH", help="Why did the tuple come or go at this epoch?"),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="List all ways to derive the tuple.")] = False,
    origins: Annotated[
        bool,
        typer.Option(
            "--origins",
            help="Say of each fact since when it has been there, and which transactions brought it.",
        ),
    ] = False,
    size: Annotated[
        int, typer.Option(min=1, max=5_000, help="The most tuples that the proof follows.")
    ] = 200,
    json: Annotated[bool, typer.Option("--json", help="Print the answer of the service as JSON.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print the proof as a Mermaid diagram.")] = False,
    url: options.Url = options.URL,
) -> None:
    """Explain why a tuple holds, or why it does not, or why it changed.

    A tuple that holds is shown with a proof of least height, down to facts. For one that does not hold, each rule that
    could derive it is shown as far as it gets.

    Examples:

    - `zedlog explain 'tc("a", "d")'`
    - `zedlog explain 'tc("d", "a")' --why-not`: and what would make it hold
    - `zedlog explain 'tc("a", "d")' --at 7`
    - `zedlog explain 'tc("a", "d")' --changed 7`
    - `zedlog explain 'tc("a", "d")' --all`
    - `zedlog explain 'tc("a", "d")' --origins`
    - `zedlog explain 'tc("a", "d")' --mermaid > proof.mmd`
    """
    if sum((json, mermaid)) > 1:
        raise typer.BadParameter("give --json or --mermaid, not both", param_hint="--mermaid")
    if changed is not None and (at is not None or all_):
        raise typer.BadParameter(
            "--changed compares two epochs; leave out --at and --all", param_hint="--changed"
        )
    body: Json = {"tuple": tuple_, "size": size, "repairs": repairs if why_not else 0}
    body |= {"origins": True} if origins else {}
    body |= {"as_of": at} if at is not None else {}
    body |= {"changed_at": changed} if changed is not None else {}
    with ServiceClient(url) as client:
        found = _all(client, body) if all_ else client.post("/v1/explain", body)
    if json:
        print(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
    elif mermaid:
        if "nodes" not in found:
            raise typer.BadParameter(
                "only the proof of a tuple that holds has a diagram", param_hint="--mermaid"
            )
        print(as_mermaid(found), end="")
    else:
        _print(found)
        note(f"[dim]at epoch {found['epoch']}[/]")


def _all(client: ServiceClient, body: Json) -> Json:
    """All pages of the ways to derive a tuple as one answer; the answer as it is for one that does not hold."""
    found = client.post("/v1/explain", {**body, "all": True, "limit": 1_000})
    while found.get("cursor"):
        page = client.post("/v1/explain", {**body, "all": True, "limit": 1_000, "cursor": found["cursor"]})
        found["derivations"] += page["derivations"]
        found["cursor"] = page["cursor"]
    return found


def _print(found: Json) -> None:
    """A tree on a terminal; in a pipe plain lines, indented by two spaces a level."""
    lines = answer_lines(found)
    if not out.is_terminal:
        for line in lines:
            print("  " * line.depth + line.text)
        return
    for tree in _trees(lines):
        out.print(tree)
    open_ = sum(node["kind"] == "open" for node in found.get("nodes", {}).values())
    if open_:
        note(f"[dim]{counted(open_, 'tuple')} not followed; explain one of them, or give a larger --size[/]")


def _trees(lines: list[Line]) -> list[Tree]:
    trees: list[Tree] = []
    path: list[Any] = []
    for line in lines:
        style = _STYLES.get(line.kind, "")
        text = f"[{style}]{escape(line.text)}[/]" if style else escape(line.text)
        del path[line.depth :]
        path.append(path[-1].add(text) if path else Tree(text))
        if len(path) == 1:
            trees.append(path[0])
    return trees
