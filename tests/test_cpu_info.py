"""Threads and memory on made-up machines: a fake /proc and /sys tree each."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyllamacpp import _core

MIB = 1 << 20
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def write(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """8 GiB, 6 GiB of it available, no cgroups, no topology."""
    write(tmp_path, "/proc/meminfo", f"MemTotal: {8 << 20} kB\nMemFree: 1 kB\nMemAvailable: {6 << 20} kB\n")
    return tmp_path


def siblings(root: Path, groups: list[str]) -> list[int]:
    """SMT sibling lists, e.g. ["0,4", "1-2"] -> all their CPUs."""
    cpus = []
    for group in groups:
        first, _, last = group.replace("-", ",").partition(",")
        members = range(int(first), int(last) + 1) if "-" in group else [int(v) for v in group.split(",")]
        for cpu in members:
            write(root, f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", group + "\n")
            cpus.append(cpu)
    return cpus


def v2(root: Path, path: str, limits: dict[str, dict[str, str]]) -> None:
    write(root, "/proc/self/cgroup", f"0::{path}\n")
    write(root, "/proc/self/mountinfo", V2_MOUNT)
    for directory, files in limits.items():
        for name, text in files.items():
            write(root, f"/sys/fs/cgroup{directory}/{name}", text)


def v1(root: Path, path: str, mount_root: str = "/") -> None:
    write(root, "/proc/self/cgroup", f"5:cpuset:/other\n4:cpu,cpuacct:{path}\n3:memory:{path}\n")
    mounts = "".join(
        f"3{i} 23 0:2{i} {mount_root} /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n"
        for i, name in enumerate(["cpu,cpuacct", "memory", "cpuset"])
    )
    write(root, "/proc/self/mountinfo", mounts)


def threads(root: Path, cpus: list[int]) -> int:
    return _core.cpu_info_at(str(root), cpus)["threads"]


def available(root: Path) -> int:
    return _core.cpu_info_at(str(root), [0])["memory_available"]


def test_affinity_and_smt_and_hybrid(root: Path) -> None:
    assert threads(root, [0, 1, 2]) == 3  # no topology: each CPU a core
    cpus = siblings(root, ["0,4", "1,5", "2,6", "3,7"])
    assert threads(root, cpus) == 4
    assert threads(root, [0, 4]) == 1
    assert threads(root, [0, 1, 5]) == 2
    info = _core.cpu_info_at(str(root), cpus)
    assert info["physical_cores"] == 4
    assert info["thread_cpus"] == [0, 1, 2, 3]
    assert info["numa_nodes"] == [0]
    assert "4 physical cores" in info["cores_found"]
    assert "8 CPUs" in info["cores_found"]


def per_cpu(root: Path, name: str, values: list[int]) -> list[int]:
    for cpu, value in enumerate(values):
        write(root, f"/sys/devices/system/cpu/cpu{cpu}/{name}", f"{value}\n")
    return list(range(len(values)))


def nodes(root: Path, lists: list[str]) -> None:
    write(root, "/sys/devices/system/node/online", f"0-{len(lists) - 1}\n")
    for i, cpus in enumerate(lists):
        write(root, f"/sys/devices/system/node/node{i}/cpulist", cpus + "\n")


@pytest.mark.parametrize(
    ("p_cores", "e_cores", "expected"),
    [(6, 8, [0, 2, 4, 6, 8, 10]), (2, 8, [0, 2, *range(4, 12)])],
)
def test_intel_hybrid(root: Path, p_cores: int, e_cores: int, expected: list[int]) -> None:
    n_p = 2 * p_cores
    pairs = [f"{cpu}-{cpu + 1}" for cpu in range(0, n_p, 2)]
    cpus = siblings(root, pairs + [str(cpu) for cpu in range(n_p, n_p + e_cores)])
    write(root, "/sys/devices/cpu_core/cpus", f"0-{n_p - 1}\n")
    write(root, "/sys/devices/cpu_atom/cpus", f"{n_p}-{n_p + e_cores - 1}\n")
    info = _core.cpu_info_at(str(root), cpus)
    assert info["thread_cpus"] == expected
    assert info["threads"] == len(expected)
    assert (info["physical_cores"], info["efficiency_cores"]) == (p_cores + e_cores, e_cores)
    assert f"{p_cores} performance, {e_cores} efficiency" in info["cores_found"]
    assert _core.cpu_info_at(str(root), cpus[n_p:])["threads"] == e_cores  # a cpuset without the others


def test_arm_big_little(root: Path) -> None:
    cpus = per_cpu(root, "cpu_capacity", [400] * 4 + [1024] * 4)
    per_cpu(root, "cpufreq/cpuinfo_max_freq", [2000000] * 8)  # capacity knows better
    info = _core.cpu_info_at(str(root), cpus)
    assert info["thread_cpus"] == [4, 5, 6, 7]
    assert info["efficiency_cores"] == 4
    medium = per_cpu(root, "cpu_capacity", [300] * 4 + [870] * 3 + [1024])
    assert _core.cpu_info_at(str(root), medium)["thread_cpus"] == [4, 5, 6, 7]


@pytest.mark.parametrize("slowest", [5600000, 5100000])
def test_equal_cores_with_other_boost_clocks(root: Path, slowest: int) -> None:
    cpus = per_cpu(root, "cpufreq/cpuinfo_max_freq", [5700000, slowest, 5650000, slowest])
    info = _core.cpu_info_at(str(root), cpus)
    assert (info["threads"], info["efficiency_cores"]) == (4, 0)


def test_slow_cores_by_their_clock_unless_one_does_not_say(root: Path) -> None:
    cpus = per_cpu(root, "cpufreq/cpuinfo_max_freq", [1400000] * 4 + [2800000] * 4)
    assert _core.cpu_info_at(str(root), cpus)["thread_cpus"] == [4, 5, 6, 7]
    assert threads(root, [*cpus, 8]) == 9


def test_two_sockets(root: Path) -> None:
    cpus = siblings(root, [f"{cpu},{cpu + 128}" for cpu in range(128)])
    nodes(root, ["0-63,128-191", "64-127,192-255"])
    info = _core.cpu_info_at(str(root), cpus)
    assert info["threads"] == 128
    assert info["numa_nodes"] == [0, 1]
    assert "2 NUMA nodes" in info["cores_found"]
    inside = _core.cpu_info_at(str(root), [*range(64, 72), *range(192, 200)])  # a container's cpuset
    assert inside["numa_nodes"] == [1]
    assert inside["thread_cpus"] == list(range(64, 72))
    assert "NUMA" not in inside["cores_found"]


def test_cpus_that_are_offline(root: Path) -> None:
    write(root, "/sys/devices/system/cpu/online", "0-3,8,10-11\n")
    assert _core.cpu_info_at(str(root), list(range(12)))["thread_cpus"] == [0, 1, 2, 3, 8, 10, 11]
    assert threads(root, [4, 5]) == 2  # what we were told against what is said there: the former


def test_two_thousand_cpus(root: Path) -> None:
    nodes(root, [f"{i * 128}-{i * 128 + 127}" for i in range(16)])
    info = _core.cpu_info_at(str(root), list(range(2048)))
    assert info["threads"] == 2048
    assert info["numa_nodes"] == list(range(16))


@pytest.mark.parametrize("text", ["", "x", "3-1", "0-", "-1", "0,,1", "0-99999999999", "0-1,", "1 0", "\x00"])
def test_garbled_lists_say_nothing(root: Path, text: str) -> None:
    for path in ("cpu/online", "cpu/cpu0/topology/thread_siblings_list", "node/online", "node/node0/cpulist"):
        write(root, f"/sys/devices/system/{path}", text)
    for kind in ("core", "atom"):
        write(root, f"/sys/devices/cpu_{kind}/cpus", text)
    per_cpu(root, "cpu_capacity", [-1, 0])
    info = _core.cpu_info_at(str(root), [0, 1])
    assert (info["thread_cpus"], info["numa_nodes"], info["efficiency_cores"]) == ([0, 1], [0], 0)


@pytest.mark.parametrize(
    ("cpu_max", "expected"),
    [
        ("765000 100000", 7),
        ("50000 100000", 1),
        ("100000 100000", 1),
        ("399999 100000", 3),
        ("max 100000", 8),
        ("9900000 100000", 8),
    ],
)
def test_v2_quota_rounds_down_but_leaves_one(root: Path, cpu_max: str, expected: int) -> None:
    v2(root, "/", {"": {"cpu.max": cpu_max + "\n"}})
    assert threads(root, list(range(8))) == expected


def test_v2_the_tightest_quota_on_the_path_counts(root: Path) -> None:
    v2(
        root,
        "/pod/app",
        {
            "/pod": {"cpu.max": "250000 100000\n"},
            "/pod/app": {"cpu.max": "max 100000\n"},
            "/else": {"cpu.max": "1 9\n"},
        },
    )
    info = _core.cpu_info_at(str(root), list(range(8)))
    assert info["threads"] == 2
    assert "2.5" in info["threads_why"]


def test_v1_quota(root: Path) -> None:
    v1(root, "/docker/abc")
    base = "/sys/fs/cgroup/cpu,cpuacct/docker"
    for directory, quota in ((base, -1), (base + "/abc", 765000)):
        write(root, directory + "/cpu.cfs_quota_us", f"{quota}\n")
        write(root, directory + "/cpu.cfs_period_us", "100000\n")
    assert threads(root, list(range(16))) == 7


@pytest.mark.parametrize(
    ("path", "mount_root"),
    [("/docker/abc", "/docker/abc"), ("/docker/abc/x", "/docker/abc"), ("/", "/docker/abc")],
)
def test_v1_in_a_container_sees_its_own_part_of_the_tree(root: Path, path: str, mount_root: str) -> None:
    v1(root, path, mount_root)
    write(root, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n")
    write(root, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    assert threads(root, list(range(16))) == 2


def test_memory_without_cgroups(root: Path) -> None:
    info = _core.cpu_info_at(str(root), [0])
    assert info["memory_total"] == 8 << 30
    assert info["memory_available"] == 6 << 30


def test_v2_memory_limit_counts_inactive_files_as_free(root: Path) -> None:
    files = {
        "memory.max": f"{1000 * MIB}\n",
        "memory.current": f"{700 * MIB}\n",
        "memory.stat": f"anon 5\ninactive_file {300 * MIB}\nactive_file 7\n",
    }
    v2(root, "/pod/app", {"/pod": files, "/pod/app": {"memory.max": "max\n", "memory.current": "1\n"}})
    info = _core.cpu_info_at(str(root), [0])
    assert info["memory_available"] == 600 * MIB
    assert info["memory_total"] == 1000 * MIB
    assert "1000 MiB" in info["memory_why"]
    assert "400 MiB" in info["memory_why"]


def test_v2_memory_limit_above_what_is_available(root: Path) -> None:
    v2(root, "/a", {"/a": {"memory.max": f"{7 << 30}\n", "memory.current": "0\n", "memory.stat": ""}})
    assert available(root) == 6 << 30


def test_memory_over_its_limit_is_nothing_not_a_huge_number(root: Path) -> None:
    v2(root, "/a", {"/a": {"memory.max": f"{MIB}\n", "memory.current": f"{9 * MIB}\n"}})
    assert available(root) == 0


@pytest.mark.parametrize(("limit", "expected"), [(512 * MIB, 512 * MIB - 100), (0x7FFFFFFFFFFFF000, 6 << 30)])
def test_v1_memory(root: Path, limit: int, expected: int) -> None:
    v1(root, "/x")
    base = "/sys/fs/cgroup/memory/x"
    write(root, base + "/memory.limit_in_bytes", f"{limit}\n")
    write(root, base + "/memory.usage_in_bytes", "600\n")
    write(root, base + "/memory.stat", "cache 1\ntotal_inactive_file 500\n")
    assert available(root) == expected


def test_garbage_is_not_a_limit(root: Path) -> None:
    v2(root, "/a/../..", {"": {"cpu.max": "\n", "memory.max": "lots\n", "memory.current": "\x00\n"}})
    write(root, "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "")
    assert threads(root, [0, 1]) == 2
    assert available(root) == 6 << 30


def test_this_machine() -> None:
    info = _core.cpu_info()
    assert info["level"] in info["levels"]
    assert info["levels"][0] in ("baseline", "neon")
    assert 1 <= info["threads"] <= info["physical_cores"]
    assert 0 < info["memory_available"] <= info["memory_total"]
    assert ("avx2" in info["features"]) == ("avx2" in info["levels"])
    for key in ("why", "threads_why", "memory_why"):
        assert info[key]
