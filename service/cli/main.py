"""The command `zedlog`: puts the commands together and turns their failures into messages and exit statuses.

Exit status 0: done. 1: the service, a file or a program said no; the message is on standard error. 2: the
command line itself is wrong. 130: interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import typer

from engine.errors import ZedlogError
from service.cli.client import Refused, Unreachable
from service.cli.demo import demo
from service.cli.edit import facts_app, rules_app
from service.cli.exports import export
from service.cli.imports import import_files
from service.cli.jobs import jobs_app
from service.cli.load import load
from service.cli.output import fail, out, print_refusal
from service.cli.owl import owl
from service.cli.plan import plan
from service.cli.read import epochs, query, relations, status
from service.cli.run import run as run_program
from service.cli.serve import engine, serve
from service.cli.supervisor import PartFailed
from service.cli.transactions import transactions_app

app = typer.Typer(
    name="zedlog",
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


def show_version() -> None:
    """Print the version."""
    try:
        out.print(f"zedlog {version('zedlog')}")
    except PackageNotFoundError:
        out.print("zedlog (not installed; run scripts/install)")


SERVICE, CHANGE, READ = "Run the service", "Change facts and rules", "Ask"
BULK = "Much at once, through Spark"
ALONE = "Work without a service"
app.command(rich_help_panel=SERVICE)(demo)
app.command(rich_help_panel=SERVICE)(serve)
app.command(rich_help_panel=SERVICE)(engine)
app.command(rich_help_panel=SERVICE)(status)
app.command(rich_help_panel=CHANGE)(load)
app.command("import", rich_help_panel=BULK)(import_files)
app.command(rich_help_panel=BULK)(export)
app.add_typer(jobs_app, name="jobs", rich_help_panel=BULK)
app.add_typer(facts_app, name="facts", rich_help_panel=CHANGE)
app.add_typer(rules_app, name="rules", rich_help_panel=CHANGE)
app.add_typer(transactions_app, name="transactions", rich_help_panel=CHANGE)
app.command(rich_help_panel=READ)(query)
app.command(rich_help_panel=READ)(relations)
app.command(rich_help_panel=READ)(epochs)
app.command("run", rich_help_panel=ALONE)(run_program)
app.command(rich_help_panel=ALONE)(plan)
app.command(rich_help_panel=ALONE)(owl)
app.command("version", rich_help_panel=READ)(show_version)


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
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
