"""`minding docs`: the pages of the documentation, in the terminal."""

import re
import sys
from pathlib import Path

import click

import minding
from minding.cli.common import bad_input, command, echo

PAGES = Path(minding.__file__).parent / "docs"
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


def pages() -> dict[str, Path]:
    """The pages by topic: the path below the folder of the pages, without extension, such as ``howto/video``."""
    found = (path.relative_to(PAGES) for path in sorted(PAGES.rglob("*.md")))
    return {path.with_suffix("").as_posix(): PAGES / path for path in found}


@command("docs", examples=("docs", "docs tutorial", "docs ppo"))
@click.argument("topic", required=False)
def docs(topic: str | None) -> None:
    """Print a page of the documentation.

    TOPIC is the name of a page; a page of a folder may be named without the folder, such as ppo for algorithms/ppo.
    Without TOPIC, the command prints all names. In a pipe it prints the page as it is, in Markdown.
    """
    with bad_input():
        from minding.engine.errors import ConfigError, nearest

        known = pages()
        if topic is None:
            for name, path in known.items():
                if not name.startswith("zh/"):
                    echo(f"{name:<34}{_title(path)}")
            echo("\nPages in Chinese have the prefix zh/, such as zh/tutorial.")
            return
        name = topic.removeprefix("docs/").removesuffix(".md")
        short = {each.rpartition("/")[2]: each for each in reversed(known) if not each.startswith("zh/")}
        page = known.get(name) or known.get(short.get(name, ""))
        if page is None:
            raise ConfigError(f"no page {topic!r}{nearest(name, [*known, *short])}; `minding docs` lists all pages")
    text = _COMMENT.sub("", page.read_text(encoding="utf-8"))
    if not sys.stdout.isatty():
        echo(text, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return next((line.removeprefix("# ").strip() for line in file if line.startswith("# ")), "")
