"""What a release's wheel must be: complete, small, for old Linux systems, linked with the C library alone.

python tests/check_wheel.py WHEEL
"""

from __future__ import annotations

import io
import re
import sys
import zipfile
from pathlib import Path

from elftools.elf.elffile import ELFFile  # pyelftools

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = re.compile(r"(libc|libm|libpthread|libdl|ld-linux-[\w-]+)\.so\.\d")
MEGABYTES = 2


def check(path: Path) -> str:
    """What was found; AssertionError for what is wrong."""
    assert re.search(r"-manylinux2014_\w+\.manylinux_2_17_\w+\.whl$", path.name), path.name
    assert path.stat().st_size < MEGABYTES * 10**6, f"{path.stat().st_size} bytes"
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        held = {name for name in names if ".dist-info/" not in name and name[-1] != "/"}
        source = {
            str(file.relative_to(ROOT))
            for file in (ROOT / "pyllamacpp").rglob("*")
            if file.suffix in (".py", ".pyi", ".json", ".typed")
        }
        (extension,) = held - source
        assert source <= held, source - held
        assert extension.startswith("pyllamacpp/_core."), extension
        assert any(name.endswith("/licenses/LICENSE") for name in names)
        dynamic = ELFFile(io.BytesIO(wheel.read(extension))).get_section_by_name(".dynamic")
    needed = [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]
    assert all(LIBRARIES.fullmatch(name) for name in needed), needed
    return f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, linked with {' '.join(needed)}"


if __name__ == "__main__":
    print(check(Path(sys.argv[1])))
