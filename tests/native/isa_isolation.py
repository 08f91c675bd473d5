"""Code for special instructions stays in its objects: isa_isolation.py LIBRARY NM OBJDUMP.

A CPU without AVX runs everything but the isa_avx* objects. So no other object may hold an AVX instruction,
and those must not offer the linker a copy of code that others define too (weak: inline functions, templates).
"""

import re
import subprocess
import sys


def by_object(command: list[str]) -> dict[str, list[str]]:
    """The lines that a binutils tool prints about each member of an archive."""
    lines: dict[str, list[str]] = {}
    member = ""
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if header := re.match(r"(\S+\.o):", line):
            member = header[1]
        lines.setdefault(member, []).append(line)
    return lines


def faults(library: str, nm: str, objdump: str) -> list[str]:
    found = []
    symbols = by_object([nm, "--demangle", "--defined-only", library])
    special = {name for name in symbols if name.startswith("isa_avx")}
    if len(special) < 4 or len(symbols) < 20:
        found.append(f"this is not the whole library: {sorted(symbols)}")
    for name in special:
        found += [f"{name} shares {line}" for line in symbols[name] if re.match(r"[0-9a-f]* *[Ww] ", line)]
    for name, lines in by_object([objdump, "-d", "--no-show-raw-insn", library]).items():
        avx = [line for line in lines if re.search(r"%[yz]mm|\tv[a-z]", line)]
        if name in special and not avx:
            found.append(f"{name} has no AVX instruction: the compiler's flags did not reach it")
        if name not in special:
            found += [f"{name} runs {line}" for line in avx[:3]]
    return found


if __name__ == "__main__":
    problems = faults(*sys.argv[1:])
    print("\n".join(problems) or "ok")
    sys.exit(bool(problems))
