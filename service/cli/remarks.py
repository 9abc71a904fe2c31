"""What a person should know about a change besides its outcome: what else the text contained, and surprising weights.

In: the program text that was sent, and the service's answer. Out: remarks on standard error. Always: they describe the
epoch of the answer, whatever has happened since; those for a dry run describe what would be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.markup import escape

from engine.expressions import with_constant_facts
from engine.language.canonical import canonical_text, rule_id
from engine.language.constants import write_constant
from engine.language.parser import parse_program
from engine.language.syntax import Atom, Constant, ProgramText
from service.cli.client import Json, Refused, ServiceClient, Unreachable
from service.cli.output import counted, note
from service.cli.prefixes import prefixes_for

SHOWN = 5
"""How many rules and relations the remarks name one by one."""


def remark(client: ServiceClient, text: str, weight: int, wanted: str, answer: Json, dry_run: bool) -> None:
    """Print the remarks. wanted: `facts` or `rules`, what the command is for; weight: +1 or -1."""
    program = with_constant_facts(parse_program(text, prefixes_for(client, text)))
    for line in _besides(program, weight, wanted, dry_run):
        note(line)
    lines = list(_facts(program, weight, answer, dry_run))
    try:
        lines += _weights(client, program, weight, answer, dry_run)
    except (Refused, Unreachable) as error:
        # The change is done; only this look at it has failed.
        lines.append(f"note: the weights of the rules cannot be shown: {escape(str(error))}")
    for line in lines[:SHOWN]:
        note(line)
    if len(lines) > SHOWN:
        note(
            f"note: and {len(lines) - SHOWN:,} more like these; 'zedlog rules list' shows the weights of all rules"
        )


def _besides(program: ProgramText, weight: int, wanted: str, dry_run: bool) -> Iterator[str]:
    """What the text contains besides the facts or rules that the command is for."""
    other, number = ("rule", len(program.rules)) if wanted == "facts" else ("fact", len(program.facts))
    done = "added" if weight > 0 else "removed" if other == "rule" else "retracted"
    if number:
        yield _sentence(f"the text also holds {counted(number, other)}", number, done, dry_run)
    number = len(program.declarations) + len(program.prefixes)
    if number and wanted == "facts":
        done = "added" if weight > 0 else "withdrawn"
        yield _sentence(f"the text also holds {counted(number, 'declaration')}", number, done, dry_run)


def _sentence(start: str, number: int, done: str, dry_run: bool) -> str:
    verb = "would be" if dry_run else "was" if number == 1 else "were"
    return f"note: {start}, which {verb} {done}, too"


def _weights(
    client: ServiceClient, program: ProgramText, weight: int, answer: Json, dry_run: bool
) -> Iterator[str]:
    """The rules that were there before and now count more than once, and those that are not yet gone."""
    changed = Counter(rule_id(rule) for rule in program.rules)
    if not changed:
        return
    canonical = {rule_id(rule): canonical_text(rule) for rule in program.rules}
    # A dry run's epoch is not there; what it would change is added to what it looked at.
    epoch = answer["epoch"] - 1 if dry_run else answer["epoch"]
    rules = {rule["id"]: rule for rule in client.get("/v1/rules", as_of=epoch)["rules"]}
    now = "would be" if dry_run else "is now"
    for id_, times in changed.items():
        after = rules.get(id_, {}).get("weight", 0) + (weight * times if dry_run else 0)
        shown = escape(f"{id_}, {rules.get(id_, {}).get('rule', canonical[id_])}")
        if weight > 0 and after > times:
            yield (
                f"note: this rule was there before; its weight {now} {after:,}, so it disappears only when it is "
                f"removed {counted(after, 'time')}: {shown}"
            )
        elif weight < 0 and after > 0:
            stays = "would stay" if dry_run else "stays"
            yield (
                f"note: this rule {stays}, because it was added more often than it was removed; its weight {now} "
                f"{after:,}: {shown}"
            )


def _facts(program: ProgramText, weight: int, answer: Json, dry_run: bool) -> Iterator[str]:
    """The relations in which fewer tuples appeared, or disappeared, than the text has facts."""
    given: dict[str, set[str]] = {}
    for fact in program.facts:
        given.setdefault(fact.relation, set()).add(_text(fact))
    moved = "inserted" if weight > 0 else "deleted"
    for relation, facts in given.items():
        left = len(facts) - answer["changes"].get(relation, {}).get(moved, 0)
        if left > 0:
            of = "note: the fact" if len(facts) == 1 else f"note: {left:,} of the {len(facts):,} facts"
            of = f"{of} of {escape(relation)}"
            if weight > 0:
                were, raised = ("was", "its weight") if left == 1 else ("were", "their weights")
                yield f"{of} {were} there before, so this {'would raise' if dry_run else 'raised'} {raised}"
            else:
                stay = "would stay" if dry_run else "is still there" if left == 1 else "are still there"
                yield f"{of} {stay}: added more often than retracted, or derived by a rule"


def _text(fact: Atom) -> str:
    values: Sequence[Constant] = [term for term in fact.terms if isinstance(term, Constant)]
    return ", ".join(write_constant(term.value, term.type) for term in values)
