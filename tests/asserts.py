#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Asserts of bats that cannot fail: asserts.py FILE...

bash ends a test by `set -e` at a command that fails, but not at `! COMMAND`, not at a part of `A && B` but the last, and not
at a part of a pipe but the last. At the end of a test or of a function their status is its own, and counts. Anywhere else they
are found here, each with its line:

    A && B          two lines; or, for what is done only sometimes, `! A || B`
    ! A             run ! A, or `! A || return 1`
    cow ... | B     B <<<"$(...)" of what ended with 0: piped B -- cow ...
    fails N .       any sentence would do: say which
    fails ... || :  it cannot fail then
"""
import re, sys

OPENS = {"if": "fi", "while": "done", "until": "done", "for": "done", "case": "esac", "select": "done", "{": "}", "(": ")"}
CONDITION = {"if", "elif", "while", "until"}


def tokens(text):
    """(line, word or operator) of a script; what is quoted or substituted stays in its word, and documents are left out."""
    i, line, n, word, begun, documents, test = 0, 1, len(text), "", 1, [], False

    def skip(i, close):
        """behind what is nested, up to its `close`"""
        while i < n and text[i] != close:
            if text[i] == "\\":
                i += 2
            elif close == "'":
                i += 1
            elif text[i:i + 2] == "$'" and close != '"':
                i = skip(i + 2, "'") + 1
            elif close == '"' and text[i] == "'":
                i += 1
            elif text[i] == "'":
                i = text.index("'", i + 1) + 1
            elif text[i] == '"':
                i = skip(i + 1, '"') + 1
            elif text[i] == "(" and (close == ")" or text[i - 1] == "$"):
                i = skip(i + 1, ")") + 1
            elif text[i] == "{" and text[i - 1] == "$":
                i = skip(i + 1, "}") + 1
            elif text[i] == "#" and close == ")" and text[i - 1] in " \t\n":
                i = text.index("\n", i)
            else:
                i += 1
        return i

    while i < n:
        c = text[i]
        if c == "\\":
            word, i = word + text[i:i + 2], i + 2
            if word.endswith("\\\n"):
                word, line = word[:-2], line + 1
            continue
        if c in "'\"" or text[i:i + 2] in ("$(", "${", "<(", ">(", "$'") or (c == "(" and (word.endswith("=") or word.endswith("+="))):
            at = i + (1 if c in "'\"(" else 2)
            end = text.index("'", at) if c == "'" else skip(at, '"' if c == '"' else "}" if text[i:i + 2] == "${" else "'" if text[i:i + 2] == "$'" else ")")
            if not word:
                begun = line
            word += text[i:end + 1]
            line += text.count("\n", i, end + 1)
            i = end + 1
            continue
        if c == "#" and not word:
            i = text.index("\n", i)
            continue
        if c in " \t\n;&|()<>":
            if word:
                test = word == "[[" or (test and word != "]]")
                yield begun, word
                word = ""
            if c == "\n":
                yield line, "\n"
                i, line = i + 1, line + 1
                for end in documents:
                    m = re.compile(r"^\t*" + re.escape(end) + r"$", re.M).search(text, i)
                    line += text.count("\n", i, m.end() + 1)
                    i = m.end() + 1
                documents = []
            elif c in " \t":
                i += 1
            elif c in "&|()<>" and test:  # [[ A && B ]] is one word
                word, begun, i = c, line, i + 1
            elif m := re.compile(r"<<-?\s*(['\"\\]?)(\w+)\1").match(text, i) if text[i:i + 3] != "<<<" else None:
                documents.append(m.group(2))
                i = m.end()
            else:
                m = re.compile(r"<<<|&>>|&>|[<>]&|>>|>\||<>|&&|\|\||;;&?|;&|\|&|\(\(|[;&|()<>]").match(text, i)
                op, i = m.group(0), m.end()
                if op == "((":
                    end = text.index("))", i) + 2
                    op, i = text[i - 2:end], end
                yield line, op
            continue
        if not word:
            begun = line
        word, i = word + c, i + 1
    if word:
        yield begun, word


class Parser:
    """Lists of commands as trees: a list is [(line, operator behind it, pipe)], a pipe [command], a command (words, body)."""

    def __init__(self, text):
        self.t = list(tokens(text)) + [(0, "")]
        self.i = 0

    def look(self):
        return self.t[self.i][1]

    def next(self):
        self.i += 1
        return self.t[self.i - 1]

    def list(self, ends):
        out = []
        while True:
            while self.look() in ("\n", ";", "&"):
                self.next()
            if self.look() in ends or self.look() == "":
                return out
            out.append(self.and_or(ends))

    def and_or(self, ends):
        parts, ops, line = [], [], self.t[self.i][0]
        while True:
            parts.append(self.pipe(ends))
            if self.look() not in ("&&", "||"):
                return line, parts, ops
            ops.append(self.next()[1])
            while self.look() == "\n":
                self.next()

    def pipe(self, ends):
        out = []
        while True:
            out.append(self.command(ends))
            if self.look() not in ("|", "|&"):
                return out
            self.next()
            while self.look() == "\n":
                self.next()

    def command(self, ends):
        words, bodies, line = [], [], self.t[self.i][0]
        while True:
            t = self.look()
            first = not words or words == ["!"]
            if words[-1:] == ["[["]:
                while self.next()[1] != "]]":
                    pass
                words.append("]]")
                continue
            if t in ("\n", ";", "&", "|", "|&", "&&", "||", "", ")", ";;", ";&", ";;&"):
                if t == "&":
                    words.append("&")
                return line, words, bodies
            if first and t in ("if", "while", "until"):
                words.append(self.next()[1])
                while True:
                    self.list(("then", "do"))  # a condition
                    self.next()
                    bodies.append((words[0], self.list(("elif", "else", "fi", "done"))))
                    end = self.next()[1]
                    if end == "else":
                        bodies.append((words[0], self.list(("fi",))))
                        end = self.next()[1]
                    if end != "elif":
                        break
            elif first and t in ("for", "select"):
                words.append(self.next()[1])
                while self.look() != "do":
                    self.next()
                self.next()
                bodies.append(("for", self.list(("done",))))
                self.next()
            elif first and t == "case":
                words.append(self.next()[1])
                while self.look() != "in":
                    self.next()
                self.next()
                while True:
                    while self.look() == "\n":
                        self.next()
                    if self.look() == "esac":
                        break
                    while self.look() != ")":
                        self.next()
                    self.next()
                    bodies.append(("case", self.list((";;", ";&", ";;&", "esac"))))
                    if self.look() != "esac":
                        self.next()
                self.next()
            elif t == "{" and (first or words[0] == "@test" or words[-1] == "()"):
                self.next()
                bodies.append(("function" if not first else "{", self.list(("}",))))
                words.append("{")
                self.next()
            elif t == "(":
                self.next()
                if self.look() == ")":
                    self.next()
                    words.append("()")
                    while self.look() == "\n":
                        self.next()
                else:
                    bodies.append(("(", self.list((")",))))
                    words.append("(")
                    self.next()
            else:
                words.append(self.next()[1])


def look(lists, tail, says):
    for n, (line, parts, ops) in enumerate(lists):
        last = tail and n == len(lists) - 1
        for at, pipe in enumerate(parts):
            final = at == len(parts) - 1
            for end, (at_line, words, bodies) in enumerate(pipe):
                for kind, body in bodies:
                    look(body, kind in ("function", "(") or ((last or not final) and len(pipe) == 1 and kind not in ("for", "while", "until")), says)
                if end < len(pipe) - 1 and words[:1] and words[0] in CHECKED and pipe[-1][1] != [":"]:
                    says(at_line, f"`{words[0]} ... |`: nothing looks at its status")
                name = words[1:] if words[:1] == ["!"] else words
                if name[:1] == ["fails"] and len(name) > 2 and name[2] in ("''", '""', ".", "'.'", "'.*'"):
                    says(at_line, "`fails N .`: any sentence would do")
                if name[:1] and name[0] in ASSERTS and at < len(ops) and ops[at] == "||" and at + 1 < len(parts) and \
                        parts[at + 1][0][1] in (["true"], [":"]):
                    says(at_line, f"`{name[0]} ... || {parts[at + 1][0][1][0]}`: cannot fail")
        if last:
            continue
        leaves = parts[-1][0][1][:1] in (["return"], ["exit"], ["continue"], ["break"], ["skip"])  # A is what should fail
        if "&&" in ops and "||" not in ops[len(ops) - 1 - ops[::-1].index("&&"):] and not (leaves and "||" not in ops):
            says(line, "`A && B`: only B can fail")
        elif parts[-1][0][1][:1] == ["!"]:
            says(parts[-1][0][0], "`! A`: cannot fail")


CHECKED = {"cow", "status_of", "SIM", "diff_of"}
ASSERTS = {"fails", "warns", "tells", "fsck", "detach", "commit_word", "whole_with", "recovers_to", "detach_whole", "recover_whole"}
bad = 0
for path in sys.argv[1:]:
    with open(path) as f:
        text = f.read()

    def says(line, what):
        global bad
        bad += 1
        print(f"{path}:{line}: {what}", file=sys.stderr)

    parser = Parser(text)
    tree = parser.list(())
    if parser.look() != "":
        sys.exit(f"{path}:{parser.t[parser.i][0]}: not understood: {parser.look()}")
    look(tree, True, says)
sys.exit(bad != 0)
