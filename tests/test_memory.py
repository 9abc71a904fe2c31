"""The memory that a process may have, from files as a kernel writes them."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from engine.maintenance.memory import available_memory, default_memory_budget

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.fixture(autouse=True)
def no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def system(root: Path, groups: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_control_groups_it_is_the_machines(tmp_path: Path) -> None:
    assert available_memory(tmp_path) == MACHINE


def test_version_2_the_least_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory.max": "max\n",
        "sys/fs/cgroup/work/memory.max": "1048576\n",
        "sys/fs/cgroup/work/one/memory.max": "2097152\n",
    }
    assert available_memory(system(tmp_path, "0::/work/one\n", files)) == 1 << 20


def test_version_2_in_a_container_the_mounted_group_counts(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/memory.max": "3145728\n"}
    assert available_memory(system(tmp_path, "0::/docker/0123abcd\n", files)) == 3 << 20


def test_version_1_has_a_hierarchy_for_memory(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes": "4194304\n",
        "sys/fs/cgroup/cpu/jobs/7/memory.limit_in_bytes": "1\n",
    }
    groups = "12:cpu,cpuacct:/jobs/7\n4:memory:/jobs/7\n"
    assert available_memory(system(tmp_path, groups, files)) == 4 << 20


def test_the_limit_of_the_address_space_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_AS: 1 << 29}
    monkeypatch.setattr(
        resource, "getrlimit", lambda kind: (limits.get(kind, resource.RLIM_INFINITY), resource.RLIM_INFINITY)
    )
    assert available_memory(tmp_path) == min(MACHINE, 1 << 29)
    assert default_memory_budget() <= 1 << 28
