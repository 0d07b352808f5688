#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The site that build.py has made: check.py SITE FOLDER-FOR-SCREENSHOTS, from the root of the repository.

Every link leads to a file and an anchor that are there; nothing is loaded from elsewhere; Markdown was understood; in a headless Chromium each page
fits a screen of 390 pixels, and the search finds what it is asked for. Links to other hosts are not followed.
"""
import functools
import glob
import html.parser
import http.server
import os
import re
import sys
import threading
import urllib.parse

sys.path.insert(0, "tests/report")
from browser import Browser  # noqa: E402

site, shots = os.path.abspath(sys.argv[1]), sys.argv[2]
failed = 0
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "audio": "src", "video": "src", "embed": "src", "object": "data"}


def fail(page, what):
    global failed
    failed += 1
    print(f"check-site: {os.path.relpath(page, site)}: {what}", file=sys.stderr)


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads, self.text, self.stack = set(), [], [], [], []
        with open(path, encoding="utf-8") as f:
            self.feed(f.read())

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.ids |= {a[k] for k in ("id", "name") if a.get(k)}
        if tag == "a" and a.get("href"):
            self.links.append(a["href"])
        url = a.get(LOADED.get(tag)) or (a.get("href") if tag == "link" else None)
        if url:
            self.loads.append(url)
        if tag in ("pre", "code", "script", "style"):
            self.stack.append(tag)

    def handle_endtag(self, tag):
        if self.stack and self.stack[-1] == tag:
            self.stack.pop()

    def handle_data(self, data):
        if not self.stack:
            self.text.append(data)


pages = {p: Page(p) for p in sorted(glob.glob(site + "/**/*.html", recursive=True))}


def remote(url):
    return url.startswith("//") or re.match(r"[a-z][a-z0-9+.-]*:", url)


def target(page, url):
    """File and anchor; the page that is shown for a missing one has absolute links."""
    path, _, anchor = url.partition("#")
    path = urllib.parse.unquote(path.partition("?")[0])
    base = site if path.startswith("/") else os.path.dirname(page)
    return os.path.normpath(os.path.join(base, path.lstrip("/"))) if path else page, urllib.parse.unquote(anchor)


links = 0
for path, page in pages.items():
    for url in page.loads:
        if remote(url):
            fail(path, f"loads {url}")
    for url in [u for u in page.links + page.loads if not remote(u)]:
        links += 1
        file, anchor = target(path, url)
        if not os.path.isfile(file) and not os.path.isfile(file + "/index.html"):
            fail(path, f"links to {url}, which is not there")
        elif anchor and file in pages and anchor not in pages[file].ids:
            fail(path, f"links to {url}: no such anchor")
    for line in "".join(page.text).split("\n"):
        if re.match(r"\s*([*] |\d+\. |\|.*\|$|```|#+ )", line) or "](" in line:
            fail(path, f"Markdown that was not understood: {line.strip()[:70]}")
for path in glob.glob(site + "/**/*.css", recursive=True):
    with open(path, encoding="utf-8") as f:
        for url in re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", f.read()):
            url = url[0] or url[1]
            if remote(url) and not url.startswith("data:"):
                fail(path, f"loads {url}")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def search(b, address, word):
    """As a reader does it: a page with ?q=, which the form leads to."""
    b.call("Page.navigate", url=f"{address}index.html?q={word}")
    found = b.run("""new Promise(done => { let n = 0; const look = () => {
        const links = [...document.querySelectorAll('#mkdocs-search-results a')].map(a => a.getAttribute('href'));
        links.length || ++n > 200 ? done(links) : setTimeout(look, 100); }; look(); })""")
    if not found:
        fail(site + "/index.html", f"the search for {word} finds nothing")
    for url in found:
        if not os.path.isfile(target(site + "/index.html", url.replace(address, "/"))[0]):
            fail(site + "/index.html", f"the search for {word} leads to {url}")
    for e in b.events:
        url = e.get("params", {}).get("request", {}).get("url", "")
        if e.get("method") == "Network.requestWillBeSent" and not url.startswith((address, "file:", "blob:", "data:", "about:")):
            fail(site + "/index.html", f"requests {url}")
    return found


os.makedirs(shots, exist_ok=True)
b = Browser()
try:
    for path in pages:
        b.open(path, width=390, height=844)
        wide = b.run("document.documentElement.scrollWidth")
        if wide > 390:
            fail(path, f"is {wide} pixels wide on a screen of 390: " + b.run("""[...document.querySelectorAll('[role=main] *')]
                .filter(e => e.getBoundingClientRect().right > 391 && !e.closest('pre, table')).slice(0, 3)
                .map(e => e.outerHTML.slice(0, 90)).join(' | ')"""))
        if os.path.basename(path) in ("index.html", "cowfs-setup.7.html"):
            b.screenshot(os.path.join(shots, os.path.basename(path)[:-5] + ".png"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for word in ("superblock", "trial", "factory-reset"):
        b.events.clear()
        search(b, f"http://127.0.0.1:{server.server_port}/", word)
finally:
    b.close()
print(f"check-site: {len(pages)} pages, {links} links, {failed} failed")
sys.exit(failed != 0)
