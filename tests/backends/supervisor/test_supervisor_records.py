"""The records on disk, what /proc says, and where limits can be kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.backends.supervisor.bench import key, wait_for

import aryl
from aryl.backends.supervisor import tree
from aryl.backends.supervisor.limits import Limits
from aryl.backends.supervisor.protocol import WorkerKey, WorkerState, WorkerStatus
from aryl.backends.supervisor.records import Record, Records


def _record(rank: int, state: WorkerState = WorkerState.RUNNING) -> Record:
    status = WorkerStatus(
        key(rank),
        "T1",
        (rank,),
        {"a": "b"},
        "/log",
        state,
        pid=77,
        started_unix_s=1.5,
        last_report={"step": 2.0},
    )
    return Record(status, 123, "boot", ("/group",))


def _read(folder: Path) -> dict[WorkerKey, Record]:
    records = Records(folder)
    records.close()
    return records.kept


def test_the_last_line_of_a_worker_counts(tmp_path: Path) -> None:
    records = Records(tmp_path)
    ended = replace(_record(0, WorkerState.EXITED), cgroups=())
    for record in (_record(0), _record(1), _record(2), ended):
        records.put(record)
    records.drop(key(1))
    assert records.commit()
    records.close()
    assert _read(tmp_path) == {key(0): ended, key(2): _record(2)}


def test_a_half_line_is_passed_over(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.put(_record(0))
    records.put(_record(1))
    assert records.commit()
    records.close()
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert _read(tmp_path) == {key(0): _record(0)}


def test_what_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.put(_record(0))
    handle = os.open("/dev/full", os.O_WRONLY)
    good = records._handle
    records._handle = handle
    assert not records.commit()
    records._handle = good
    os.close(handle)
    records.put(_record(1))
    assert records.commit()
    records.close()
    assert _read(tmp_path) == {key(0): _record(0), key(1): _record(1)}


def test_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    records = Records(tmp_path)
    for _ in range(3000):
        records.put(_record(0))
        records.drop(key(0))
        assert records.commit()
    records.put(_record(1))
    assert records.commit()
    assert len((tmp_path / "records.jsonl").read_bytes().splitlines()) < 2100
    records.close()
    assert _read(tmp_path) == {key(1): _record(1)}


def test_a_signal_goes_to_the_process_that_is_meant_or_to_none() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        found = tree.read(process.pid)
        assert found is not None
        assert found.parent == os.getpid()
        assert not tree.deliver(replace(found, start_ticks=found.start_ticks - 1), signal.SIGKILL)
        assert process.poll() is None
        assert tree.deliver(found, signal.SIGKILL)
        # It stays a zombie until it is waited for.
        wait_for(lambda: (again := tree.read(process.pid)) is not None and again.gone)
        assert process.pid not in tree.snapshot()
    assert tree.read(process.pid) is None
    assert not tree.deliver(found, signal.SIGKILL)


def test_a_process_whose_supervisor_dies_before_it_is_on_record_ends_without_running(tmp_path: Path) -> None:
    code = f"""
import os
from aryl.backends.supervisor.protocol import WorkerKey, WorkerSpec
from aryl.backends.supervisor.spawn import spawn
for word, gate in (("closed", b""), ("open", b"+")):
    argv = ("/bin/touch", f"{tmp_path}/{{word}}")
    spec = WorkerSpec(WorkerKey("j", 1, 0, 0), argv, "/", {{}}, "{tmp_path}/log", "T1")
    child = spawn(spec, {{}}, (64, 64))
    os.write(child.gate, gate)
    os.close(child.gate)
    os.waitpid(child.pid, 0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "open"]


def test_the_process_imports_nothing_but_the_standard_library_and_its_own_modules() -> None:
    code = "import sys, aryl.backends.supervisor.process; print(*sys.modules)"
    environment = {"PYTHONPATH": str(Path(aryl.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], check=True, capture_output=True, text=True, env=environment
    )
    names = set(done.stdout.split())
    ours = {name for name in names if name.startswith("aryl.") and ".supervisor" not in name}
    assert ours == {"aryl.errors", "aryl.backends"}
    others = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert others <= {"aryl", "__main__", "__mp_main__"}
    assert "aryl.backends.supervisor.client" not in names


def test_a_name_with_parentheses_and_spaces_confuses_nobody(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "1000"]) as process:
        found = tree.read(process.pid)
        process.kill()
    assert found is not None
    assert found.parent == os.getpid()


_V1 = """
30 20 0:1 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:2 / {root}/memory rw,relatime shared:9 - cgroup cgroup rw,memory
32 30 0:3 / {root}/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 30 0:4 / {root}/unified rw - cgroup2 cgroup2 rw
"""
_V2 = "31 30 0:2 / {root} rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def _v2(folder: Path, controllers: str) -> None:
    folder.mkdir(parents=True)
    (folder / "cgroup.subtree_control").write_text(controllers, encoding="ascii")


@pytest.fixture
def _kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """New folders have the control files that the kernel would put there."""
    plain = Path.mkdir

    def mkdir(self: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        plain(self, mode, parents, exist_ok)
        (self / "cgroup.subtree_control").write_text("memory cpu\n", encoding="ascii")
        for name in ("memory.max", "memory.swap.max", "memory.oom.group", "cpu.max"):
            (self / name).write_text("", encoding="ascii")

    monkeypatch.setattr(Path, "mkdir", mkdir)


def test_version_1_is_found_below_the_own_groups(tmp_path: Path) -> None:
    for name, limit in (("memory/own", "memory.limit_in_bytes"), ("cpu,cpuacct/own", "cpu.cfs_quota_us")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / limit).touch()
    (tmp_path / "unified").mkdir()
    groups = "4:memory:/own\n3:cpu,cpuacct:/own\n0::/\n"
    limits = Limits.find("word", _V1.strip().format(root=tmp_path), groups)
    assert limits.kind == "cgroup-v1"
    assert limits.make("job", 0, 0.0) is None
    group = limits.make("job", 1 << 20, 2.0)
    assert group is not None
    assert [Path(folder).relative_to(tmp_path) for folder in group.folders] == [
        Path("memory/own/aryl-word/job"),
        Path("cpu,cpuacct/own/aryl-word/job"),
    ]


@pytest.mark.usefixtures("_kernel")
def test_version_2_is_found_where_memory_is_handed_down(tmp_path: Path) -> None:
    _v2(tmp_path / "system.slice/aryl.service/daemon", "")  # processes are in it: nothing is handed down
    mounts = _V2.format(root=tmp_path)
    limits = Limits.find("word", mounts, "0::/system.slice/aryl.service/daemon\n")
    assert limits.kind == "cgroup-v2"
    group = limits.make("job", 1 << 20, 1.5)
    assert group is not None
    (folder,) = map(Path, group.folders)
    assert folder == tmp_path / "system.slice/aryl.service/aryl-word/job"
    assert (folder / "memory.max").read_text(encoding="ascii") == str(1 << 20)
    assert (folder / "memory.swap.max").read_text(encoding="ascii") == "0"
    assert (folder / "memory.oom.group").read_text(encoding="ascii") == "1"
    assert (folder / "cpu.max").read_text(encoding="ascii") == "150000 100000"


@pytest.mark.usefixtures("_kernel")
def test_groups_of_the_system_are_left_alone(tmp_path: Path) -> None:
    _v2(tmp_path / "user.slice/session-1.scope", "")
    mounts = _V2.format(root=tmp_path)
    assert Limits.find("word", mounts, "0::/user.slice/session-1.scope\n").kind == "none"
    assert [path.name for path in (tmp_path / "user.slice").iterdir() if path.is_dir()] == ["session-1.scope"]


def test_no_limits_where_there_are_no_groups(tmp_path: Path) -> None:
    assert Limits.find("word", "", "").kind == "none"
    assert Limits.find("word", _V2.format(root=tmp_path), "0::/gone\n").kind == "none"
    assert Limits("none", ()).make("job", 1 << 20, 1.0) is None
