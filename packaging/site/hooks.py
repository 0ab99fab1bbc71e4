"""Fits the documents of the repository to a site.

README.md and CHANGELOG.md become pages. A link to a file that the site leaves out becomes plain
text. Lists are written as Markdown of Python wants them.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ("README.md", "CHANGELOG.md")  # pages outside docs/
LINK = re.compile(r"(!?)\[((?:[^][]|\[[^][]*\])*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")
ITEM = r"(?:[*-]|\d+\.) "
NESTED = re.compile(rf"^ {{2,3}}(?={ITEM})", re.M)
FIRST_ITEM = re.compile(rf"^(?!{ITEM}|[ #|])(.+\n)(?=(?:[*-]|1\.) )", re.M)
SHORT = re.compile(r"<code>([^<\n]{1,24})</code>")
UNUSED = (  # only a server and other languages need these
    *("404.html", "sitemap.xml", "sitemap.xml.gz", "assets/javascripts/lunr"),
    *("assets/javascripts/*.map", "assets/javascripts/*/*.map", "assets/stylesheets/*.map"),
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Remove from the navigation the pages that the site leaves out."""
    config.nav = _kept(config.nav, config)
    return config


def _kept(entries: Any, config: MkDocsConfig) -> Any:
    if isinstance(entries, dict):
        return {name: _kept(below, config) for name, below in entries.items()}
    if isinstance(entries, list):
        return [_kept(entry, config) for entry in entries if not _is_left_out(entry, config)]
    return entries


def _is_left_out(entry: Any, config: MkDocsConfig) -> bool:
    return isinstance(entry, str) and config.exclude_docs.match_file(entry)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie beside docs/, and the licence of the theme."""
    for name in BESIDE:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    theme = metadata.files("mkdocs-material") or []
    (licence,) = (str(path.locate()) for path in theme if path.match("licenses/LICENSE"))
    files.append(File.generated(config, "assets/LICENSE.txt", abs_src_path=licence))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page as the site needs it. The home has no pages beside it."""
    if page.file.src_uri == "README.md":
        page.meta["hide"] = ["navigation"]
    text = LINK.sub(partial(_link, page.file.src_uri, config), markdown)
    return FIRST_ITEM.sub(r"\1\n", NESTED.sub("    ", text))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark short code in a sentence or table, so that no line ends within an option."""
    return SHORT.sub(r'<code class="short">\1</code>', html)


def _link(page: str, config: MkDocsConfig, match: re.Match[str]) -> str:
    mark, text, target, anchor = match.groups()
    here = page if page in BESIDE else f"docs/{page}"
    path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
    inside = path if path in BESIDE else path.removeprefix("docs/")
    if path not in BESIDE and (inside == path or _is_left_out(inside, config)):
        return _without_link(text, path)
    target = posixpath.relpath(inside, posixpath.dirname(page) or ".")
    return f"{mark}[{text}]({target}{anchor or ''})"


def _without_link(text: str, path: str) -> str:
    """The text of a link to a file that the site leaves out, with the place of a dated page."""
    if not path.startswith(("docs/lab/", "docs/developers/nightly")):
        return text
    if text.removeprefix("the ") in ("lab", "lab note") or text in path or path in text:
        return f"{path} in the source"
    return f"{text} ({path} in the source)"


def on_post_build(config: MkDocsConfig) -> None:
    """Remove the files that the site never opens."""
    for path in (path for name in UNUSED for path in Path(config.site_dir).glob(name)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
