"""The site: what `make site` makes of the pages."""

import importlib
import os
import re
import runpy
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SITE = runpy.run_path(str(ROOT / "docs" / "site.py"))
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
ACROSS = re.compile(r'<a href="([^"#]*)(?:#[^"]*)?">')


@pytest.fixture(scope="module", params=SITE["CONFIGURATIONS"])
def prepared(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("pages")
    return request.param, out, SITE["prepare"](out, request.param)


def listed(nav):
    for entry in nav:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        if isinstance(value, str):
            yield value
        else:
            yield from listed(value)


def test_every_page_has_its_place_in_the_navigation(prepared):
    language, _, written = prepared
    # The settings before it may name functions, which only the builder of the site looks up.
    nav = list(listed(yaml.safe_load(SITE["configuration"](language).partition("nav:\n")[2])))
    by_hand = [place.as_posix() for place in SITE["sources"](language)]
    assert len(by_hand) > 90
    reference = [f"api/{package}.md" for package in SITE["API"]] if language == "en" else []
    assert sorted(nav) == sorted([*by_hand, *reference])
    assert {Path(page) for page in nav} <= set(written)


def test_the_chinese_navigation_marks_pages_in_english():
    nav = yaml.safe_load(SITE["configuration"]("zh").partition("nav:\n")[2])
    chinese = {place.as_posix() for place, page in SITE["sources"]("zh").items() if SITE["_is_chinese"](page)}
    check_marks(nav, chinese, within="")


def check_marks(nav, chinese, within):
    for entry in (entry for entry in nav if isinstance(entry, dict)):
        ((name, found),) = entry.items()
        if isinstance(found, list):
            check_marks(found, chinese, name)
        elif within:
            assert (found in chinese) != (name.endswith(" EN") or within.endswith(" EN")), name


def test_both_sites_have_the_same_pages_at_the_same_places():
    assert {*SITE["sources"]("en")} == {*SITE["sources"]("zh")}


def test_no_link_leaves_the_site(prepared):
    language, out, written = prepared
    other = "zh" if language == "en" else "en"
    theirs = {place.with_suffix(".html") for place in SITE["pages"](other).values()}
    found = {"page": 0, "across": 0}
    for page in written:
        if page.suffix != ".md":
            continue
        text = re.sub(r"^```.*?^```", "", (out / page).read_text(), flags=re.DOTALL | re.MULTILINE)
        for target, _ in LINK.findall(text):
            if re.match(r"[a-z]+:", target):
                continue
            path = (out / page).parent / target
            found["page"] += 1
            assert path.resolve().is_relative_to(out.resolve()), f"{page}: {target}"
            assert path.is_file(), f"{page}: {target}"
        for target in ACROSS.findall(text):
            # Within the folder of the whole site.
            here = Path("site", "zh" if language == "zh" else "", page)
            there = Path(os.path.normpath(here.parent / target)).relative_to("site/zh" if language == "en" else "site")
            assert there in theirs or there.parts[0] == "source", f"{page}: {target}"
            found["across"] += 1
    assert found["page"] > 700
    assert found["across"] >= 2


@pytest.mark.parametrize("package", SITE["API"])
def test_the_reference_has_the_public_names(package):
    module = importlib.import_module(package)
    names = SITE["public_names"](package)
    assert names
    assert all(getattr(module, name, None) is not None for name in names)
