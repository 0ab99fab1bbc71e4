"""Fetches the libraries in the packages and lays them out, with licences and a bill of materials.

packaging/vendor.txt names every file by its digest. Binaries are left out, so that the result fits
any machine. packaging/source.sh runs this with the Python of build/tools.
"""

from __future__ import annotations

import argparse
import email
import fnmatch
import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LOCK = Path(__file__).with_name("vendor.txt")
LIMIT_S = 600
DROPPED = (  # files that no command here needs, and files that are not pure Python
    "*.data/*",  # extensions of notebooks, examples of group files
    "*.dist-info/RECORD",
    "*.dist-info/WHEEL",
    "pulp/solverdir/cbc/*",
    "pulp/tests/*",
    "*.so",
    "*.pyd",
)
# SPDX names for libraries whose metadata has the licence only in words.
LICENCES = {"clustershell": "LGPL-2.1-or-later", "shtab": "MPL-2.0"}
WORDS = {"MIT License": "MIT"}


@dataclass(frozen=True)
class Library:
    """A library in a wheel. `digest` is the SHA-256 of that file."""

    name: str
    version: str
    licence: str
    digest: str
    summary: str


def main() -> int:
    """Lay out all files below the directory given. Return 1 if a library of the lock is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", type=Path, help="where fetched files are kept")
    parser.add_argument("target", type=Path, help="directory to make or replace")
    parser.add_argument("--version", required=True, help="version of slurm-malleable")
    chosen = parser.parse_args()
    pinned = read_lock(LOCK.read_text())
    fetch(chosen.wheels)
    shutil.rmtree(chosen.target, ignore_errors=True)
    vendor = chosen.target / "vendor"
    libraries = [unpack(wheel, pinned, vendor) for wheel in wanted(chosen.wheels, pinned)]
    missing = set(pinned) - {library.name for library in libraries}
    if missing:
        print(f"packaging/vendor.txt names {', '.join(sorted(missing))}, which was not fetched")
        return 1
    (chosen.target / "third-party.md").write_text(table(libraries))
    (chosen.target / "licence.txt").write_text(expression(libraries) + "\n")
    provided = (f"Provides: bundled(python3dist({o.name})) = {o.version}\n" for o in libraries)
    (chosen.target / "provides.txt").write_text("".join(provided))
    write_bill(libraries, chosen.version, chosen.target / "sbom.cdx.json")
    return 0


def read_lock(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Return name -> (version, digests), from requirements with hashes."""
    pinned = {}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        name, version = re.match(r"([\w.-]+)==(\S+)", entry).groups()  # type: ignore[union-attr]
        pinned[plain(name)] = (version, frozenset(re.findall(r"sha256:([0-9a-f]{64})", entry)))
    return pinned


def plain(name: str) -> str:
    """Return the name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def fetch(wheels: Path) -> None:
    """Fetch every missing wheel. pip checks the digests."""
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    argv += ["--only-binary=:all:", "--platform=any", "--python-version=3.9"]
    argv += ["--implementation=py", "--abi=none", f"--dest={wheels}", f"--requirement={LOCK}"]
    subprocess.run(argv, check=True, timeout=LIMIT_S)


def wanted(wheels: Path, pinned: dict[str, tuple[str, frozenset[str]]]) -> Iterator[Path]:
    """Yield the wheels of the lock, in order of their names. Older wheels are skipped."""
    for path in sorted(wheels.glob("*.whl")):
        name, version = path.name.split("-")[:2]
        if pinned.get(plain(name), ("",))[0] == version:
            yield path


def unpack(wheel: Path, pinned: dict[str, tuple[str, frozenset[str]]], vendor: Path) -> Library:
    """Lay out a wheel. Raises ValueError for a file whose digest is not in the lock."""
    content = wheel.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    name, version = plain(wheel.name.split("-")[0]), wheel.name.split("-")[1]
    if digest not in pinned[name][1]:
        raise ValueError(f"{wheel} is not the file that packaging/vendor.txt names: {digest}")
    with zipfile.ZipFile(wheel) as packed:
        kept = [file for file in packed.namelist() if not is_dropped(file)]
        packed.extractall(vendor, kept)
        (file,) = (file for file in kept if file.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(packed.read(file))
    return Library(name, version, licence(name, metadata), digest, metadata["Summary"] or "")


def is_dropped(name: str) -> bool:
    """Tell whether this file of a wheel is left out."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in DROPPED)


def licence(name: str, metadata: email.message.Message) -> str:
    """Return the SPDX expression. Raises ValueError if it is unknown: then add it to LICENCES."""
    if name in LICENCES:
        return LICENCES[name]
    if metadata["License-Expression"]:
        return str(metadata["License-Expression"])
    lines = [*metadata.get_all("Classifier", []), metadata["License"] or ""]
    words = {line.rsplit(":: ", 1)[-1] for line in lines if "OSI Approved :: " in line}
    known = {WORDS[word] for word in words if word in WORDS}
    if len(known) != 1:
        raise ValueError(f"the licence of {name} is unknown ({sorted(words)}): add it to LICENCES")
    return known.pop()


def expression(libraries: list[Library]) -> str:
    """Return the licence of a package that carries all of them."""
    licences = (library.licence for library in libraries)
    parts = {f"({name})" if " OR " in name else name for name in licences}
    return " AND ".join(["Apache-2.0", *sorted(parts - {"Apache-2.0"})])


def table(libraries: list[Library]) -> str:
    """Return a table of the libraries and their licences, for people."""
    head = (
        "# Libraries carried by slurm-malleable\n\n"
        "The libraries are unchanged. Files that a cluster does not need are left out: CBC's\n"
        "binaries in PuLP, tests, notebook extensions, example data. The libraries are in\n"
        "/usr/lib/slurm-malleable/vendor, each with the text of its licence in NAME.dist-info.\n"
        "sbom.cdx.json (CycloneDX) is the same list for programs. The pages in html/ contain\n"
        "styles and scripts of Material for MkDocs, under the MIT licence in\n"
        "html/assets/LICENSE.txt.\n\n"
        "| library | version | licence (SPDX) | summary |\n|---|---|---|---|\n"
    )
    rows = (f"| {o.name} | {o.version} | {o.licence} | {o.summary} |\n" for o in libraries)
    return head + "".join(rows)


def write_bill(libraries: list[Library], version: str, target: Path) -> None:
    """Write the bill of materials as CycloneDX JSON. The same libraries give the same file."""
    from bill import make_bill  # noqa: PLC0415 (only this part needs a library)

    target.write_text(make_bill(libraries, version))


if __name__ == "__main__":
    sys.exit(main())
