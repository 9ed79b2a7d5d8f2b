"""Reads a picture back: its texts, its titles, and its grids of shaded cells as numbers."""
import re
import xml.etree.ElementTree as ET

SPACE = "{http://www.w3.org/2000/svg}"


def tag(element):
    return element.tag.removeprefix(SPACE)


def texts(element):
    return [e.text or "" for e in element.iter() if tag(e) == "text"]


def titles(element):
    return [e.text or "" for e in element.iter() if tag(e) == "title"]


def grids(element):
    """Each grid as (columns, rows, {(row, column): level}); what is not drawn has level 0."""
    for g in element.iter():
        scale = re.search(r"scale\((\S+) (\S+)\)", g.get("transform", "")) if tag(g) == "g" else None
        if not scale:
            continue
        cells = {}
        for path in g:
            level = int(path.get("class")[-1])
            boxes = re.findall(r"M(\d+) (\d+)h(\d+)v(\d+)h-(\d+)z", path.get("d"))
            assert "".join("M%s %sh%sv%sh-%sz" % box for box in boxes) == path.get("d")
            for x, y, w, h, back in (map(int, box) for box in boxes):
                assert w == back
                for cell in ((row, column) for row in range(y, y + h) for column in range(x, x + w)):
                    assert cell not in cells, "two levels in one cell"
                    cells[cell] = level
        yield float(scale.group(1)), float(scale.group(2)), cells


def panels(text):
    """The panels of a file, each with its title: its first text."""
    root = ET.fromstring(text)
    for bad in ("script", "image", "use", "a", "foreignObject"):
        assert not [e for e in root.iter() if tag(e) == bad], bad
    assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), "a picture needs no network"
    assert texts(root) and titles(root)[0]
    return [(texts(g)[0], g) for g in root if tag(g) == "g"]
