"""Fetches what the packages carry and lays it out: libraries, their licences, a bill of materials.

Every file is one that packaging/vendor.txt names by its digest. Binaries are left out, so that the
result fits any machine. Run by packaging/source.sh with the Python of build/tools.
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
DROPPED = (  # what no command here needs, and what is not pure Python
    "*.data/*",  # extensions of notebooks, examples of group files
    "*.dist-info/RECORD",
    "*.dist-info/WHEEL",
    "pulp/solverdir/cbc/*",
    "pulp/tests/*",
    "*.so",
    "*.pyd",
)
# For what says it only in words: the names of the SPDX list.
LICENCES = {"clustershell": "LGPL-2.1-or-later", "shtab": "MPL-2.0"}
WORDS = {"MIT License": "MIT"}


@dataclass(frozen=True)
class Library:
    """A library as it lies in a wheel; `digest` is the SHA-256 of that file."""

    name: str
    version: str
    licence: str
    digest: str
    summary: str


def main() -> int:
    """Lay everything out below the directory given; 1 if something is not as the lock says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", type=Path, help="where fetched files are kept")
    parser.add_argument("target", type=Path, help="directory to make anew")
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
    provided = (
        f"Provides: bundled(python3dist({one.name})) = {one.version}\n" for one in libraries
    )
    (chosen.target / "provides.txt").write_text("".join(provided))
    write_bill(libraries, chosen.version, chosen.target / "sbom.cdx.json")
    return 0


def read_lock(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Name -> (version, digests), from requirements with hashes."""
    found = {}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        name, version = re.match(r"([\w.-]+)==(\S+)", entry).groups()  # type: ignore[union-attr]
        found[plain(name)] = (version, frozenset(re.findall(r"sha256:([0-9a-f]{64})", entry)))
    return found


def plain(name: str) -> str:
    """The name as indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def fetch(wheels: Path) -> None:
    """Get every wheel that is not there yet; pip checks the digests."""
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    argv += ["--only-binary=:all:", "--platform=any", "--python-version=3.9"]
    argv += ["--implementation=py", "--abi=none", f"--dest={wheels}", f"--requirement={LOCK}"]
    subprocess.run(argv, check=True, timeout=LIMIT_S)


def wanted(wheels: Path, pinned: dict[str, tuple[str, frozenset[str]]]) -> Iterator[Path]:
    """The wheels of the lock, in order of their names; older ones may lie beside them."""
    for path in sorted(wheels.glob("*.whl")):
        name, version = path.name.split("-")[:2]
        if pinned.get(plain(name), ("",))[0] == version:
            yield path


def unpack(wheel: Path, pinned: dict[str, tuple[str, frozenset[str]]], vendor: Path) -> Library:
    """Lay one wheel out. Raises ValueError for a file whose digest is not in the lock."""
    content = wheel.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    name, version = plain(wheel.name.split("-")[0]), wheel.name.split("-")[1]
    if digest not in pinned[name][1]:
        raise ValueError(f"{wheel} is not the file that packaging/vendor.txt names: {digest}")
    with zipfile.ZipFile(wheel) as packed:
        kept = [one for one in packed.namelist() if not is_dropped(one)]
        packed.extractall(vendor, kept)
        (metadata,) = (one for one in kept if one.endswith(".dist-info/METADATA"))
        said = email.message_from_bytes(packed.read(metadata))
    return Library(name, version, licence(name, said), digest, said["Summary"] or "")


def is_dropped(name: str) -> bool:
    """Whether this file of a wheel is left out."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in DROPPED)


def licence(name: str, said: email.message.Message) -> str:
    """The SPDX expression. Raises ValueError if none is known: look, and add it to LICENCES."""
    if name in LICENCES:
        return LICENCES[name]
    if said["License-Expression"]:
        return str(said["License-Expression"])
    lines = [*said.get_all("Classifier", []), said["License"] or ""]
    words = {line.rsplit(":: ", 1)[-1] for line in lines if "OSI Approved :: " in line}
    known = {WORDS[word] for word in words if word in WORDS}
    if len(known) != 1:
        raise ValueError(f"the licence of {name} is not known: {sorted(words)}")
    return known.pop()


def expression(libraries: list[Library]) -> str:
    """The licence of a package that carries all of them."""
    parts = {f"({one})" if " OR " in one else one for one in (each.licence for each in libraries)}
    return " AND ".join(["Apache-2.0", *sorted(parts - {"Apache-2.0"})])


def table(libraries: list[Library]) -> str:
    """For people: what is carried, and under which licence."""
    head = (
        "# Libraries carried by slurm-malleable\n\n"
        "Unchanged, but for what a cluster does not need: CBC's binaries in PuLP, tests,\n"
        "notebook extensions, example data. They lie in /usr/lib/slurm-malleable/vendor, each\n"
        "with the text of its licence in NAME.dist-info. The same list for programs:\n"
        "sbom.cdx.json (CycloneDX). The pages in html/ contain styles and scripts of Material for\n"
        "MkDocs, under the MIT licence in html/assets/LICENSE.txt.\n\n"
        "| library | version | licence (SPDX) | what it is |\n|---|---|---|---|\n"
    )
    rows = (f"| {o.name} | {o.version} | {o.licence} | {o.summary} |\n" for o in libraries)
    return head + "".join(rows)


def write_bill(libraries: list[Library], version: str, target: Path) -> None:
    """The bill of materials as CycloneDX JSON; the same libraries give the same file."""
    from bill import make_bill  # noqa: PLC0415 (the only part that needs a library)

    target.write_text(make_bill(libraries, version))


if __name__ == "__main__":
    sys.exit(main())
