"""The site as a reader sees it: all links, and each kind of page in Chromium, at two widths, light and dark."""

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parents[2]
ZENSICAL = ROOT / "build" / "site-env" / "bin" / "zensical"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (1280, 390)
SCHEMES = ("default", "slate")
# A page of each kind: SITE_PAGES=all opens every page of both languages, which takes minutes.
KINDS = {
    *("index", "contents", "tutorial", "howto/images", "algorithms/index", "algorithms/coma", "algorithms/ppo"),
    *("configuration", "results/mujoco", "results/presets", "reference/context", "commands", "api/minding.engine"),
}
# Runs in every page before anything else: what goes wrong is told to the page that holds the frame.
WATCH = """<script>
(function () {
  var tell = function (what) { parent.problems.push(location.pathname + ": " + what); };
  var failed = function (e) { tell(e.message || "cannot load " + (e.target.src || e.target.href)); };
  window.addEventListener("error", failed, true);
  window.addEventListener("unhandledrejection", function (e) { tell(e.reason); });
  console.error = function () { tell([].join.call(arguments, " ")); };
})();
</script>"""
# Opens one page after the other in a frame of each width, whose media queries see that width, and reports.
CHECK = """<!doctype html><body><script>
var problems = [], opened = 0, pages = %s, widths = %s, schemes = %s;
function open(page, width, scheme) {
  return new Promise(function (done) {
    var light = scheme === "default";
    var palette = {index: light ? 0 : 1, color: {media: "", scheme: scheme, primary: "indigo"}};
    ["/", "/zh/"].forEach(function (root) { localStorage.setItem(root + ".__palette", JSON.stringify(palette)); });
    var frame = document.createElement("iframe");
    frame.style.cssText = "border:0;height:900px;width:" + width + "px";
    frame.onload = function () {
      setTimeout(function () {
        var root = frame.contentDocument.documentElement;
        var shown = frame.contentDocument.body.dataset.mdColorScheme;
        if (shown !== scheme) problems.push(page + ": " + shown + " in place of " + scheme);
        if (root.scrollWidth > width) problems.push(page + " at " + width + ": scrolls to " + root.scrollWidth);
        if (frame.contentDocument.querySelector(".katex-error")) problems.push(page + ": a formula that is not drawn");
        frame.contentDocument.querySelectorAll(".formula").forEach(function (each) {
          if (!each.querySelector(".katex")) problems.push(page + ": a formula in its source");
        });
        opened += 1;
        frame.remove();
        done();
      }, 60);
    };
    frame.src = page;
    document.body.appendChild(frame);
  });
}
(async function () {
  for (var scheme of schemes) for (var width of widths) for (var page of pages) await open(page, width, scheme);
  await fetch("/__result", {method: "POST", body: JSON.stringify({problems: problems, opened: opened})});
})();
</script>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the whole site, built from the pages as they are."""
    if not ZENSICAL.exists():
        pytest.skip("the tools of the site are not installed: make site")
    out = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "docs/site.py", str(out)], cwd=ROOT, check=True)
    (out / "src").symlink_to(ROOT / "src")
    for language in ("en", "zh"):
        configuration = out / language / "mkdocs.yml"
        text = configuration.read_text(encoding="utf-8").replace("../../../src", str(ROOT / "src"))
        configuration.write_text(text, encoding="utf-8")
        subprocess.run([ZENSICAL, "build", "--strict", "--config-file", configuration], check=True, timeout=300)
    (out / "zh" / "html").rename(out / "en" / "html" / "zh")
    return out / "en" / "html"


class _Page(HTMLParser):
    """Anchors, and what a page links or shows."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.targets = set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        # The logo and the switch of languages are made by the theme, and are links as well.
        self.targets += [found[name] for name in ("href", "src") if found.get(name)]


@pytest.mark.slow
def test_every_link_of_the_site_leads_somewhere(site):
    pages = {path: _Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 250
    broken = []
    for path, page in pages.items():
        for target in page.targets:
            address, anchor = urldefrag(unquote(target))
            if "://" in address or address.startswith(("data:", "mailto:", "//")) or path.name == "404.html":
                continue
            there = Path(os.path.normpath(path.parent / address)) if address else path
            there = there / "index.html" if there.is_dir() else there
            if not there.is_file() or (anchor and there in pages and anchor not in pages[there].anchors):
                broken.append(f"{path.relative_to(site)}: {target}")
    assert broken == []


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH: the pages are not opened in a browser")
def test_pages_fit_their_width_and_report_no_error_in_a_browser(site, tmp_path):
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html")
    if os.environ.get("SITE_PAGES") != "all":
        pages = [page for page in pages if page.removeprefix("zh/").removesuffix(".html") in KINDS]
        assert len(pages) == 2 * len(KINDS) - 1, "the reference of names is in English alone"
    check = CHECK % tuple(json.dumps(each) for each in ([f"/{page}" for page in pages], WIDTHS, SCHEMES))
    report, arrived = {}, threading.Event()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            path = Path(self.translate_path(self.path))
            if self.path == "/__check.html":
                self._send(check)
            elif path.suffix == ".html" and path.is_file():
                self._send(path.read_text(encoding="utf-8").replace("<head>", f"<head>{WATCH}", 1))
            else:
                super().do_GET()

        def do_POST(self):
            report.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._send("")
            arrived.set()

        def _send(self, text):
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    handler = functools.partial(Handler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/__check.html"
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"]
        browser = subprocess.Popen(
            [CHROMIUM, *options, f"--user-data-dir={tmp_path}", address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert arrived.wait(3000), "the browser did not report"
        finally:
            browser.terminate()
            browser.wait(30)
            server.shutdown()
    assert sorted(set(report["problems"])) == []
    assert report["opened"] == len(pages) * len(WIDTHS) * len(SCHEMES)
