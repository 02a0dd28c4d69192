"""Prepares the pages for the site, in both languages: ``make site``.

The pages are plain Markdown, to be read in the repository too, where links also lead to source files and to pages
outside of ``docs/``. The site has only what it holds: this copies all pages of a language below one folder, gives each
linked source file a page of its own, and points the links there. `mkdocs.yml` and `mkdocs.zh.yml` list the pages. The
Chinese site lies below the English one, in ``zh/``, and its links lead there where there is no Chinese page.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIGURATIONS = {"en": "mkdocs.yml", "zh": "mkdocs.zh.yml"}
"""By language."""
STYLE = "site.css"
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
    """For each page of a language that is written by hand, from its place here to that in the site."""
    docs, chinese = ROOT / "docs", ROOT / "docs" / "zh"
    folder = chinese if language == "zh" else docs
    found = sorted(path for path in folder.rglob("*.md") if language == "zh" or chinese not in path.parents)
    places = {path: path.relative_to(folder) for path in found}
    return {**places, **{ROOT / here: Path(there) for here, there in OUTSIDE[language].items()}}


def configuration(language: str) -> str:
    """What the configuration of a language says, with a line for each page of a folder in place of ``FOLDER/*``."""
    places = pages(language)

    def lines(match: re.Match[str]) -> str:
        indent, folder = match[1], match[2]
        found = {page: place for page, place in places.items() if place.parent.as_posix() == folder}
        titles = {_title(page): place for page, place in found.items() if place.stem != "index"}
        return "".join(f'{indent}- "{title}": {titles[title]}\n' for title in sorted(titles, key=str.lower))

    text = (ROOT / "docs" / CONFIGURATIONS[language]).read_text(encoding="utf-8")
    return re.sub(r"^( +)- (\w+)/\*\n", lines, text, flags=re.MULTILINE)


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


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
    for page, place in site.places.items():
        # There is nothing beside the first page to navigate to.
        head = "---\nhide:\n  - navigation\n---\n\n" if place.name == "index.md" and place.parent == Path() else ""
        _write(out / place, head + site.converted(page))
    shutil.copyfile(ROOT / "docs" / STYLE, out / STYLE)
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
        self.sources: dict[Path, Path] = {}
        self._other = pages("en" if language == "zh" else "zh")

    def converted(self, page: Path) -> str:
        """The text of a page, with links that stay within the site."""
        parts = _FENCE.split(_COMMENT.sub("", page.read_text(encoding="utf-8")))

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
            return f"{match[1]}{self._target(page, path)}{match[3] or ''}{match[4]}"

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

    def _across(self, page: Path, path: Path) -> str | None:
        """The address of a page of the other language, from this page; None for other files."""
        # The English site has a page for each source file that either links.
        of_sources = self.language == "zh" and path.suffix == ".py" and path.is_file()
        if path in self.places or not (path in self._other or of_sources):
            return None
        there = (self._other.get(path) or _place_of(path)).with_suffix(".html")
        return _relative(Path("..", there) if self.language == "zh" else Path("zh", there), self.places[page])


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
