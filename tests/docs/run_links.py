#!/usr/bin/env python3
"""run_links.py SOURCE: every link between the pages leads to a file that is there, and to a heading that it has."""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")


def anchors(page):
    """Headings as GitHub names them; lines of code blocks are none."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.*)$", text, re.M)}


def wrong(page):
    for name, anchor in LINK.findall(page.read_text()):
        to = page.parent / name if name else page
        if not to.exists():
            yield f"{page}: there is no {name}"
        elif anchor and anchor not in anchors(to):
            yield f"{page}: {to.name} has no heading #{anchor}"


def main():
    source = pathlib.Path(*runner.words(__doc__, "source"))
    pages = [*source.glob("*.md"), *source.glob("docs/**/*.md"), *source.glob("benchmarks/*.md")]
    links = sum(len(LINK.findall(page.read_text())) for page in pages)
    found = [line for page in pages for line in wrong(page)]
    print(*found, f"{len(pages)} pages, {links} links, {len(found)} wrong", sep="\n")
    return bool(found) or links < 100


sys.exit(main())
