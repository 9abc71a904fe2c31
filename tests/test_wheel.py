"""The wheel, installed into an environment of its own: the library, `zedlog run` and `zedlog serve` from there.

The dependencies are those of the environment of the tests, the project's own checkout is not to be seen. So that the
kernels are not compiled anew, which takes half a minute, those of the tests are copied, all but one: the first process
compiles that, as it would all.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.resident import kernels
from engine.resident.warm import load_all

ROOT = Path(__file__).resolve().parent.parent
COMPILING = "compiling kernels (once after an install)"
# The kernel that `zedlog run` loads first, as numba names its files.
FIRST = (
    "import engine.files.batch, engine.resident.warm; from engine.resident.kernels import _kernels; "
    "first = _kernels[0]._function; print(first.__module__.rpartition('.')[2], first.__name__, sep='.')"
)
"""The kernel that a process loads first."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="looks for bin/")]


class Installed:
    """An environment with the wheel in it, and a working directory elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "environment" / "bin"
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.mkdir()
        hidden = ("PYTHONPATH", "NUMBA_CACHE_DIR", "ZEDLOG_URL")
        self.environment = {name: value for name, value in os.environ.items() if name not in hidden}

    def install(self) -> None:
        source = self.folder / "source"
        ignored = shutil.ignore_patterns("__pycache__")
        for name in ("engine", "service", "zedlog"):
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, source)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        built = ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", self.folder]
        self.done(*pip, "wheel", *built, source)
        (wheel,) = self.folder.glob("zedlog-*.whl")
        self.done(sys.executable, "-m", "venv", "--without-pip", self.bin.parent)
        self.done(*pip, "--python", self.bin / "python", "install", "--no-deps", "--no-index", wheel)
        # A line of a .pth file names a folder, whose own .pth files, that of the checkout among them, are not read.
        (self.packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    @property
    def packages(self) -> Path:
        (found,) = (self.bin.parent / "lib").glob("python*/site-packages")
        return found

    def copy_kernels(self) -> None:
        """All kernels but the one that is loaded first."""
        load_all()
        compiled = kernels._folder()
        assert compiled is not None
        cache = self.packages / "engine" / "resident" / "__pycache__"
        cache.mkdir(exist_ok=True)
        for path in [*compiled.glob("*.nb[ci]"), compiled / kernels.STAMP]:
            shutil.copy(path, cache)
        first = self.done(self.bin / "python", "-c", FIRST).stdout.strip()
        missing = [*cache.glob(f"{first}-*")]
        assert len(missing) == 2, missing
        for path in missing:
            path.unlink()

    def done(self, *command: object) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=self.elsewhere,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    there = Installed(tmp_path_factory.mktemp("wheel"))
    there.install()
    return there


def test_what_is_installed_is_not_the_checkout(installed: Installed) -> None:
    code = (
        "import engine, service, zedlog; print(*(m.__file__ for m in (engine, service, zedlog)), sep='\\n')"
    )
    found = installed.done(installed.bin / "python", "-c", code).stdout.splitlines()
    assert found == [
        str(installed.packages / name / "__init__.py") for name in ("engine", "service", "zedlog")
    ]
    for name in ("zedlog/py.typed", "engine/py.typed", "service/py.typed", "engine/language/grammar.lark"):
        assert (installed.packages / name).exists(), name


def test_the_first_run_says_that_it_compiles_and_the_second_is_silent(installed: Installed) -> None:
    installed.copy_kernels()
    (installed.elsewhere / "p.dl").write_text("e(1, 2). e(2, 3).\nt(x, z) :- e(x, y), e(y, z).\n.output t\n")
    first = installed.done(installed.bin / "zedlog", "run", "p.dl")
    assert first.stderr == f"{COMPILING} ...\n"
    assert (installed.elsewhere / "t.csv").read_text() == "1\t3\n"
    second = installed.done(installed.bin / "zedlog", "run", "p.dl", "-D", "-")
    assert second.stderr == ""
    assert "1\t3" in second.stdout


def test_the_library_example_gives_what_it_shows(installed: Installed) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.DOTALL)
    (installed.elsewhere / "example.txt").write_text(example)
    done = installed.done(installed.bin / "python", "-m", "doctest", "-v", "example.txt")
    assert re.search(r"^(\d+) passed", done.stdout, re.MULTILINE), done.stdout
    assert "from zedlog import Reasoner" in example


@pytest.fixture
def serving(installed: Installed) -> Iterator[subprocess.Popen[bytes]]:
    installed.copy_kernels()
    with (installed.folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [str(installed.bin / "zedlog"), "serve", "--port", "0"],
            cwd=installed.elsewhere,
            env=installed.environment | {"COLUMNS": "200"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    yield process
    if process.poll() is None:
        process.kill()
        process.wait()


def test_the_service_starts_and_its_log_says_that_it_compiles(
    installed: Installed, serving: subprocess.Popen[bytes]
) -> None:
    output, deadline = installed.folder / "output", time.monotonic() + 240
    while "Zedlog is ready" not in output.read_text():
        assert serving.poll() is None, output.read_text()
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.1)
    url = re.search(r"Zedlog is ready on (http://\S+)", output.read_text())
    assert url is not None
    zedlog = [installed.bin / "zedlog", "--url", url[1]]
    installed.done(*zedlog, "facts", "add", "e(1, 2). e(2, 3).")
    installed.done(*zedlog, "rules", "add", "t(x, z) :- e(x, y), e(y, z).")
    assert installed.done(*zedlog, "query", "t(x, y)").stdout == "x,y\n1,3\n"
    serving.send_signal(signal.SIGINT)
    assert serving.wait(60) == 0
    log = (installed.elsewhere / ".zedlog" / "zedlog.log").read_text()
    total = len(kernels._kernels)
    assert re.findall(re.escape(COMPILING) + r", (\d+) of (\d+)", log)[-1] == (str(total), str(total))
