"""Makes the pictures of the tutorial with the code of its page: ``python docs/pictures.py`` (a minute)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PICTURES = {
    "tutorial_curve.png": "tutorial_curve.png",
    "pole/episode.gif": "tutorial_pole.gif",
    "runs/pole_async/trace.png": "tutorial_trace.png",
}
"""What the code of the page writes, and what the picture is called in docs/images."""
_BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def main() -> None:
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    os.environ["MPLBACKEND"] = "agg"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        names = {"__name__": "tutorial"}
        for language, code in _BLOCK.findall(page):
            if language == "bash":
                code = code.replace("minding ", f"{sys.executable} -m minding ")
                subprocess.run(["bash", "-ec", code], check=True)
            else:
                exec(code, names)  # noqa: S102  # this project's own page
        for made, picture in PICTURES.items():
            shutil.copyfile(made, DOCS / "images" / picture)
        os.chdir(DOCS)


if __name__ == "__main__":
    main()
