"""The command `zedlog`: combines the commands and turns their failures into messages and exit statuses.

A command's module is imported only when the command is called, or its own help is asked for, because importing all of
them takes several times as long as the fastest command. The short help of each command is therefore written here.

Exit status 0: done. 1: the service refused, or a file or a program is wrong; the message is on standard error. 2: the
command line itself is wrong. 130: interrupted.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from engine.errors import ZedlogError
from service.cli.client import TOKEN_VARIABLE, Refused, Unreachable
from service.cli.output import fail, out, print_refusal
from service.cli.starting import uncollected
from service.cli.supervisor import PartFailed

# The commands by the panels of the help: where the function of each is, or the typer application of a group of them,
# and what it does, in the words in which its own help begins.
COMMANDS = {
    "Run the service": {
        "demo": (
            "demo:demo",
            "Show what Zedlog does, on real data: which installed Python packages are exposed to a vulnerable one?",
        ),
        "serve": ("serve:serve", "Start the service and keep it running until Ctrl-C."),
        "token": ("tokens:token_app", "Make, list and revoke access tokens."),
        "engine": (
            "serve:engine",
            "Run the engine process alone: one for each database, beside any number of services.",
        ),
        "status": (
            "read:status",
            "Show whether the service, its storage and its engine are ready. Exit status 1 if they are not.",
        ),
    },
    "Change facts and rules": {
        "load": ("load:load", "Load a CSV or TSV file into one relation."),
        "facts": ("edit:facts_app", "Add and retract facts written as program text."),
        "rules": ("edit:rules_app", "Add, remove and list rules."),
        "transactions": (
            "transactions:transactions_app",
            "List the transactions, show the outcome of one, or cancel one.",
        ),
        "sync": (
            "sources:sync",
            "Make a source assert exactly the rows of files, or of a table: only the difference is applied.",
        ),
        "sources": (
            "sources:sources_app",
            "List the sources of facts, or take back all that one of them asserts.",
        ),
        "rollback": (
            "history:rollback",
            "Make facts, rules and declarations what they were after an older epoch.",
        ),
    },
    "Import and export in bulk, through Spark": {
        "import": (
            "imports:import_files",
            "Import files, or what is new in a topic, or a table, as one transaction: one epoch, or nothing. Ctrl-C "
            "cancels it.",
        ),
        "export": ("exports:export", "Export the tuples of one epoch to files. Ctrl-C cancels it."),
        "jobs": ("jobs:jobs_app", "Bulk imports and exports: list, watch, cancel."),
    },
    "Back up": {
        "backup": (
            "backups:backup",
            "Back up one epoch of a running database into a file, while others go on writing.",
        ),
        "restore": (
            "backups:restore",
            "Restore a backup into an empty database, as one epoch: all of it, or nothing.",
        ),
        "dump": (
            "backups:dump",
            "Write one epoch as program text and files of facts, for Souffle, for zedlog run, or for people.",
        ),
    },
    "Ask": {
        "query": (
            "read:query",
            "Answer a query: an atom, or a conjunction with negation, conditions and aggregates.",
        ),
        "sparql": (
            "sparql:sparql",
            "Ask in SPARQL over triple(s, p, o), asserted and derived; or change it with a SPARQL update.",
        ),
        "watch": (
            "watch:watch",
            "Show the changes of a relation or of a query, live, until Ctrl-C.",
        ),
        "explain": (
            "explain:explain",
            "Explain why a tuple holds, or why it does not, or why it changed.",
        ),
        "relations": (
            "read:relations",
            "List the relations: their columns, and how many tuples are asserted, derived, and present in all.",
        ),
        "epochs": (
            "read:epochs",
            "List the last epochs: time, changes, duration, and how and why they were evaluated so.",
        ),
        "blame": (
            "history:blame",
            "Show since which epoch and transaction a tuple has been there without interruption.",
        ),
        "history": ("history:history", "Show when tuples came and went, and through which transactions."),
        "audit": (
            "audit:audit",
            "Audit the database: derive everything again, compare it, and verify the snapshot.",
        ),
        "version": ("main:show_version", "Print the version."),
    },
    "Work without a service": {
        "run": (
            "run:run",
            "Evaluate a program over files, once, as Souffle would. Needs no service. Ctrl-C ends it.",
        ),
        "plan": (
            "plan:plan",
            "Show how a program would be evaluated: strata, delta plans, indexes. Needs no service.",
        ),
        "owl": (
            "owl:owl",
            "Turn an ontology into rules over triple(s, p, o) by OWL 2 RL. Needs no service.",
        ),
    },
}
_PLACES = {name: place for panel in COMMANDS.values() for name, (place, _) in panel.items()}


def load_command(name: str) -> Any:
    """A command with its options, or a group of commands."""
    module, _, attribute = _PLACES[name].partition(":")
    with uncollected():
        found = getattr(import_module(f"service.cli.{module}"), attribute)
    holder = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    return get_group(holder).commands[name]


class Commands(TyperGroup):
    """The commands. Each is loaded when the command line names it; until then a stub with its help takes its place."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, stub, rest = super().resolve_command(ctx, args)
        if ctx.params.get("token") is not None:
            os.environ[TOKEN_VARIABLE] = ctx.params["token"]
        rest = _without_token(ctx, rest)
        if name is None or stub is None:
            return name, stub, rest
        command = load_command(name)
        url = ctx.params.get("url")
        return name, command, rest if url is None else _with_url(ctx, command, url, rest)


def _without_token(ctx: Any, arguments: list[str]) -> list[str]:
    """The arguments of a command without `--token TOKEN`, which every command may have; it is put where the client
    looks for it (client.py).
    """
    rest: list[str] = []
    left = iter(arguments)
    for word in left:
        if word == "--":
            return [*rest, word, *left]
        if word == "--token" or word.startswith("--token="):
            token = next(left, "") if word == "--token" else word.partition("=")[2]
            if not token:
                ctx.fail("Option '--token' requires an argument.")
            os.environ[TOKEN_VARIABLE] = token
        else:
            rest.append(word)
    return rest


def _with_url(ctx: Any, command: Any, url: str, rest: list[str]) -> list[str]:
    """The arguments of a command with the URL before them; if they contain one, too, the later one is used."""
    if isinstance(command, TyperGroup):
        # The option is that of the group's own command, which comes first; without one there is only help.
        at = 1 if rest and not rest[0].startswith("-") else None
    elif any(parameter.name == "url" for parameter in command.params):
        at = 0
    else:
        ctx.fail(f"'zedlog {command.name}' does not use a running service, so it has no option --url")
    return rest if at is None else [*rest[:at], "--url", url, *rest[at:]]


app = typer.Typer(
    name="zedlog",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Zedlog keeps the consequences of Datalog rules up to date while facts and rules change.\n\n"
        "See it at work with `zedlog demo`. Start it with `zedlog serve`; then, in another terminal:\n\n"
        "`zedlog load edge edges.csv`\n\n"
        "`zedlog rules add 'tc(x, y) :- edge(x, y).' 'tc(x, z) :- tc(x, y), edge(y, z).'`\n\n"
        "`zedlog query 'tc(x, \"b\")'`"
    ),
)


@app.callback()
def zedlog(
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            help="The URL of the service, for the commands that use it. They also accept it as their own option, and "
            "from the environment variable ZEDLOG_URL; the last one on the command line is used.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            help="The token that the service asks for; commands accept it after their names, too. Others can see the "
            "command line, so better put it into the environment variable ZEDLOG_TOKEN.",
        ),
    ] = None,
) -> None:
    """`Commands` passes both on."""


for _panel, _commands in COMMANDS.items():
    for _name, (_, _help) in _commands.items():
        app.command(_name, help=_help, rich_help_panel=_panel)(lambda: None)


def show_version() -> None:
    """Print the version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        out.print(f"zedlog {version('zedlog')}")
    except PackageNotFoundError:
        out.print("zedlog (not installed; run scripts/install)")


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit status."""
    try:
        app(args=list(arguments), prog_name="zedlog")
    except SystemExit as end:
        # How typer says "done", "wrong usage" and "no such option", which it has printed already.
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return 130
    except Refused as refusal:
        print_refusal(refusal)
        return 1
    except (Unreachable, PartFailed, ZedlogError) as error:
        fail(str(error))
        return 1
    return 0


def main() -> None:
    status = run(sys.argv[1:])
    # At its end Python searches for garbage in all that was imported, which is a quarter of the time of a short run.
    gc.freeze()
    sys.exit(status)


if __name__ == "__main__":
    main()
