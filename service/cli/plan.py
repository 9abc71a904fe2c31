"""`zedlog plan PROGRAM`: how a program would be maintained, without a service.

In: program text. Out: the circuit of its rules (strata, delta plans, indexes) as text, JSON or Mermaid. The
program's rules are checked as the engine would check them; nothing is evaluated.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import orjson
import typer

from service.cli.edit import read_text


class PlanFormat(StrEnum):
    """How the circuit is written."""

    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"


def plan(
    program: Annotated[Path, typer.Argument(help="A Datalog program; '-' is standard input.")],
    format: Annotated[
        PlanFormat, typer.Option("--format", help="text, json, or a mermaid diagram.")
    ] = PlanFormat.TEXT,
) -> None:
    """Show how a program would be evaluated: strata, delta plans, indexes. Needs no service.

    Examples:

    - `zedlog plan program.dl`
    - `zedlog plan program.dl --format mermaid`
    - `echo 'tc(x, z) :- tc(x, y), edge(y, z).' | zedlog plan -`
    """
    # Imported here, so that the other commands start without them.
    from engine.circuit.compile import compile_circuit
    from engine.circuit.describe import to_json, to_mermaid, to_text
    from engine.language.check import check_rule, infer_schemas
    from engine.language.parser import parse_program
    from engine.language.syntax import fixpoints_of

    parsed = parse_program(read_text(program))
    for rule in parsed.rules:
        check_rule(rule)
    schemas = infer_schemas(parsed.declarations, {}, parsed.rules, {})
    circuit = compile_circuit(parsed.rules, schemas, fixpoints=fixpoints_of(parsed.declarations))
    if format is PlanFormat.JSON:
        print(orjson.dumps(to_json(circuit), option=orjson.OPT_INDENT_2).decode())
    else:
        print({PlanFormat.MERMAID: to_mermaid, PlanFormat.TEXT: to_text}[format](circuit), end="")
