#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The documents as a web site: build.py OUT, from the root of the repository.

mkdocs renders the Markdown files where they lie, so their relative links stay as they are; mandoc renders the manuals. What is rendered
lies in OUT-source meanwhile. Nothing of it depends on the time or the place. The check is check.py.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys

out = os.path.abspath(sys.argv[1])
source = out + "-source"
MANUALS = [os.path.basename(m) for m in sorted(glob.glob("docs/*.[1-8]"))]
NAME = "|".join(re.escape(m.rsplit(".", 1)[0]) for m in MANUALS)
ENTRY = re.compile(r"([*-]|\d+\.) ")
NAV = [
    ("Overview", ["README.md"]),
    ("Use", ["docs/USING.md", "docs/RECIPES.md", "docs/IMAGE.md", "docs/BOOT.md", "docs/WEAR.md", "docs/FLEET.md", "docs/PACKAGING.md", "SECURITY.md", "CHANGES.md"]),
    ("Manuals", [f"docs/{m}.md" for m in MANUALS]),
    ("Design", ["docs/DESIGN.md", "docs/FORMAT.md", *sorted(glob.glob("docs/design/*.md"))]),
    ("Develop", ["CONTRIBUTING.md", "docs/HACKING.md", "docs/TESTING.md", "docs/BENCHMARKS.md", "lab/sim/measured/README.md",
                 *sorted(glob.glob("docs/bench-commit/*.md"))]),
]
STYLE = """
.container { max-width: 72rem; }
[role=main] table, [role=main] pre { display: block; overflow-x: auto; max-width: 100%; }
[role=main] { overflow-wrap: break-word; }
[role=main] :not(pre) > code { white-space: normal; }
[role=main] img { max-width: 100%; height: auto; }
.col-md-9, .col-md-3 { min-width: 0; }
[role=main] dd { margin-left: 1.5rem; }
h1, h2, h3 { overflow-wrap: anywhere; }
"""


def put(name, text):
    path = os.path.join(source, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def manual(name):
    """mandoc's HTML in Markdown: its headings are Markdown's, so that menu and search know them."""
    html = subprocess.run(["mandoc", "-T", "html", "-O", "fragment,man=%N.%S.html", "docs/" + name], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    html = re.search(r'<div class="manual-text">(.*)</div>\s*<table class="foot">', html, re.S)[1]
    html = re.sub(r"</?section[^>]*>\n?", "", html)
    # other manuals are nowhere here
    html = re.sub(r'<a class="Xr" href="([^"]*)\.html">([^<]*)</a>', lambda m: m[0] if m[1] in MANUALS else m[2], html)
    parts = re.split(r'<h([12]) class="S[hs]" id="([^"]*)"><a[^>]*>(.*?)</a></h[12]>', html, flags=re.S)
    text = f"# {name[:-2]}({name[-1]})\n"
    for level, anchor, title, body in zip(*[iter(parts[1:])] * 4):
        title = re.sub(r"\s+", " ", re.sub("<[^>]*>", "", title))
        text += f"\n{'#' * (int(level) + 1)} {title} {{#{anchor}}}\n\n<div>\n{body.strip()}\n</div>\n"
    return text


def document(name):
    with open(name, encoding="utf-8") as f:
        text = f.read()
    here = os.path.dirname(name)

    def to(path):
        return os.path.relpath(path, here or ".")
    # a manual, and a folder, by the page that shows it
    text = re.sub(r"\]\(((?:[\w./-]*/)?[\w.-]+\.[1-8])\)", r"](\1.md)", text)
    text = re.sub(r"\]\((?![a-z]+:)([^)#]*)\)", lambda m: f"]({m[1].rstrip('/')}/README.md)" if os.path.isdir(os.path.join(here, m[1])) else m[0], text)
    # mkdocs wants a blank line before a list, and four spaces in front of what belongs to an entry
    lines, fenced, block = [], False, ""
    for line in text.split("\n"):
        fenced ^= line.startswith("```")
        if not fenced:
            line = re.sub(r"^ {2,3}(?=\S)", "    ", line)
            if ENTRY.match(line) and block and not ENTRY.match(block):
                lines.append("")
                block = ""
            line = re.sub(rf"(?<!\[)`({NAME})\(([1-8])\)`(?!\])", lambda m: f"[`{m[1]}({m[2]})`]({to(f'docs/{m[1]}.{m[2]}.md')})", line)
        block = (block or line) if line else ""
        lines.append(line)
    return "\n".join(lines)


def title(name):
    """Of a page in the menu."""
    base = os.path.basename(name)[:-3]
    with open(os.path.join(source, name), encoding="utf-8") as f:
        return base if base.isupper() and base != "README" else re.search(r"^# (.*)", f.read(), re.M)[1]


shutil.rmtree(source, ignore_errors=True)
shutil.rmtree(out, ignore_errors=True)
for p in (p for _, pages in NAV for p in pages):
    name = os.path.basename(p)[:-3]
    put(p, manual(name) if name in MANUALS else document(p))
os.makedirs(os.path.join(source, "docs/pictures"))
for f in glob.glob("docs/pictures/*.[sp][vn]g") + glob.glob("docs/bench-commit/*.[sc][vs][gv]"):
    shutil.copy(f, os.path.join(source, f))
put("site.css", STYLE)
nav = [{group: [{title(p): p} for p in pages] if len(pages) > 1 else pages[0]} for group, pages in NAV]
config = {
    "site_name": "cowfs", "docs_dir": source, "site_dir": out, "use_directory_urls": False, "nav": nav, "extra_css": ["site.css"],
    "theme": {"name": "mkdocs", "highlightjs": False, "navigation_depth": 3}, "plugins": ["search"],
    "markdown_extensions": ["sane_lists", "attr_list", {"toc": {"permalink": False}}], "strict": True,
}
with open(source + ".yml", "w", encoding="utf-8") as f:
    json.dump(config, f, indent=1)
subprocess.run(["mkdocs", "--quiet", "build", "--clean", "--config-file", source + ".yml"], check=True,
               env={**os.environ, "SOURCE_DATE_EPOCH": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"})
