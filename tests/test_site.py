"""The site: what `make site` makes of the pages."""

import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
SITE = runpy.run_path(str(ROOT / "docs" / "site.py"))
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    out = tmp_path_factory.mktemp("pages")
    return out, SITE["prepare"](out)


def listed(nav):
    for entry in nav:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        if isinstance(value, str):
            yield value
        else:
            yield from listed(value)


def test_every_page_has_its_place_in_the_navigation(prepared):
    out, written = prepared
    nav = list(listed(yaml.safe_load(SITE["configuration"](SITE["pages"]()))["nav"]))
    by_hand = [place.as_posix() for place in SITE["pages"]().values()]
    assert len(by_hand) > 60
    assert sorted(nav) == sorted([*by_hand, *(f"api/{package}.md" for package in SITE["API"])])
    assert {Path(page) for page in nav} <= set(written)
    # Addresses end with a folder: a page of that name beside it would have the same one.
    assert not [page for page in nav if (out / page).with_suffix("").joinpath("index.md").exists()]


def test_no_link_leaves_the_site(prepared):
    out, written = prepared
    links = 0
    for page in written:
        if page.suffix != ".md":
            continue
        text = re.sub(r"^```.*?^```", "", (out / page).read_text(), flags=re.DOTALL | re.MULTILINE)
        for target, _ in LINK.findall(text):
            if re.match(r"[a-z]+:", target):
                continue
            links += 1
            path = (out / page).parent / target
            assert path.resolve().is_relative_to(out.resolve()), f"{page}: {target}"
            assert path.is_file(), f"{page}: {target}"
    assert links > 300


def test_a_link_that_leads_nowhere_is_an_error(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("[there](absent.md)")
    with pytest.raises(ValueError, match=r"the link to 'absent\.md' leads nowhere"):
        SITE["_for_site"](page, Path("page.md"), {page: Path("page.md")}, {})


@pytest.mark.parametrize("package", SITE["API"])
def test_the_reference_has_the_public_names(package):
    module = importlib.import_module(package)
    names = SITE["public_names"](package)
    assert names
    assert all(getattr(module, name, None) is not None for name in names)


ZENSICAL = ROOT / "build" / "site-env" / "bin" / "zensical"


@pytest.mark.skipif(not ZENSICAL.exists(), reason="the tools of the site are not installed: make site")
def test_the_site_is_built_without_a_complaint():
    subprocess.run([sys.executable, "docs/site.py", "build/site/en"], cwd=ROOT, check=True)
    command = [ZENSICAL, "build", "--strict", "--config-file", "build/site/en/mkdocs.yml"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
