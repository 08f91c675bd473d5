"""Code for special instructions stays in its objects: isa_isolation.py LIBRARY NM OBJDUMP.

A CPU without AVX runs everything but the isa_avx* objects, an ARM without dot products everything but
isa_dotprod and isa_i8mm. So no other object may hold such an instruction, and those must not offer the linker
a copy of code that others define too (weak: inline functions, templates).
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass


@dataclass
class Architecture:
    base: tuple[str, ...]  # levels that every CPU runs
    special: dict[str, str]  # the others: what each holds if the compiler's flags reached it
    only_there: str  # what no other object may hold


AVX = r"%[yz]mm|\tv[a-z]"
ATOMICS = r"\t(cas|swp|ld(add|clr|eor|set)|st(add|clr|eor|set))"  # ARMv8.1
ARCHITECTURES = {
    "x86-64": Architecture(
        ("baseline",), {"avx2": AVX, "avxvnni": AVX, "avx512": r"%zmm", "avx512vnni": r"\tvpdpbusd"}, AVX
    ),
    "aarch64": Architecture(
        ("neon",),
        {"dotprod": r"\tsdot\t", "i8mm": r"\tsmmla\t"},
        rf"\t(su|us|[su])(dot|mmla)\t|\tbf[a-z]+\t.*v\d|{ATOMICS}",
    ),
}


def by_object(command: list[str]) -> dict[str, list[str]]:
    """The lines that a binutils tool prints about each member of an archive."""
    lines: dict[str, list[str]] = {}
    member = ""
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if header := re.match(r"(\S+\.o):", line):
            member = header[1]
        lines.setdefault(member, []).append(line)
    lines.pop("", None)
    return lines


def level_of(member: str) -> str:
    found = re.match(r"isa_([a-z0-9]+)", member)
    return found[1] if found else ""


def faults(library: str, nm: str, objdump: str) -> list[str]:
    found = []
    symbols = by_object([nm, "--demangle", "--defined-only", library])
    code = by_object([objdump, "-d", "--no-show-raw-insn", library])
    text = next(iter(code.values()))[0]
    (arch,) = (a for name, a in ARCHITECTURES.items() if name in text)
    levels = {level_of(name) for name in symbols}
    if not levels >= {*arch.base, *arch.special} or len(symbols) < 20:
        found.append(f"this is not the whole library: {sorted(symbols)}")
    for name, lines in symbols.items():
        if level_of(name) in arch.special:
            found += [f"{name} shares {line}" for line in lines if re.match(r"[0-9a-f]* *[Ww] ", line)]
    for name, lines in code.items():
        level = level_of(name)
        if level not in arch.special:
            found += [f"{name} runs {line}" for line in lines if re.search(arch.only_there, line)][:3]
            continue
        proof = arch.special[level] if name.startswith(f"isa_{level}.") else arch.only_there
        if not any(re.search(proof, line) for line in lines):
            found.append(f"{name} lacks its instructions: the compiler's flags did not reach it")
    return found


if __name__ == "__main__":
    problems = faults(*sys.argv[1:])
    print("\n".join(problems) or "ok")
    sys.exit(bool(problems))
