"""Facts about installed packages, from metadata written for the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.cli.packages import PackageFacts, installed


def package(folder: Path, name: str, *lines: str, version: str = "1.0") -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    text = "\n".join(["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *lines])
    (info / "METADATA").write_text(text + "\n")


def facts(folder: Path) -> PackageFacts:
    return installed([str(folder)])


def test_names_are_canonical_and_versions_kept(tmp_path: Path) -> None:
    package(tmp_path, "Typing_Extensions", version="4.1")
    package(tmp_path, "App", "Requires-Dist: typing.extensions>=4")
    found = facts(tmp_path)
    assert found.requires == (("app", "typing-extensions"),)
    assert found.version == (("app", "1.0"), ("typing-extensions", "4.1"))


def test_a_marker_that_does_not_hold_is_no_requirement(tmp_path: Path) -> None:
    package(
        tmp_path,
        "app",
        'Requires-Dist: never; python_version < "3"',
        'Requires-Dist: always; python_version >= "3"',
        "Requires-Dist: plain",
    )
    assert facts(tmp_path).requires == (("app", "always"), ("app", "plain"))


def test_extras_count_where_they_are_asked_for_also_through_others(tmp_path: Path) -> None:
    package(tmp_path, "app", "Requires-Dist: middle[fast]", 'Requires-Dist: unasked; extra == "dev"')
    package(
        tmp_path, "middle", 'Requires-Dist: low[deep]; extra == "fast"', 'Requires-Dist: no; extra == "slow"'
    )
    package(tmp_path, "low", 'Requires-Dist: bottom; extra == "deep"')
    assert facts(tmp_path).requires == (("app", "middle"), ("low", "bottom"), ("middle", "low"))


def test_requirements_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    package(tmp_path, "app", "Requires-Dist: !!! what", "Requires-Dist: fine")
    assert facts(tmp_path).requires == (("app", "fine"),)


@pytest.mark.parametrize(
    ("lines", "licence"),
    [
        (["License-Expression: MIT", "License: other"], "MIT"),
        (
            ["Classifier: License :: OSI Approved", "Classifier: License :: OSI Approved :: BSD License"],
            "BSD License",
        ),
        (["License: Apache 2.0"], "Apache 2.0"),
        (["License: " + "text " * 50], "unknown"),
        (["Classifier: Programming Language :: Python"], "unknown"),
    ],
)
def test_licence(tmp_path: Path, lines: list[str], licence: str) -> None:
    package(tmp_path, "app", *lines)
    assert facts(tmp_path).licence == (("app", licence),)


def test_this_environment_has_the_edge_that_we_know_of() -> None:
    """What is known of it without this code: the metadata of typer, which it needs, names rich."""
    found = installed()
    assert ("typer", "rich") in found.requires
    assert {"typer", "rich"} <= {name for name, _ in found.version}
    assert len(set(found.requires)) == len(found.requires)
