#!/usr/bin/env python3
"""Wraps prose of pages at the width that test/style wants.

    tools/wrap-docs.py PAGE ..

A paragraph or an item of a list that has a longer line is filled anew; tables,
code, headings and all other paragraphs stay as they are.
"""
import re
import sys
import textwrap

WIDTH = 120
ITEM = re.compile(r" *(?:[*-]|\d+\.) ")
# What a line of prose may not begin with.
MARKS = re.compile(r"([*+-]|\d+\.|#+|\|)( |$)")
WHOLE = re.compile(r"\[[^\]]*\]\([^)]*\)|`[^`]*`")  # links and code


def wrapped(text, first, width):
    """Lines of at most `width`, what is WHOLE on one line."""
    kept = []

    def hide(match):
        kept.append(match[0])
        name = f"\0{len(kept) - 1}\0"
        return name + "\1" * (len(match[0]) - len(name))

    def show(match):
        return kept[int(match[1])]
    lines = textwrap.wrap(WHOLE.sub(hide, text), width, initial_indent=first,
                          subsequent_indent=" " * len(first),
                          break_long_words=False, break_on_hyphens=False)
    return [re.sub("\0(\\d+)\0\1*", show, line) for line in lines]


def fill(lines):
    item = ITEM.match(lines[0])
    first = item[0] if item else re.match(" *", lines[0])[0]
    text = " ".join(line.strip() for line in lines)
    text = text[len(first.strip()):].strip()
    for width in range(WIDTH, WIDTH // 2, -3):
        out = wrapped(text, first, width)
        if not any(MARKS.match(line.strip()) for line in out[1:]):
            break
    return out


def page(text):
    out, paragraph, fence, listed = [], [], False, False

    def flush():
        long = any(len(line) > WIDTH for line in paragraph)
        out.extend(fill(paragraph) if long else paragraph)
        paragraph.clear()
    for line in text.split("\n"):
        mark = line.lstrip().startswith("```")
        fence ^= mark
        code = line.startswith("    ") and not paragraph and not listed
        if fence or mark or code or not line.strip() or \
                line.lstrip().startswith(("|", "#", "<")):
            flush()
            out.append(line)
            continue
        if ITEM.match(line):
            flush()
        listed = bool(ITEM.match(line)) or listed and line.startswith(" ")
        paragraph.append(line)
    flush()
    return "\n".join(out)


for name in sys.argv[1:]:
    with open(name) as file:
        old = file.read()
    if (new := page(old)) != old:
        with open(name, "w") as file:
            file.write(new)
