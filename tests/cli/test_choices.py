"""The settings: each is declared once, and the command lines, the environment and the documents agree on it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from engine.maintenance.memory import default_memory_budget
from engine.server.__main__ import main
from engine.server.loop import EngineOptions
from engine.server.options import Option, options, read_settings
from engine.server.settings import EngineSettings
from engine.spark.session.options import SparkOptions
from engine.storage.retention import Retention
from service.cli.choices import ServeSettings, with_settings
from service.cli.main import run
from service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES: dict[str, tuple[str, object]] = {
    "redis_url": ("redis://there:1/2", "redis://there:1/2"),
    "database": ("other", "other"),
    "data_dir": ("/srv/data", Path("/srv/data")),
    "batch_dir": ("/srv/batches", Path("/srv/batches")),
    "placement": ("spark", "spark"),
    "memory_budget": ("1GiB", 2**30),
    "epoch_seconds": ("none", None),
    "max_height": ("2000000", 2_000_000),
    "switch": ("none", math.inf),
    "spark_master": ("spark://master:7077", "spark://master:7077"),
    "spark_partitions": ("4", 4),
    "spark_checkpoint_dir": ("/srv/state", "/srv/state"),
    "spark_packages": ("org.h2:h2:1.0,a.b:c_2.13:2", ("org.h2:h2:1.0", "a.b:c_2.13:2")),
    "spark_conf": (
        "spark.a=1,spark.jars.excludes=x:y,u:v,spark.b=k=w",
        {"spark.a": "1", "spark.jars.excludes": "x:y,u:v", "spark.b": "k=w"},
    ),
    "import_root": ("/srv/in", Path("/srv/in")),
    "export_root": ("/srv/out", Path("/srv/out")),
    "bulk_schemes": ("S3A:,hdfs", {"s3a", "hdfs"}),
    "connections": ("/srv/connections", Path("/srv/connections")),
    "checkpoint_dir": ("/srv/checkpoint", "/srv/checkpoint"),
    "audit_every": ("60", 60.0),
    "lease_seconds": ("0.5", 0.5),
    "lease_wait": ("0", 0.0),
    "group_transactions": ("1", 1),
    "group_bytes": ("1MiB", 2**20),
    "retain_epochs": ("3", 3),
    "retain_seconds": ("0", 0.0),
    "retain_results": ("7", 7),
    "retain_subscribed_epochs": ("0", 0),
    "retain_subscribed_bytes": ("2MiB", 2**21),
    "log_level": ("WARNING", "WARNING"),
}
WRONG = [
    ("memory_budget", "much", '"much" is not a size; write 500MiB, 4GiB, or a number of bytes'),
    ("epoch_seconds", "long", "\"long\" is not a number of seconds above 0; write 'none' for no limit"),
    ("epoch_seconds", "0", "\"0\" is not a number of seconds above 0; write 'none' for no limit"),
    ("max_height", "0", '"0" is not a whole number from 1 on'),
    ("placement", "cloud", '"cloud" is not a placement; choose one of auto, resident, spark'),
    ("switch", "often", 'switch must be a number of at least 0, or none, not "often"'),
    ("switch", "-0.1", "switch must be a number of at least 0, or inf, not -0.1"),
    (
        "spark_master",
        "here",
        'the Spark master must be "local[n]", "spark://host:port" or "sc://host:port", not "here"',
    ),
    (
        "spark_packages",
        "postgresql",
        '"postgresql" does not name a package; write group:artifact:version, such as org.postgresql:postgresql:42.7.8',
    ),
    (
        "spark_conf",
        "memory=8g",
        '"memory=8g" is not a setting of Spark; write spark.key=value, such as spark.driver.memory=8g',
    ),
    ("spark_partitions", "2.5", '"2.5" is not a whole number from 1 on'),
    ("lease_seconds", "0", '"0" is not a number of seconds from 0.1 on'),
    ("retain_seconds", "-1", '"-1" is not a number of seconds from 0 on'),
    ("log_level", "LOUD", '"LOUD" is not a level of the log; choose one of DEBUG, INFO, WARNING, ERROR'),
]


def of(field: str) -> Option:
    return next(option for option in options(EngineSettings) if option.field == field)


@pytest.fixture
def served() -> Callable[..., tuple[ServeSettings, Mapping[str, str]]]:
    """What a command with the settings gets when it is called with arguments."""
    heard: list[tuple[ServeSettings, Mapping[str, str]]] = []
    app = typer.Typer()

    @app.command()
    @with_settings(ServeSettings)
    def command(settings: ServeSettings, variables: Mapping[str, str]) -> None:
        heard.append((settings, variables))

    def call(*arguments: str) -> tuple[ServeSettings, Mapping[str, str]]:
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        return heard.pop()

    return call


def processed(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> EngineSettings:
    """The settings that the engine process runs with."""
    heard: list[EngineSettings] = []

    def hear(settings: EngineSettings) -> int:
        heard.append(settings)
        return 0

    monkeypatch.setattr("engine.server.__main__._run", hear)
    assert main(arguments) == 0
    return heard.pop()


def test_what_nobody_says_is_as_the_engine_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, engine, kept = processed(monkeypatch), EngineOptions(), Retention()
    spark = SparkOptions()
    assert settings.model_dump() == {
        "redis_url": "redis://127.0.0.1:6379/0",
        "database": "default",
        "data_dir": Path(".zedlog"),
        "batch_dir": None,
        "placement": "auto",
        "memory_budget": default_memory_budget(),
        "epoch_seconds": 600.0,
        "max_height": None,
        "switch": 0.2,
        "spark_master": spark.master,
        "spark_partitions": spark.partitions,
        "spark_checkpoint_dir": None,
        "spark_packages": (),
        "spark_conf": {},
        "import_root": None,
        "export_root": None,
        "bulk_schemes": frozenset(),
        "connections": None,
        "checkpoint_dir": None,
        "audit_every": None,
        "lease_seconds": engine.lease_seconds,
        "lease_wait": None,
        "group_transactions": engine.group_transactions,
        "group_bytes": engine.group_bytes,
        "retain_epochs": kept.epochs,
        "retain_seconds": kept.seconds,
        "retain_results": kept.results,
        "retain_subscribed_epochs": kept.subscribed_epochs,
        "retain_subscribed_bytes": kept.subscribed_bytes,
        "log_level": "INFO",
    }
    assert settings.batches == Path(".zedlog/batches").absolute()


@pytest.mark.parametrize("field", EngineSettings.model_fields)
def test_an_option_and_its_variable_reach_the_engine(
    field: str,
    monkeypatch: pytest.MonkeyPatch,
    served: Callable[..., tuple[ServeSettings, Mapping[str, str]]],
) -> None:
    option, (text, value) = of(field), EXAMPLES[field]
    assert getattr(processed(monkeypatch, f"{option.flag}={text}"), field) == value
    settings, variables = served(option.flag, text)
    assert getattr(settings, field) == value
    assert variables == {option.variable: text}
    for name, said in variables.items():
        monkeypatch.setenv(name, said)
    assert getattr(processed(monkeypatch), field) == value
    assert getattr(served()[0], field) == value


def test_an_option_is_stronger_than_its_variable_and_an_empty_variable_says_nothing(
    monkeypatch: pytest.MonkeyPatch, served: Callable[..., tuple[ServeSettings, Mapping[str, str]]]
) -> None:
    monkeypatch.setenv("ZEDLOG_MAX_HEIGHT", "5")
    monkeypatch.setenv("ZEDLOG_SWITCH", "")
    assert (
        processed(monkeypatch, "--max-height", "6").max_height
        == served("--max-height", "6")[0].max_height
        == 6
    )
    assert processed(monkeypatch).switch == served()[0].switch == 0.2


def test_schemes_come_on_top_of_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, served: Callable[..., tuple[ServeSettings, Mapping[str, str]]]
) -> None:
    monkeypatch.setenv("ZEDLOG_BULK_SCHEMES", "s3a")
    given = ("--bulk-scheme", "hdfs", "--bulk-scheme", "gs")
    assert processed(monkeypatch, *given).bulk_schemes == {"s3a", "hdfs", "gs"}
    settings, variables = served(*given)
    assert settings.bulk_schemes == {"s3a", "hdfs", "gs"}
    assert variables == {"ZEDLOG_BULK_SCHEMES": "s3a,hdfs,gs"}


@pytest.mark.parametrize(("field", "text", "message"), WRONG)
def test_every_entry_refuses_with_the_same_line(
    field: str, text: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    option = of(field)
    line = f"{option.flag} ({option.variable}): {message}"
    typed = f"{option.flag}={text}"

    def refused() -> None:
        with pytest.raises(SystemExit) as stop:
            main([] if option.variable in said else [typed])
        assert stop.value.code == 2
        assert f"error: {line}\n" in capsys.readouterr().err
        for command in ("serve", "engine"):
            assert run([command, *([] if option.variable in said else [typed])]) == 2
            assert line in " ".join(capsys.readouterr().err.split())

    said: dict[str, str] = {}
    refused()
    said = {option.variable: text}
    monkeypatch.setenv(option.variable, text)
    refused()


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"ZEDLOG_MAX_LIMIT": "many"}, 'ZEDLOG_MAX_LIMIT: "many" is not a whole number from 1 to 100000'),
        ({"ZEDLOG_QUERY_TIMEOUT": "nan"}, 'ZEDLOG_QUERY_TIMEOUT: "nan" is not a number of seconds above 0'),
        ({"ZEDLOG_MAX_LIMIT": "5"}, "default_limit (1000) is larger than max_limit (5)"),
    ],
)
def test_serve_refuses_what_its_service_would(
    variables: dict[str, str], line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert run(["serve"]) == 2
    assert line in capsys.readouterr().err


def test_run_reads_the_limit_of_heights_as_the_engine_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv(of("max_height").variable, "0")
    assert run(["run", "program.dl"]) == 2
    assert '--max-height (ZEDLOG_MAX_HEIGHT): "0" is not a whole number from 1 on' in capsys.readouterr().err


@pytest.mark.parametrize("command", [["serve", "--help"], ["engine", "--help"], None])
def test_help_has_every_option_with_its_default(
    command: Sequence[str] | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    if command is None:
        with pytest.raises(SystemExit):
            main(["--help"])
    else:
        assert run(command) == 0
    text = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    for option in options(EngineSettings):
        assert re.search(rf"{option.flag}\b", text)
        if command is None or option.field != "redis_url":
            assert option.help.replace("`", "") in text.replace("`", "")


def test_the_documents_have_the_table_of_settings() -> None:
    def rows(settings: Any, but: Any = None) -> list[str]:
        return [
            f"| {f'`{o.flag}`' if o.flag else ''} | `{o.variable}` | {o.usual} | {o.what.replace('|', ' or ')} |"
            for o in options(settings)
            if but is None or o.field not in but.model_fields
        ]

    expected = [*rows(EngineSettings), *rows(Settings, EngineSettings)]
    text = (ROOT / "docs" / "operations.md").read_text()
    shown = re.findall(r"^\| (?:`--[a-z-]+`)? ?\| `ZEDLOG_.*$", text, re.MULTILINE)
    assert shown == expected, "docs/operations.md should have:\n" + "\n".join(expected)


def test_a_program_gives_values_and_is_held_to_the_same_checks() -> None:
    assert EngineSettings(memory_budget=5, switch=math.inf, lease_wait=None).memory_budget == 5
    for wrong in ({"max_height": 0}, {"switch": -1.0}, {"placement": "cloud"}):
        with pytest.raises(ValueError, match="validation error"):
            EngineSettings(**wrong)
    assert read_settings(EngineSettings, {"database": "x"}).database == "x"
