"""Prepares the pages for the site: ``make site``.

The pages are plain Markdown, to be read in the repository too, where links also lead to source files and to pages
outside of ``docs/``. The site has only what it holds: this copies all pages below one folder, gives each linked source
file a page of its own, and points the links there. `mkdocs.yml` lists the
pages.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "docs/algorithms/README.md": "algorithms/index.md",
    "benchmarks/README.md": "benchmarks.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
}
"""Pages that the site has at another place than below ``docs/``."""
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
_LANGUAGE = re.compile(r"^\[简体中文\]\([^)\n]+\)\n\n", re.MULTILINE)
_COMMENT = re.compile(r"^<!-- (?:block|generated|/generated|results|/results)\b.*?-->\n", re.DOTALL | re.MULTILINE)


def pages() -> dict[Path, Path]:
    """For each page of the site that is written by hand, from its place here to that in the site."""
    found = sorted(path for path in (ROOT / "docs").rglob("*.md") if "zh" not in path.relative_to(ROOT / "docs").parts)
    places = {path: path.relative_to(ROOT / "docs") for path in found}
    return {**places, **{ROOT / here: Path(there) for here, there in OUTSIDE.items()}}


def configuration(places: dict[Path, Path]) -> str:
    """What `mkdocs.yml` says, with a line for each page of a folder in place of ``FOLDER/*``."""

    def lines(match: re.Match[str]) -> str:
        indent, folder = match[1], match[2]
        found = {page: place for page, place in places.items() if place.parent.as_posix() == folder}
        titles = {_title(page): place for page, place in found.items() if place.stem != "index"}
        return "".join(f'{indent}- "{title}": {titles[title]}\n' for title in sorted(titles, key=str.lower))

    text = (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8")
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


def prepare(out: Path) -> list[Path]:
    """Writes the pages of the site below `out`, which it empties first.

    Returns:
      The pages and pictures, relative to `out`.
    Raises:
      ValueError: a link leads to a file that does not exist.
    """
    shutil.rmtree(out, ignore_errors=True)
    places = pages()
    sources: dict[Path, Path] = {}
    for page, place in places.items():
        text = _for_site(page, place, places, sources)
        _write(out / place, text)
    for path, place in sources.items():
        if path.suffix == ".py":
            title = path.relative_to(ROOT).as_posix()
            _write(out / place, f"# {title}\n\n```python\n{path.read_text(encoding='utf-8')}```\n")
        else:
            (out / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, out / place)
    for package, what in API.items():
        names = "".join(f"        - {name}\n" for name in public_names(package))
        listed = f"::: {package}\n    options:\n      members:\n{names}"
        _write(out / "api" / f"{package}.md", f"# {package}\n\nPublic names of `{package}`: {what}.\n\n{listed}")
    return sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file())


def _for_site(page: Path, place: Path, places: dict[Path, Path], sources: dict[Path, Path]) -> str:
    parts = _FENCE.split(_LANGUAGE.sub("", _COMMENT.sub("", page.read_text(encoding="utf-8"))))

    def link(match: re.Match[str]) -> str:
        begin, target, anchor, end = match[1], match[2], match[3] or "", match[4]
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        path = (page.parent / target).resolve()
        if path.is_dir():
            path = path / "README.md"
        if path not in places and path not in sources:
            if not path.is_file() or ROOT not in path.parents:
                raise ValueError(f"{page}: the link to {target!r} leads nowhere")
            if path.name == "README.zh.md" or ROOT / "docs" / "zh" in path.parents:
                return begin[1:-2]  # This site has no Chinese pages: the words stay.
            sources[path] = _place_of(path)
        there = places.get(path) or sources[path]
        return f"{begin}{_relative(there, place)}{anchor}{end}"

    texts = [part if part.startswith("```") else _LINK.sub(link, part) for part in parts]
    # Python-Markdown reads what is within HTML only where it is told to.
    return re.sub(r"<(table|tr|td)>", r'<\1 markdown="block">', "".join(texts))


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
    folder = Path(sys.argv[1])
    written = prepare(folder / "pages")
    (folder / "mkdocs.yml").write_text(configuration(pages()), encoding="utf-8")
    print(f"{sum(path.suffix == '.md' for path in written)} pages in {folder}")
