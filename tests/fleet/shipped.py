#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The rules and the dashboard of packaging/prometheus against metrics that cowctl wear --prometheus wrote.

shipped.py PROMTOOL METRICS   each name, label and value that they ask for is in METRICS, promtool takes each expression, and the
dashboard is what Grafana imports: panels with numbers of their own that do not overlap, one data source, which is a variable, and
nothing of the machine that it was made on. Says what is wrong and ends with 1.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

SHIPPED = os.path.join(os.path.dirname(__file__), "../../packaging/prometheus")
# labels of the scrape, and metrics of others
SCRAPED = {"instance", "job"}
OTHERS = {"node_textfile_mtime_seconds", "node_textfile_scrape_error", "ALERTS"}
KEYS = {"id": None, "schemaVersion": 38, "editable": True, "version": 1}


def metrics(path):
    """{name: {label: values}} of each family; a family without a sample has no labels."""
    found = {}
    for line in open(path):
        if line.startswith("# TYPE "):
            found[line.split()[2]] = {}
        elif line[0] != "#":
            name = re.match(r"\w+", line).group()
            for label, value in re.findall(r'(\w+)="([^"]*)"', line):
                found[name].setdefault(label, set()).add(value)
    return found


def rule_exprs():
    text = open(f"{SHIPPED}/cowfs.rules.yml").read()
    return re.findall(r"^ +expr: (.*)$", text, re.M)


def concrete(expr):
    """As Grafana sends it."""
    return expr.replace("$__rate_interval", "1d").replace("$__range", "7d").replace("$instance", ".*").replace("$volume", ".*")


def wrong_names(expr, have):
    for name, _, selector in re.findall(r"\b((?:cowfs|node)_\w+|ALERTS)\b(\{([^}]*)\})?", expr):
        if name in OTHERS:
            continue
        if name not in have:
            yield f"no metric {name}: {expr}"
            continue
        for label, how, value in re.findall(r'(\w+)(=~|!=|!~|=)"([^"]*)"', selector):
            if label in SCRAPED or not have[name] or "$" in value or value == ".*":
                continue
            if label not in have[name]:
                yield f"{name} has no label {label}: {expr}"
            elif how == "=" and value not in have[name][label]:
                yield f"{name} is never of {label} {value}: {expr}"
        for label in re.findall(r"\w+", " ".join(re.findall(r"by \((.*?)\)", expr))):
            if label not in SCRAPED and have[name] and label not in have[name]:
                yield f"{name} has no label {label}: {expr}"


def promtool_takes(promtool, exprs):
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as f:
        rules = [{"record": f"x{i}", "expr": e} for i, e in enumerate(exprs)]
        json.dump({"groups": [{"name": "all", "rules": rules}]}, f)  # YAML, too
        f.flush()
        r = subprocess.run([promtool, "check", "rules", f.name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return [] if r.returncode == 0 else [r.stdout]


def dashboard():
    with open(f"{SHIPPED}/cowfs-dashboard.json") as f:
        return json.load(f)


def panel_exprs(board):
    return [(p["title"], t["expr"]) for p in board["panels"] for t in p["targets"]]


def variable_exprs(board):
    return [re.match(r"label_values\((.*), \w+\)$", v["query"]["query"]).group(1) for v in board["templating"]["list"] if v["type"] == "query"]


def sources(node):
    if isinstance(node, dict) and "datasource" in node:
        yield node["datasource"]
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else []:
        yield from sources(child)


def wrong_board(board):
    text = json.dumps(board)
    for key, value in KEYS.items():
        if board.get(key, "missing") != value:
            yield f"{key} is not {value}"
    for what in ("127.0.0.1", "localhost", "http://", "__inputs", '"current": {"'):
        if what in text:
            yield f"of some machine: {what}"
    if board["templating"]["list"][0] != {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}:
        yield "the first variable is not the data source"
    for source in sources(board):
        if source != {"type": "prometheus", "uid": "${datasource}"}:
            yield f"another data source: {source}"
    ids = [p["id"] for p in board["panels"]]
    if sorted(ids) != list(range(1, len(ids) + 1)):
        yield f"numbers of panels: {ids}"
    cells = set()
    for p in board["panels"]:
        at = p["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        if at["x"] + at["w"] > 24 or mine & cells:
            yield f"{p['title']} does not fit"
        cells |= mine
        if p["type"] not in ("stat", "table", "timeseries") or not p["targets"]:
            yield f"{p['title']} shows nothing"
        if len({t["refId"] for t in p["targets"]}) != len(p["targets"]):
            yield f"{p['title']}: two targets of one name"


def main(promtool, path):
    have, board = metrics(path), dashboard()
    exprs = rule_exprs() + [e for _, e in panel_exprs(board)] + variable_exprs(board)
    wrong = [w for e in exprs for w in wrong_names(e, have)]
    wrong += promtool_takes(promtool, [concrete(e) for e in exprs])
    wrong += list(wrong_board(board))
    for w in wrong:
        print(w, file=sys.stderr)
    print(f"{len(rule_exprs())} rules, {len(board['panels'])} panels, {len(exprs)} expressions: {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
