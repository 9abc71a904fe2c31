"""`zedlog rules ...` and `zedlog facts ...`: small changes by hand, each command one transaction."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from engine.elastic import STRATEGIES
from engine.transaction import PLACEMENTS
from service.cli import options
from service.cli.client import Json, ServiceClient
from service.cli.options import OutputFormat
from service.cli.output import chosen, fail, note, print_outcome, print_tuples, write_rows

rules_app = typer.Typer(no_args_is_help=True, help="Add, remove and list rules.")
facts_app = typer.Typer(no_args_is_help=True, help="Add and retract facts written as program text.")

Text = Annotated[
    list[str] | None,
    typer.Argument(help="Program text, or @FILE to read it from a file; several are one transaction."),
]
File = Annotated[
    list[Path] | None,
    typer.Option("--file", "-f", help="Read program text from a file; '-' is standard input."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")]
Delta = Annotated[bool, typer.Option("--delta", help="Show the tuples that appeared and disappeared.")]
StrategyAsked = Annotated[
    str | None,
    typer.Option("--strategy", metavar="|".join(STRATEGIES), help="How to evaluate it."),
]
PlacementAsked = Annotated[
    str | None,
    typer.Option(
        "--placement", metavar="|".join(PLACEMENTS), help="Where to evaluate it, this transaction alone."
    ),
]


@dataclass(frozen=True, slots=True)
class Manner:
    """How a change is sent, and shown."""

    dry_run: bool
    delta: bool
    strategy: str | None
    placement: str | None


@rules_app.command("add")
def add_rules(
    text: Text = None,
    file: File = None,
    dry_run: DryRun = False,
    delta: Delta = False,
    strategy: StrategyAsked = None,
    placement: PlacementAsked = None,
    url: options.Url = options.URL,
) -> None:
    """Add rules; facts and .decl lines in the text are added with them.

    Examples:

    - `zedlog rules add 'tc(x, y) :- edge(x, y).' 'tc(x, z) :- tc(x, y), edge(y, z).'`
    - `zedlog rules add -f program.dl`
    - `zedlog rules add @program.dl --dry-run`
    """
    _change("/v1/rules", text, file, 1, Manner(dry_run, delta, strategy, placement), url)


@rules_app.command("remove")
def remove_rules(
    text: Text = None,
    file: File = None,
    dry_run: DryRun = False,
    delta: Delta = False,
    strategy: StrategyAsked = None,
    placement: PlacementAsked = None,
    url: options.Url = options.URL,
) -> None:
    """Remove rules, by their text (names of variables do not matter) or by the id that 'rules list' shows; .decl lines
    in the text are withdrawn.

    Examples:

    - `zedlog rules remove 'tc(a, b) :- edge(a, b).'`
    - `zedlog rules remove r5f0c1d2e3a4b`
    - `zedlog rules remove '.decl homeless(x: symbol) constraint'`
    """
    texts = _texts(text, file)
    with ServiceClient(url) as client:
        resolved = [client.get(f"/v1/rules/{t}")["canonical"] if _is_rule_id(t) else t for t in texts]
        _post(client, "/v1/rules", resolved, -1, Manner(dry_run, delta, strategy, placement))


@rules_app.command("list")
def list_rules(format: OutputFormat = None, url: options.Url = options.URL) -> None:
    """List the rules with their ids.

    Examples:

    - `zedlog rules list`
    - `zedlog rules list --format json`
    """
    with ServiceClient(url) as client:
        answer = client.get("/v1/rules")
    how = chosen(format)
    rows = [(r["id"], r["weight"], r["rule"]) for r in answer["rules"]]
    if how is options.Format.TABLE and not rows:
        note("There are no rules yet; add some with 'zedlog rules add'.")
        return
    write_rows(("id", "weight", "rule"), rows, how)


@facts_app.command("add")
def add_facts(
    text: Text = None,
    file: File = None,
    dry_run: DryRun = False,
    delta: Delta = False,
    strategy: StrategyAsked = None,
    placement: PlacementAsked = None,
    url: options.Url = options.URL,
) -> None:
    """Add facts. For many, 'zedlog load' is faster.

    Examples:

    - `zedlog facts add 'edge("a", "b"). edge("b", "c").'`
    """
    _change("/v1/rules", text, file, 1, Manner(dry_run, delta, strategy, placement), url)


@facts_app.command("retract")
def retract_facts(
    text: Text = None,
    file: File = None,
    dry_run: DryRun = False,
    delta: Delta = False,
    strategy: StrategyAsked = None,
    placement: PlacementAsked = None,
    url: options.Url = options.URL,
) -> None:
    """Retract facts: take 1 from the weight of each.

    Examples:

    - `zedlog facts retract 'edge("a", "b").'`
    """
    _change("/v1/rules", text, file, -1, Manner(dry_run, delta, strategy, placement), url)


def _change(
    path: str,
    text: list[str] | None,
    file: list[Path] | None,
    weight: int,
    manner: Manner,
    url: str,
) -> None:
    texts = _texts(text, file)
    with ServiceClient(url) as client:
        _post(client, path, texts, weight, manner)


def _post(client: ServiceClient, path: str, texts: list[str], weight: int, manner: Manner) -> None:
    body: Json = {"program": "\n".join(texts), "weight": weight}
    answer = client.change(
        path,
        body,
        dry_run=manner.dry_run,
        delta=manner.delta,
        strategy=manner.strategy,
        placement=manner.placement,
    )
    print_outcome(answer, dry_run=manner.dry_run)
    if manner.delta:
        print_delta(answer)


def print_delta(answer: Json, limit: int = 20) -> None:
    """The changed tuples of each relation, `+` and `-`, at most `limit` a relation."""
    for relation, change in sorted(answer.get("delta", {}).items()):
        print_tuples(relation, change, limit)


def _texts(text: list[str] | None, file: list[Path] | None) -> list[str]:
    """All program text of a command line, in order; exits when there is none or a file cannot be read."""
    sources = [read_text(Path(t[1:])) if t.startswith("@") else t for t in text or []]
    sources += [read_text(path) for path in file or []]
    if not sources:
        raise typer.BadParameter("give program text, @FILE or --file FILE", param_hint="TEXT")
    return sources


def read_text(path: Path) -> str:
    """The text of a file, or of standard input for `-`; exits with a message when it cannot be read."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path}: {getattr(error, 'strerror', None) or error}")
        raise typer.Exit(1) from error


def _is_rule_id(text: str) -> bool:
    return len(text) == 13 and text[0] == "r" and all(c in "0123456789abcdef" for c in text[1:])
