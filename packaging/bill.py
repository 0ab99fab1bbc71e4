"""The bill of materials of a release: its libraries with digests and licences (CycloneDX)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot5
from packageurl import PackageURL

if TYPE_CHECKING:
    from vendor import Library

EPOCH = datetime(2000, 1, 1, tzinfo=timezone.utc)  # the same libraries give the same text


def make_bill(libraries: Iterable[Library], version: str) -> str:
    """Return CycloneDX 1.5 as JSON."""
    root = Component(
        name="slurm-malleable",
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=f"slurm-malleable@{version}",
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
    )
    parts = [_component(library) for library in libraries]
    bom = Bom(
        components=parts,
        metadata=BomMetaData(component=root, timestamp=EPOCH),
        serial_number=uuid5(NAMESPACE_URL, "|".join(str(part.purl) for part in parts)),
    )
    bom.register_dependency(root, parts)
    return json.dumps(json.loads(JsonV1Dot5(bom).output_as_string()), indent=1) + "\n"


def _component(library: Library) -> Component:
    purl = PackageURL("pypi", name=library.name, version=library.version)
    return Component(
        name=library.name,
        version=library.version,
        type=ComponentType.LIBRARY,
        bom_ref=str(purl),
        purl=purl,
        description=library.summary,
        licenses=[LicenseFactory().make_from_string(library.licence)],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=library.digest)],
    )
