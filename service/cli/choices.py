"""The settings of engine and service (engine/server/settings.py, service/settings.py) as options of commands.

In: options of the command line, or environment variables. Out: checked settings, and the variables that pass them on to
the processes. Always: what a process would refuse is refused here, before anything is started.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, TypeVar

import typer

from engine.server.options import as_variable, options, read_settings
from engine.server.settings import EngineSettings
from service.cli.options import wrong_usage
from service.settings import Settings

S = TypeVar("S", bound=EngineSettings)


class ServeSettings(EngineSettings, Settings):
    """All settings of `zedlog serve`."""


def with_settings(
    settings: type[S], usual: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `settings`, and as its first arguments the settings and their `variables`.

    usual: defaults in words, if the command has other ones. Typer reads the options of a command from its signature, so
    they are added to it.
    """
    known = [option for option in options(settings) if option.flag]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def call(**values: Any) -> None:
            typed = {option.field: values.pop(option.field) for option in known}
            given = {
                field: "true" if value is True else value
                for field, value in typed.items()
                if value not in (None, False, [])
            }
            with wrong_usage():
                read = read_settings(settings, given)
            command(
                read,
                {o.variable: as_variable(o, given[o.field]) for o in known if o.field in given},
                **values,
            )

        _, _, *own = inspect.signature(command, eval_str=True).parameters.values()
        parameters = []
        for option in known:
            words = (usual or {}).get(option.field, option.usual)
            shown = typer.Option(
                option.flag,
                # Of what may be repeated, the options come on top of the variable, which is read with the settings; so
                # is the variable of a switch, which says yes or no in words.
                envvar=None if option.repeated or option.is_switch else option.variable,
                metavar=option.metavar or None,
                help=f"{option.what} (default: {words})",
                rich_help_panel=option.panel,
            )
            kind: Any = str | None
            if option.repeated:
                kind = list[str] | None
            elif option.is_switch:
                kind = bool
            parameters.append(
                inspect.Parameter(
                    option.field,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=False if option.is_switch else None,
                    annotation=Annotated[kind, shown],
                )
            )
        own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        vars(call)["__signature__"] = inspect.Signature([*own, *parameters])
        return call

    return decorate
