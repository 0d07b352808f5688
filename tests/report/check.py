#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The page of `cowctl wear --html` in a headless Chromium: check.py COWCTL AXE.JS FOLDER-FOR-SCREENSHOTS [SAMPLE]...

Each sample in light and dark, on a phone and a desktop: nothing in the console, no request, nothing wider than the screen, no
finding of axe-core (WCAG 2.1 AA, contrast included); figures and tables against the JSON; charts drawn; the keyboard alone.
"""
import html.parser
import json
import os
import re
import subprocess
import sys
import time

from browser import Browser

os.environ["TZ"] = "UTC"
time.tzset()
here = os.path.dirname(os.path.abspath(__file__))
cowctl, axe, out, *chosen = sys.argv[1:]
CASES = {
    "plain": [],
    "urgent": ["health=urgent", "foreign=4096000", "log_units=16", "days=400"],
    "good": ["health=good", "units=300"],
    "young": ["days=3", "commits=5"],
    "empty": ["days=0", "commits=0", "units=1"],
    "hostile": ["name=hostile", "units=64"],
    "large": ["big=1", "log_units=8192", "days=400"],
}
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50,
         "s": 1, "min": 60, "h": 3600, "days": 86400, "years": 365.25 * 86400}
failed = []


def check(what, ok, detail=""):
    if not ok:
        failed.append(what)
        print(f"check-report: {what}: FAILED {detail}", file=sys.stderr)


def at(doc, path):
    for part in path.split("."):
        doc = doc[part]
    return doc


def says(text, value, path):
    """Does the rounded text tell this number?"""
    if path.endswith("unix_seconds"):
        return text == (time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(value)) if value else "never")
    if path == "ratios.absorption":
        return text == f"{value:.1f} times less"
    if path.endswith("_blocks"):
        value *= 4096
    m = re.fullmatch(r"([\d,]+(?:\.\d)?)(?: (\w+))?", text)
    if not m:
        return False
    number, unit = float(m[1].replace(",", "")), UNITS[m[2]] if m[2] else 1
    if not m[2]:
        return number == value
    return abs(number * unit - value) <= (0.051 if "." in m[1] else 0.51) * unit


class Tables(html.parser.HTMLParser):
    """Rows of the tables with an id, without a browser: as who has no script gets them."""

    def __init__(self, text):
        super().__init__()
        self.rows, self._id = {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self._id = dict(attrs).get("id")
            self.rows.setdefault(self._id, [])
        elif tag == "tr":
            self.rows[self._id].append([])
        elif tag in ("td", "th"):
            self.rows[self._id][-1].append("")

    def handle_endtag(self, tag):
        if tag in ("table", "tr", "tbody"):
            self._id = self._id if tag != "table" else None

    def handle_data(self, data):
        if self._id and self.rows[self._id] and self.rows[self._id][-1]:
            self.rows[self._id][-1][-1] += data.strip("\n")


def check_tables(name, page, doc):
    rows = Tables(page).rows
    days, commits = rows.get("days", [])[1:], rows.get("commits", [])[1:]
    check(f"{name}: a row for each day", len(days) == len(doc["history"]["days"]), len(days))
    for row, d in zip(days, reversed(doc["history"]["days"])):
        check(f"{name}: day", row[0] == time.strftime("%Y-%m-%d", time.gmtime(d["unix_day"] * 86400)), row)
        for k, field in enumerate(("absorbed_bytes", "written_bytes", "commits", "erase_block_visits"), 1):
            check(f"{name}: {field} of a day", says(row[k], d[field], field), row)
    check(f"{name}: a row for each commit", len(commits) == len(doc["history"]["commits"]), len(commits))
    for row, c in zip(commits, reversed(doc["history"]["commits"])):
        check(f"{name}: cause", row[2] == c["cause"], row)
        for k, field in ((0, "number"), (1, "unix_seconds"), (3, "absorbed_bytes"), (4, "written_bytes"), (6, "erase_block_visits")):
            check(f"{name}: {field} of a commit", says(row[k], c[field], field), row)
        check(f"{name}: seconds of a commit", row[5] == f"{c['writable_seconds']:.2f} s", row)
    hot, spread = rows.get("hottest", [])[1:], rows.get("spread", [])[1:]
    check(f"{name}: hottest", [r[1].replace(",", "") for r in hot] == [str(h["visits"]) for h in doc["erase_blocks"]["hottest"]])
    check(f"{name}: every unit is in the table", sum(int(r[1].replace(",", "")) for r in spread) == len(doc["erase_blocks"]["visits"]))
    factors = {r[3] for r in rows["factors"][1:]}
    check(f"{name}: factors have a basis", factors and factors <= {"measured", "bounded", "assumed", "model"}, factors)


def check_figures(name, b, doc):
    figures = b.run("[...document.querySelectorAll('data[data-json]')].map(e => [e.dataset.json, e.value, e.textContent])")
    check(f"{name}: figures", len(figures) > 30, len(figures))
    for path, value, text in figures:
        want = at(doc, path)
        check(f"{name}: {path}", float(value) == float(want) or abs(float(value) - want) < 1e-9 * abs(want), f"{value} is not {want}")
        check(f"{name}: text of {path}", says(text, want, path), f"{text} is not {want}")
    page = b.run("JSON.parse(document.getElementById('data').textContent)")
    if "page_units_per_cell" in page["erase_blocks"]:
        for key in ("visits", "written_blocks"):
            check(f"{name}: {key} are added up, not lost", sum(page["erase_blocks"][key]) == sum(doc["erase_blocks"][key]))
            page["erase_blocks"][key] = doc["erase_blocks"][key]
        del page["erase_blocks"]["page_units_per_cell"]
    check(f"{name}: the JSON in the page", page == doc)


def check_look(name, b, scheme, width):
    name = f"{name}, {scheme}, {width}"
    b.screenshot(os.path.join(out, name.replace(", ", "-") + ".png"))
    check(f"{name}: quiet", not b.trouble(), b.trouble())
    b.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    wide = b.run("document.documentElement.scrollWidth")
    check(f"{name}: fits", wide <= width, f"{wide} wide")
    with open(axe, encoding="utf-8") as f:
        b.run(f.read() + ";0")
    found = b.run("""axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}).then(r => ({
        bad: r.violations.map(v => v.id + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 120) + " " + n.failureSummary).join(" | ")),
        passed: r.passes.map(p => p.id)}))""")
    check(f"{name}: axe-core", not found["bad"], "\n  ".join(found["bad"]))
    check(f"{name}: axe-core looked at contrast", "color-contrast" in found["passed"], found["passed"])


def read(b, where):
    return b.run(f"document.querySelector({json.dumps(where)}).textContent")


def tab_to(b, where):
    for _ in range(60):
        b.key("Tab")
        if b.run(f"document.activeElement.matches({json.dumps(where)})"):
            return True
    return False


def check_keyboard(name, b, doc):
    last = doc["history"]["days"][-1]
    check(f"{name}: Tab reaches the history", tab_to(b, "#history .chart"))
    check(f"{name}: what has the focus is seen", b.run("getComputedStyle(document.activeElement).outlineStyle") == "solid")
    b.key("ArrowLeft")
    text = read(b, "#history .read")
    m = re.fullmatch(r"([\d-]+): programs wrote (.*), (.*) reached the card, (\d+) commits?\.", text)
    check(f"{name}: the arrow tells the last day", m and m[1] == time.strftime("%Y-%m-%d", time.gmtime(last["unix_day"] * 86400)) and
          says(m[2], last["absorbed_bytes"], "") and says(m[3], last["written_bytes"], "") and int(m[4]) == last["commits"], text)
    b.key("Home")
    check(f"{name}: Home tells another", read(b, "#history .read") != text)
    check(f"{name}: Tab reaches the scale", tab_to(b, "input[name=scale]"))
    b.key("ArrowRight")
    check(f"{name}: logarithmic by key", b.run("document.querySelector('input[value=log]').checked"))
    check(f"{name}: Tab reaches the heat map", tab_to(b, "#heat canvas"))
    hot = doc["erase_blocks"]["hottest"][0]
    b.key("Home")
    first = read(b, "#heat .read")
    want = f"{doc['erase_blocks']['visits'][0]:,} visit"
    check(f"{name}: the heat map by key", want in first, first)
    for _ in range(3):
        b.key("ArrowRight")
    check(f"{name}: the fourth place", f": {doc['erase_blocks']['visits'][3]:,} visit" in read(b, "#heat .read"), read(b, "#heat .read"))
    check(f"{name}: hottest", hot["visits"] == max(doc["erase_blocks"]["visits"]))
    check(f"{name}: Tab reaches the commits", tab_to(b, "#sizes .chart"))
    b.key("End")
    check(f"{name}: the last commit", read(b, "#sizes .read").startswith(f"Commit {doc['history']['commits'][-1]['number']:,}, "),
          read(b, "#sizes .read"))
    check(f"{name}: quiet after keys", not b.trouble(), b.trouble())


# How many pixels of the largest canvas in `where` have about this colour?
PAINTED = """(where, name) => {
    const canvas = document.querySelector(where), probe = document.createElement("canvas").getContext("2d");
    probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--" + name);
    probe.fillRect(0, 0, 1, 1);
    const want = probe.getImageData(0, 0, 1, 1).data, all = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let n = 0;
    for (let i = 0; i < all.length; i += 4)
        n += [0, 1, 2].every(k => Math.abs(all[i + k] - want[k]) < 8) && all[i + 3] > 200;
    return n;
}"""


def check_drawn(name, b):
    for where, color in (("#history canvas", "absorbed"), ("#history canvas", "written"), ("#sizes canvas", "written"),
                         ("#times canvas", "absorbed"), ("#heat canvas", "h0"), ("#heat canvas", "h3"), ("#heat canvas", "h6")):
        if name.startswith("large") and color in ("h0", "h3"):
            continue  # all counters at their end
        n = b.run(f"({PAINTED})({json.dumps(where)}, {json.dumps(color)})")
        check(f"{name}: {where} has {color}", n > 20, n)


def one(b, name, args):
    text = subprocess.run([os.path.join(here, "sample.py"), *args], check=True, capture_output=True).stdout
    doc = json.loads(text)
    path = os.path.join(out, name + ".html")
    subprocess.run([cowctl, "wear", "--from", "-", "--html", path], input=text, check=True)
    with open(path, encoding="utf-8") as f:
        page = f.read()
    check(f"{name}: at most 400 KB", os.path.getsize(path) <= 400000, os.path.getsize(path))
    check_tables(name, page, doc)
    for scheme in ("light", "dark"):
        for width in (360, 1200) if name != "plain" else (320, 360, 768, 1200, 1920):
            b.open(path, width=width, scheme=scheme)
            check_look(name, b, scheme, width)
            if name not in ("young", "empty"):
                check_drawn(f"{name}, {scheme}, {width}", b)
    b.open(path)
    check_figures(name, b, doc)
    if name in ("plain", "urgent"):
        b.open(path)
        check_keyboard(name, b, doc)
    if name == "young":
        check("young: not enough data", "not enough data" in b.run("document.querySelector('.verdict').innerText") and
              not b.run("document.querySelectorAll('.track').length"))
    if name == "hostile":
        check("hostile: as text", doc["device"] in b.run("document.querySelector('.who').textContent"))
        check("hostile: no element of it", b.run("document.images.length") == 0 and b.run("document.scripts.length") == 3)
    check(f"{name}: no dialog", not any(e["method"] == "Page.javascriptDialogOpening" for e in b.events))
    b.open(path, scripts=False)
    check(f"{name}: tables are open without a script", page.count("<details id=") == 2 == page.count(" open><summary>"))
    b.screenshot(os.path.join(out, name + "-noscript.png"))
    # the colours follow the system while the page is open
    if name == "plain":
        b.open(path)
        b.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        b.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
        check_drawn("plain, from light to dark", b)


os.makedirs(out, exist_ok=True)
browser = Browser(os.environ.get("CHROMIUM", "chromium"))
try:
    for case in chosen or CASES:
        one(browser, case, CASES[case])
finally:
    browser.close()
print(f"check-report: {len(chosen or CASES)} pages, " + (f"{len(failed)} FAILED" if failed else "all well") + f"; screenshots in {out}")
sys.exit(bool(failed))
