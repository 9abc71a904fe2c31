"""`zedlog owl ONTOLOGY`: compile the axioms of an ontology to a Datalog program (OWL 2 RL), without a service."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from service.cli.output import counted, fail, note

if TYPE_CHECKING:
    from engine.ontology.rules import Compiled


def owl(
    ontology: Annotated[
        list[Path],
        typer.Argument(help="RDF files (.nt, .ttl, .rdf, .owl, each also .gz), read as one ontology."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The program to write; '-' is standard output.")
    ] = Path("-"),
    facts: Annotated[
        Path | None,
        typer.Option("--facts", help="Also write all triples of the files as a fact file, triple.facts."),
    ] = None,
) -> None:
    """Turn an ontology into rules over triple(s, p, o) by OWL 2 RL. Needs no service.

    Covered are sub-classes and sub-properties, equivalent ones, inverse, transitive and symmetric properties,
    chains, domains, ranges, intersections, unions, values, enumerations and restrictions. Axioms about equality,
    disjointness and cardinality give no rules; they are listed at the end of the program.

    Examples:

    - `zedlog owl university.ttl -o program.dl`
    - `zedlog owl ontology.nt data.nt.gz -o program.dl --facts triple.facts; zedlog run program.dl -D out`
    """
    # Imported here, so that the other commands start without them.
    from engine.ontology.program import compile_ontology, fact_lines
    from engine.ontology.triples import read_triples

    triples = [triple for path in ontology for triple in read_triples(path)]
    text, compiled = compile_ontology(triples, ", ".join(path.name for path in ontology))
    if facts is not None:
        _write(facts, fact_lines(triples))
    if str(output) == "-":
        print(text, end="")
    else:
        _write(output, [text])
    _report(compiled, len(triples))


def _report(compiled: Compiled, triples: int) -> None:
    rules = sum(len(clauses) for _, clauses in compiled.clauses)
    note(
        f"{counted(rules, 'rule')} from {counted(len(compiled.clauses), 'axiom')} in {counted(triples, 'triple')}"
    )
    if compiled.not_covered:
        number = len(compiled.not_covered)
        note(
            f"[yellow]{counted(number, 'axiom')} without rules[/] (see the end of the program), for example:"
        )
        note(f"  {escape(next(iter(compiled.not_covered)))}")
    if compiled.ambiguous:
        nodes = ", ".join(compiled.ambiguous[:3]) + (", ..." if len(compiled.ambiguous) > 3 else "")
        stand = counted(len(compiled.ambiguous), "blank node has", "blank nodes have")
        note(
            f"[yellow]{stand} several definitions[/] ({escape(nodes)}); "
            "were files merged without renaming blank nodes? Every reading gives rules."
        )


def _write(path: Path, lines: Iterable[str]) -> None:
    try:
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.writelines(lines)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}")
        raise typer.Exit(1) from error
