"""Finding a Java that can run Spark: version 17 or later, with the incubator vector module.

Spark starts `$JAVA_HOME/bin/java`, or `java` from the path. If that is too old, or a trimmed runtime, the user sees
only a stack trace about a class file. So the candidates are tried first, with the one option of Spark's that trimmed
runtimes refuse.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from engine.errors import SparkUnavailableError

OLDEST = 17
_PLACES = (
    "/usr/lib/jvm",
    "/usr/java",
    "/opt/java",
    "/opt/jdk",
    "/Library/Java/JavaVirtualMachines",
    "~/.sdkman/candidates/java",
)
_ADVICE = (
    "install a full Java runtime 17 or 21 (Debian, Ubuntu: apt install openjdk-17-jre-headless; Fedora: dnf install "
    "java-21-openjdk-headless; macOS: brew install openjdk@21), or set JAVA_HOME to one"
)


@lru_cache(maxsize=1)
def java_home() -> Path:
    """The home of the first Java that can run Spark: JAVA_HOME, the path, the usual places.

    Raises:
        SparkUnavailableError: there is none; the message says what was found and what to install.
    """
    rejected = []
    for home in dict.fromkeys(candidates()):
        reason = unfit(home)
        if reason is None:
            return home
        rejected.append(f"{home}: {reason}")
    found = f" (found {'; '.join(rejected)})" if rejected else ""
    raise SparkUnavailableError(
        f"Spark needs Java, but there is no Java that it can use{found}; {_ADVICE}", found=rejected
    )


def candidates() -> Iterator[Path]:
    """Homes in which there is a `bin/java`."""
    set_home = os.environ.get("JAVA_HOME")
    if set_home:
        yield Path(set_home)
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent
    for place in _PLACES:
        for binary in sorted(Path(place).expanduser().glob("*/bin/java"), reverse=True):
            yield binary.resolve().parent.parent
        for binary in sorted(Path(place).expanduser().glob("*/Contents/Home/bin/java"), reverse=True):
            yield binary.resolve().parent.parent


def unfit(home: Path) -> str | None:
    """Why the Java at `home` cannot run Spark; None if it can."""
    binary = home / "bin" / "java"
    if not binary.exists():
        return "has no bin/java"
    try:
        asked = subprocess.run(
            [str(binary), "--add-modules=jdk.incubator.vector", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run ({error})"
    version = re.search(r'version "(\d+)(?:\.(\d+))?', asked.stderr)
    if version:
        major = int(version[1]) if version[1] != "1" else int(version[2] or 0)
        if major < OLDEST:
            return f"is version {major}"
    if asked.returncode != 0:
        return "is too old, or a trimmed runtime without the module jdk.incubator.vector"
    return None
