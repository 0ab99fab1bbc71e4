"""The site of the documents: it is whole, needs no network, and a fault stops its build."""

from __future__ import annotations

import json
import re
import shutil
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from matplotlib.image import imread

from browsing import browser
from built_site import build, built
from slurm_hooks.doctor.catalogue import CHECKS

ROOT = Path(__file__).resolve().parents[2]
OF_THE_BROWSER = (b"clients2.google.com", b"update.googleapis.com", b"accounts.google.com")
PAGES = sorted({ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")})
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("site"), "mkdocs.yml")


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("packaged"), "packaged.yml")


class Reader(HTMLParser):
    """Collects the addresses that a page loads or links to, and its anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values["id"]} if "id" in values else set()
        if tag in LOADED and LOADED[tag] in values:
            self.loaded.append(values[LOADED[tag]])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])


def readers(site: Path) -> dict[Path, Reader]:
    return {page: Reader(page) for page in site.rglob("*.html")}


@pytest.mark.parametrize("kind", ["site", "packaged"])
def test_every_link_leads_to_a_page_of_the_site(kind: str, request: pytest.FixtureRequest) -> None:
    pages = readers(request.getfixturevalue(kind))
    dead = [
        (page.name, link)
        for page, reader in pages.items()
        for link in [*reader.links, *reader.loaded]
        if (where := urlsplit(link)).path and not where.scheme
        if not (page.parent / where.path).is_file()
    ]
    assert len(pages) > 20
    assert dead == []


def test_a_page_loads_no_file_from_a_network(site: Path) -> None:
    for page, reader in readers(site).items():
        assert reader.loaded
        assert [place for place in reader.loaded if urlsplit(place).netloc] == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(.?(https?:)?//|@import", style.read_text(encoding="utf-8"))


def test_every_check_of_doctor_has_its_anchor(site: Path) -> None:
    anchors = Reader(site / "admins" / "doctor.html").anchors
    assert [check.id for check in CHECKS if check.id not in anchors] == []


def test_the_home_is_the_readme_and_the_changes_have_a_page(site: Path) -> None:
    doors = {"users/quickstart.html", "admins/start.html", "CONTRIBUTING.html"}
    assert doors <= set(Reader(site / "index.html").links)
    assert "<h1" in (site / "CHANGELOG.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_block_of_code_is_not_taken_for_text_of_a_list(page: Path) -> None:
    """In a list it needs eight spaces. After a list a sentence has to come first."""
    blocks = re.split(r"\n{2,}", page.read_text(encoding="utf-8"))
    is_list, taken = False, []
    for block in blocks:
        if not block.startswith(" "):
            is_list = bool(re.search(r"^([*-]|\d+\.) ", block, re.M))
        elif is_list and re.match(" {4,7}[^ ]", block):
            taken.append(block)
    assert taken == []


def copied(place: Path) -> Path:
    """A tree with all that the site is built from."""
    for name in ("docs", "packaging/site"):
        shutil.copytree(ROOT / name, place / name)
    for name in ("README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, place)
    return place


def add(page: Path, text: str) -> None:
    with page.open("a", encoding="utf-8") as file:
        file.write(f"\n{text}\n")


def test_a_fault_of_the_documents_stops_the_build(tmp_path: Path) -> None:
    tree = copied(tmp_path)
    docs = tree / "docs"
    add(docs / "admins" / "settings.md", "[a page](no-such-page.md)")
    add(tree / "README.md", "[a place](docs/admins/doctor.md#no-such-check)")
    add(docs / "users" / "no-such-entry.md", "# A page that the navigation lacks")
    (docs / "admins" / "report.md").unlink()
    done = build(tree, tmp_path / "site")
    assert done.returncode == 1
    for complaint in (
        "no-such-page.md",
        "does not contain an anchor '#no-such-check'",
        "users/no-such-entry.md",
        "'admins/report.md' is included in the 'nav'",
    ):
        assert complaint in done.stderr


def test_a_list_may_follow_its_sentence_and_a_link_may_leave_the_documents(tmp_path: Path) -> None:
    tree = copied(tmp_path)
    page = tree / "docs" / "admins" / "settings.md"
    add(page, "Two things:\n* first\n* second\n  of two\n\n1. outer\n   * inner\n")
    add(page, "See [an example](../../examples/mpi/README.md), [`changes`](../../CHANGELOG.md).")
    done = build(tree, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "site" / "admins" / "settings.html").read_text(encoding="utf-8")
    plain = re.sub(r"\s+", " ", text)
    assert "<p>Two things:</p> <ul> <li>first</li> <li>second of two</li> </ul>" in plain
    assert "<li>outer<ul> <li>inner</li> </ul> </li>" in plain
    assert (
        'See an example, <a href="../CHANGELOG.html"><code class="short">changes</code></a>.'
        in plain
    )


@contextmanager
def network() -> Iterator[tuple[str, list[bytes]]]:
    """Yield the browser's option for a proxy that never answers, and the requests to it."""
    asked: list[bytes] = []

    class Refusal(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            line = self.rfile.readline()
            if not any(host in line for host in OF_THE_BROWSER):
                asked.append(line)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refusal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"--proxy-server=127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()


@pytest.mark.browser
def test_a_browser_searches_without_a_network(site: Path, tmp_path: Path) -> None:
    with network() as (proxy, asked):
        dom, console = browser(tmp_path, proxy, "--dump-dom", f"file://{site}/index.html?q=lease")
    assert (console, asked) == ([], [])
    hits = re.findall(r'<a href="file://([^"?#]*)[^"]*" class="md-search-result__link"', dom)
    assert {site / "admins" / "settings.html", site / "admins" / "doctor.html"} <= {
        *map(Path, hits)
    }


@pytest.mark.browser
def test_a_page_that_asks_a_network_is_seen(site: Path, tmp_path: Path) -> None:
    """Shows that the list of requests can be other than empty."""
    page = tmp_path / "page.html"
    text = (site / "index.html").read_text(encoding="utf-8")
    page.write_text(text.replace("<body", "<img src='http://example.org/x.png'><body", 1))
    with network() as (proxy, asked):
        browser(tmp_path, proxy, "--dump-dom", f"file://{page}")
    assert [line for line in asked if b"example.org/x.png" in line]


FRAMES = """
for (const address of ADDRESSES) {
  const frame = document.createElement("iframe")
  frame.width = WIDTH
  frame.src = address
  frame.onload = () => {
    const page = frame.contentDocument
    document.body.append(`${address}: ${MEASURE}.`)
  }
  document.body.append(frame)
}"""


def measured(place: Path, addresses: list[str], width: int, measure: str) -> dict[str, int]:
    """A number of each page, in a frame: a headless browser has no window below 500 pixels."""
    script = FRAMES.replace("ADDRESSES", json.dumps(addresses))
    script = script.replace("WIDTH", str(width)).replace("MEASURE", measure)
    page = place / "frames.html"
    page.write_text(f"<body><script>{script}</script></body>")
    dom, _ = browser(place, "--allow-file-access-from-files", "--dump-dom", f"file://{page}")
    shown = dom.partition("</script>")[2]
    return {name: int(number) for name, number in re.findall(r"(file:[^ <>]+): (-?\d+)", shown)}


@pytest.mark.browser
def test_a_browser_opens_the_place_that_doctor_names(site: Path, tmp_path: Path) -> None:
    place = f"file://{site}/admins/doctor.html#kill-wait"
    top = "Math.round(page.querySelector(':target').getBoundingClientRect().top)"
    tops = measured(tmp_path, [place], 1280, top)
    assert 0 <= tops[place] < 150  # a single screen has 150 pixels in a frame


@pytest.mark.browser
@pytest.mark.parametrize("page", ["index.html", "users/quickstart.html"])
def test_a_picture_of_a_page_shows_a_header_and_dark_text(
    site: Path, tmp_path: Path, page: str
) -> None:
    """The picture stays in build/, for people to look at."""
    picture = ROOT / "build" / f"site-{Path(page).stem}.png"
    size = ("--window-size=1280,900", f"--screenshot={picture}")
    _, console = browser(tmp_path, *size, f"file://{site}/{page}")
    pixels = imread(picture)[..., :3]
    header, text = pixels[:70].mean(axis=(0, 1)), pixels[100:].min(axis=2) < 0.4
    assert console == []
    assert header.min() < 0.3 < header.max()  # a colour, and not white
    assert 0.005 < text.mean() < 0.2


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_its_window(site: Path, tmp_path: Path, width: int) -> None:
    pages = sorted(f"file://{page}" for page in site.rglob("*.html") if not page.stem[0].isdigit())
    widths = measured(tmp_path, pages, width, "page.documentElement.scrollWidth")
    assert sorted(widths) == pages
    assert [(page, wide) for page, wide in widths.items() if wide > width] == []
