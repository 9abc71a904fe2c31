"""`zedlog rules ...` and `zedlog facts ...`: small changes by hand, each command one transaction."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from engine.data.transaction import PLACEMENTS, STRATEGIES
from engine.errors import UnknownRuleError, did_you_mean, shown
from service.cli import options
from service.cli.client import Json, ServiceClient
from service.cli.options import OutputFormat
from service.cli.output import chosen, fail, note, print_outcome, print_tuples, write_rows
from service.cli.remarks import remark

rules_app = typer.Typer(no_args_is_help=True, help="Add, remove and list rules.")
facts_app = typer.Typer(no_args_is_help=True, help="Add and retract facts written as program text.")

PREFIX = 4
"""The fewest characters of an id that can identify a rule."""

Text = Annotated[
    list[str] | None,
    typer.Argument(help="Program text, or @FILE to read it from a file; several are one transaction."),
]
File = Annotated[
    list[Path] | None,
    typer.Option("--file", "-f", help="Read program text from a file; '-' is standard input."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, but change nothing.")]
Delta = Annotated[bool, typer.Option("--delta", help="Show the tuples that appeared and disappeared.")]
StrategyAsked = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="|".join(STRATEGIES),
        help="How to evaluate the transaction: auto chooses between update and bootstrap; dred deletes whatever lost a "
        "derivation, and derives again what has another one.",
    ),
]
PlacementAsked = Annotated[
    str | None,
    typer.Option("--placement", metavar="|".join(PLACEMENTS), help="Where to evaluate the transaction."),
]


@dataclass(frozen=True, slots=True)
class Manner:
    """How a change is sent, and how its outcome is shown."""

    dry_run: bool
    delta: bool
    strategy: str | None
    placement: str | None
    message: str | None
    source: str | None = None


@rules_app.command("add")
def add_rules(
    text: Text = None,
    file: File = None,
    dry_run: DryRun = False,
    delta: Delta = False,
    strategy: StrategyAsked = None,
    placement: PlacementAsked = None,
    message: options.Message = None,
    url: options.Url = options.URL,
) -> None:
    """Add rules; facts and .decl lines in the text are added with them.

    Examples:

    - `zedlog rules add 'tc(x, y) :- edge(x, y).' 'tc(x, z) :- tc(x, y), edge(y, z).'`
    - `zedlog rules add -f program.dl`
    - `zedlog rules add @program.dl --dry-run`
    - `zedlog rules add -f policy.dl -m "policy of March"`
    """
    _change("rules", text, file, 1, Manner(dry_run, delta, strategy, placement, message), url)


@rules_app.command("remove")
def remove_rules(
    text: Text = None,
    file: File = None,
    dry_run: DryRun = False,
    delta: Delta = False,
    strategy: StrategyAsked = None,
    placement: PlacementAsked = None,
    message: options.Message = None,
    url: options.Url = options.URL,
) -> None:
    """Remove rules, by their text (names of variables do not matter) or by the id that 'rules list' shows. At least the
    first 4 characters of an id suffice, if no other id begins with them. Takes 1 from a rule's weight: a rule that was
    added twice stays. .decl lines in the text are withdrawn.

    Examples:

    - `zedlog rules remove 'tc(a, b) :- edge(a, b).'`
    - `zedlog rules remove r5f0c1d2e3a4b`
    - `zedlog rules remove r5f0c`
    - `zedlog rules remove '.decl homeless(x: symbol) constraint'`
    """
    texts = _texts(text, file)
    with ServiceClient(url) as client:
        if any(map(_is_word, texts)):
            rules = client.get("/v1/rules")["rules"]
            texts = [_named(t.strip(), rules)["canonical"] if _is_word(t) else t for t in texts]
        _post(client, "rules", texts, -1, Manner(dry_run, delta, strategy, placement, message))


@rules_app.command("list")
def list_rules(
    format: OutputFormat = None, prefixes: options.ShortIris = False, url: options.Url = options.URL
) -> None:
    """List the rules with their ids.

    Examples:

    - `zedlog rules list`
    - `zedlog rules list --format json`
    """
    with ServiceClient(url) as client:
        answer = client.get("/v1/rules", **({"prefixes": "true"} if prefixes else {}))
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
    message: options.Message = None,
    source: options.Source = None,
    url: options.Url = options.URL,
) -> None:
    """Add facts. For many, 'zedlog load' is faster.

    Examples:

    - `zedlog facts add 'edge("a", "b"). edge("b", "c").'`
    - `zedlog facts add 'manager("ann", "bob").' --source hr -m "hired"`
    """
    _change("facts", text, file, 1, Manner(dry_run, delta, strategy, placement, message, source), url)


@facts_app.command("retract")
def retract_facts(
    text: Text = None,
    file: File = None,
    dry_run: DryRun = False,
    delta: Delta = False,
    strategy: StrategyAsked = None,
    placement: PlacementAsked = None,
    message: options.Message = None,
    source: options.Source = None,
    url: options.Url = options.URL,
) -> None:
    """Retract facts: take 1 from the weight of each. What a source asserts is retracted only with its name.

    Examples:

    - `zedlog facts retract 'edge("a", "b").'`
    - `zedlog facts retract 'manager("ann", "bob").' --source hr -m "moved"`
    """
    _change("facts", text, file, -1, Manner(dry_run, delta, strategy, placement, message, source), url)


def _change(
    wanted: str,
    text: list[str] | None,
    file: list[Path] | None,
    weight: int,
    manner: Manner,
    url: str,
) -> None:
    texts = _texts(text, file)
    with ServiceClient(url) as client:
        _post(client, wanted, texts, weight, manner)


def _post(client: ServiceClient, wanted: str, texts: list[str], weight: int, manner: Manner) -> None:
    """Send the texts as one program. wanted: `facts` or `rules`, what the command is for."""
    program = "\n".join(texts)
    body: Json = {"program": program, "weight": weight}
    answer = client.change(
        "/v1/rules",
        body,
        dry_run=manner.dry_run,
        delta=manner.delta,
        strategy=manner.strategy,
        placement=manner.placement,
        message=manner.message,
        source=manner.source,
    )
    print_outcome(answer, dry_run=manner.dry_run)
    if manner.delta:
        print_delta(answer)
    remark(client, program, weight, wanted, answer, manner.dry_run)


def print_delta(answer: Json, limit: int = 20) -> None:
    """The changed tuples of each relation, `+` and `-`, at most `limit` a relation."""
    for relation, change in sorted(answer.get("delta", {}).items()):
        print_tuples(relation, change, limit)


def _texts(text: list[str] | None, file: list[Path] | None) -> list[str]:
    """All program text of a command line, in order; exits if there is none or a file cannot be read."""
    sources = [read_text(Path(t[1:])) if t.startswith("@") else t for t in text or []]
    sources += [read_text(path) for path in file or []]
    if not sources:
        raise typer.BadParameter("give program text, @FILE or --file FILE", param_hint="TEXT")
    return sources


def read_text(path: Path) -> str:
    """The text of a file, or of standard input for `-`; exits with a message if it cannot be read."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path}: {getattr(error, 'strerror', None) or error}")
        raise typer.Exit(1) from error


def _is_word(text: str) -> bool:
    """Whether the text must be meant as a rule's id, because a program is never a single word."""
    return re.fullmatch(r"\s*\w+\s*", text) is not None


def _named(word: str, rules: Sequence[Json]) -> Json:
    """The rule whose id begins with the word.

    Raises:
        UnknownRuleError: there is none, or more than one.
    """
    found = [rule for rule in rules if rule["id"].startswith(word)]
    if len(found) == 1 and len(word) >= PREFIX:
        return found[0]
    if len(found) > 1 or (found and len(word) < PREFIX):
        listed = ", ".join(rule["id"] for rule in found[:10]) + (" ..." if len(found) > 10 else "")
        raise UnknownRuleError(
            f"{shown(word)} does not identify one rule: the ids that begin with it are {listed}; give at least "
            f"{PREFIX} characters, and enough to distinguish the ids"
        )
    heads = [rule["id"] for rule in rules if rule["canonical"].startswith(f"{word}(")]
    if heads:
        raise UnknownRuleError(
            f"{shown(word)} is the name of a relation, but rules are removed by their ids or texts; the rules that "
            f"derive {word} are {', '.join(heads[:10])}{' ...' if len(heads) > 10 else ''}"
        )
    near = difflib.get_close_matches(word, [rule["id"] for rule in rules])
    raise UnknownRuleError(
        f"there is no rule with the id {shown(word)}; 'zedlog rules list' shows the ids.{did_you_mean(near)}"
    )
