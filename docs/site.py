"""Prepares the pages for the site, in both languages: ``make site``.

The pages are plain Markdown, to be read in the repository too, where links also lead to source files and to pages
outside of ``docs/``. The site has only what it holds: this copies all pages of a language below one folder, gives each
linked source file a page of its own, and points the links there. `mkdocs.yml` and `mkdocs.zh.yml` list the pages. The
Chinese site lies below the English one, in ``zh/``. It has every page of the English site at the same place, in English
where it is not translated, so that its navigation and its search are whole.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIGURATIONS = {"en": "mkdocs.yml", "zh": "mkdocs.zh.yml"}
"""By language."""
ASSETS = ROOT / "docs" / "assets"
"""Style, script, logo, and KaTeX, which draws formulas in the browser without a network."""
UNTRANSLATED = "> {}目前只有英文版。"
"""Stands in the Chinese site below the title of an English page, or below its first paragraph, which is Chinese."""
WHEN = ROOT / "docs" / "zh" / "algorithms.json"
"""By algorithm, when to use it: the first paragraph of its page in the Chinese site."""
OUTSIDE = {
    "en": {
        "README.md": "index.md",
        "docs/README.md": "contents.md",
        "docs/algorithms/README.md": "algorithms/index.md",
        "benchmarks/README.md": "benchmarks.md",
        "CHANGELOG.md": "project/changelog.md",
        "CONTRIBUTING.md": "project/contributing.md",
        "SECURITY.md": "project/security.md",
    },
    "zh": {"README.zh.md": "index.md", "docs/zh/README.md": "contents.md"},
}
"""Pages that the site of a language has at another place than in the folder of its pages."""
API = {
    "minding": "an agent in a few lines",
    "minding.engine": "task, context, configuration, errors",
    "minding.middleware": "what a chain is made of",
    "minding.policies": "the algorithms",
    "minding.envs": "environments and their managers",
    "minding.configs": "presets and settings",
    "minding.training": "runs: training, evaluating, recording",
}
"""Packages whose public names have a page."""
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s#]*)(#[^)\s]*)?(\))")
_FENCE = re.compile(r"^(```.*?^```[ ]*$)", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"^<!-- (?:block|generated|/generated|results|/results)\b.*?-->\n", re.DOTALL | re.MULTILINE)


def pages(language: str) -> dict[Path, Path]:
    """For each page of the site of a language that is written by hand, from its place here to that in the site.

    In the Chinese site, a page has the place of its translation.
    """
    docs, chinese = ROOT / "docs", ROOT / "docs" / "zh"
    english = {path: path.relative_to(docs) for path in sorted(docs.rglob("*.md")) if chinese not in path.parents}
    english |= {ROOT / here: Path(there) for here, there in OUTSIDE["en"].items()}
    if language == "en":
        return english
    translated = {path: path.relative_to(chinese) for path in sorted(chinese.rglob("*.md"))}
    translated |= {ROOT / here: Path(there) for here, there in OUTSIDE["zh"].items()}
    return {**english, **translated}


def sources(language: str) -> dict[Path, Path]:
    """For each place in the site of a language, the page that is shown there: the translation if there is one."""
    return {place: page for page, place in pages(language).items()}


def configuration(language: str) -> str:
    """What the configuration of a language says, with a line for each page of a folder in place of ``FOLDER/*``."""
    places = sources(language)

    def title(page: Path) -> str:
        return _title(page) + " EN" * (language == "zh" and not _is_chinese(page))

    def lines(match: re.Match[str]) -> str:
        indent, folder = match[1], match[2]
        found = {page: place for place, page in places.items() if place.parent.as_posix() == folder}
        titles = {title(page): place for page, place in found.items() if place.stem != "index"}
        return "".join(f'{indent}- "{title}": {titles[title]}\n' for title in sorted(titles, key=str.lower))

    text = (ROOT / "docs" / CONFIGURATIONS[language]).read_text(encoding="utf-8").replace("VERSION", _version())
    return re.sub(r"^( +)- (\w+)/\*\n", lines, text, flags=re.MULTILINE)


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _version() -> str:
    tree = ast.parse((ROOT / "src" / "minding" / "__init__.py").read_text(encoding="utf-8"))
    named = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    return str(ast.literal_eval(named["__version__"]))


def public_names(package: str) -> list[str]:
    """What a package exports: its ``__all__``, or else the functions and classes that it defines."""
    tree = ast.parse((ROOT / "src" / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value), key=str.lower)
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [name for name in defined if not name.startswith("_")]


def prepare(out: Path, language: str) -> list[Path]:
    """Writes the pages of a language below `out`, which it empties first.

    Returns:
      The pages and pictures, relative to `out`.
    Raises:
      ValueError: a link leads to a file that does not exist.
    """
    shutil.rmtree(out, ignore_errors=True)
    site = _Site(language)
    for place, page in site.shown.items():
        # There is nothing beside the first page to navigate to.
        head = "---\nhide:\n  - navigation\n---\n\n" if place.name == "index.md" and place.parent == Path() else ""
        _write(out / place, head + site.converted(page))
    shutil.copytree(ASSETS, out / "assets")
    for path, place in site.sources.items():
        if path.suffix == ".py":
            title = path.relative_to(ROOT).as_posix()
            _write(out / place, f"# {title}\n\n```python\n{path.read_text(encoding='utf-8')}```\n")
        else:
            (out / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, out / place)
    for package, what in API.items() if language == "en" else ():
        names = "".join(f"        - {name}\n" for name in public_names(package))
        listed = f"::: {package}\n    options:\n      members:\n{names}"
        _write(out / "api" / f"{package}.md", f"# {package}\n\nPublic names of `{package}`: {what}.\n\n{listed}")
    return sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file())


class _Site:
    """The site of one language: the places of its pages, and of the files that they link."""

    def __init__(self, language: str) -> None:
        self.language = language
        self.places = pages(language)
        self.shown = sources(language)
        self.sources: dict[Path, Path] = {}
        self._other = pages("zh")

    def converted(self, page: Path) -> str:
        """The text of a page, with links that stay within the site."""
        source = _COMMENT.sub("", page.read_text(encoding="utf-8"))
        if self.language == "zh" and not _is_chinese(page):
            known = json.loads(WHEN.read_text(encoding="utf-8")) if page.parent.name == "algorithms" else {}
            title, _, rest = source.partition("\n\n")
            first = [known[page.stem], UNTRANSLATED.format("以下内容")] if page.stem in known else []
            source = "\n\n".join([title, *(first or [UNTRANSLATED.format("本页")]), rest])
        parts = _FENCE.split(source)

        def link(match: re.Match[str]) -> str:
            target = match[2]
            if not target or re.match(r"[a-z]+:", target):
                return match[0]
            path = (page.parent / target).resolve()
            path = path / "README.md" if path.is_dir() else path
            across = self._across(page, path)
            if across is not None:
                # MkDocs would look for a file of this site, and does not look at HTML.
                return f'<a href="{across}{match[3] or ""}">{match[1][1:-2]}</a>'
            return f"{match[1]}{self._target(page, path)}{self._anchor(path, match[3] or '')}{match[4]}"

        texts = [part if part.startswith("```") else _LINK.sub(link, part) for part in parts]
        # Python-Markdown reads what is within HTML only where it is told to.
        return re.sub(r"<(table|tr|td)>", r'<\1 markdown="block">', "".join(texts))

    def _target(self, page: Path, path: Path) -> str:
        """The file of this site to which a link of a page leads, from the page's own."""
        place = self.places[page]
        if path in self.places:
            return _relative(self.places[path], place)
        if not path.is_file() or ROOT not in path.parents:
            raise ValueError(f"{page}: a link leads to {path}, which does not exist")
        self.sources[path] = _place_of(path)
        return _relative(self.sources[path], place)

    def _anchor(self, path: Path, anchor: str) -> str:
        """The anchor of a page, or of its translation where that is shown: both have the same headings, in order."""
        shown = self.shown[self.places[path]] if path in self.places else path
        return anchor if shown == path or not anchor else f"#{_anchors(shown)[_anchors(path).index(anchor[1:])]}"

    def _across(self, page: Path, path: Path) -> str | None:
        """The address of a page of the other language, from this page; None for other files."""
        if self.language == "en":
            chinese = self._other.get(path) if _is_chinese(path) else None
            return chinese and _relative(Path("zh", chinese.with_suffix(".html")), self.places[page])
        # A Chinese page links its own English page to switch the language; all other links stay in the site.
        if _is_chinese(page) and not _is_chinese(path) and self.places.get(path) == self.places[page]:
            return _relative(Path("..", self.places[path].with_suffix(".html")), self.places[page])
        # Only the English site has a page for each source file that either links.
        if path.suffix == ".py" and path.is_file():
            return _relative(Path("..", _place_of(path).with_suffix(".html")), self.places[page])
        return None


def _anchors(page: Path) -> list[str]:
    """Anchors of the headings of a page, as code hosts and the builders of the site make them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def _is_chinese(page: Path) -> bool:
    return page.name.endswith(".zh.md") or ROOT / "docs" / "zh" in page.parents


def _place_of(path: Path) -> Path:
    """Pictures stay beside their pages; a source file becomes a page."""
    below = path.relative_to(ROOT)
    if path.suffix == ".py":
        return Path("source") / below.with_name(f"{below.name}.md")
    return below.relative_to("docs") if below.parts[0] == "docs" else Path("source") / below


def _relative(there: Path, place: Path) -> str:
    up = [".."] * len(place.parent.parts)
    return "/".join([*up, *there.parts])


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for each in CONFIGURATIONS:
        folder = Path(sys.argv[1]) / each
        written = prepare(folder / "pages", each)
        (folder / "mkdocs.yml").write_text(configuration(each), encoding="utf-8")
        print(f"{sum(path.suffix == '.md' for path in written)} pages in {folder}")
