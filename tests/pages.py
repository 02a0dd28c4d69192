"""The pages of the documentation as tests see them: code blocks with their notes, tables, links, anchors.

A comment right before a block says how it is tested: ``<!-- block: NOTE; NOTE -->``, where a note is one of

- ``slow``: it trains something;
- ``skip, REASON``: it is not run;
- ``program``: ``tests/examples/test_examples.py`` runs it whole, with what a difference after it makes of it;
- ``after NAME``: it follows the preparation of that name in ``tests/docs/test_docs.py``;
- ``in order``: such blocks of a page run one after the other, with the names and the folder of those before;
- ``replace OLD with NEW``: a smaller budget;
- ``saved as FILE``: later blocks of the page find it under this name;
- ``needs MODULE``: the page is skipped without this package, which minding does not bring.
"""

import dataclasses
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHINESE = sorted([ROOT / "README.zh.md", *(ROOT / "docs" / "zh").rglob("*.md")])
"""Pages whose code and facts are compared with those of the English page (`tests/docs/test_docs_zh.py`)."""
_ALL = {*ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md", *(ROOT / "docs").rglob("*.md")}
PAGES = sorted(_ALL - {*CHINESE})
"""Pages in English, whose code is run."""
_FENCE = re.compile(r"(?:^<!-- block: (?P<notes>.*?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block; `code` has the replacements of its notes made."""

    page: Path
    line: int
    language: str
    code: str
    notes: tuple[str, ...]

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def slow(self):
        return "slow" in self.notes

    @property
    def in_order(self):
        return "in order" in self.notes

    def note(self, kind):
        """What follows the kind of a note, such as the name in ``after NAME``; None without such a note."""
        found = [note[len(kind) :].lstrip(", ") for note in self.notes if re.match(rf"{kind}(?:[ ,]|$)", note)]
        return found[0] if found else None


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def blocks(*languages, pages=PAGES):
    """All fenced blocks of the pages, or those of some languages."""
    found = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            if languages and match["language"] not in languages:
                continue
            notes = tuple(note.strip() for note in (match["notes"] or "").split(";") if note.strip())
            line = text.count("\n", 0, match.start("code"))
            found.append(Block(page, line, match["language"], _replaced(match["code"], notes), notes))
    return found


def _replaced(code, notes):
    for note in notes:
        if note.startswith("replace "):
            old, new = note.removeprefix("replace ").split(" with ")
            assert old in code, f"{note!r}: the block has no {old!r}"
            code = code.replace(old, new)
    return code


def prose(page):
    """The text of a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def table(page, first_column):
    """Rows of the tables whose first column has this title, as lists of cells."""
    rows, inside = [], False
    for line in prose(page).splitlines():
        if line.startswith(f"| {first_column} |"):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not re.match(r"\|[\s:-]*-[\s:-]*\|", line):
            rows.append([cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    assert rows, f"{name_of(page)} has no table whose first column is {first_column!r}"
    return rows


def code_words(text):
    """The inline code of a text, in order."""
    return re.findall(r"`([^`\n]+)`", text)


def links(page):
    """Targets of all links and pictures that lead to files or anchors, not to other hosts."""
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [target for target in targets if not target.startswith(("http://", "https://"))]


def anchors(page):
    """Anchors of the page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
