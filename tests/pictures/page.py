"""Reads a page of `burstc explore` back: its table, its pictures, its text."""
import html.parser
import xml.etree.ElementTree as ET


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.text, self.tags, self.scripts = [], [], [], set(), 0
        assert "http" not in text and "src=" not in text and "@import" not in text and "url(" not in text, "a page needs no network"
        self.pictures = [ET.fromstring(part[:part.index("</svg>") + 6]) for part in
                         ("<svg" + rest for rest in text.split("<svg")[1:])]
        self.feed(text)
        assert not self.open, self.open
        assert self.scripts == 1, "its own, at the end"

    def close_cell(self):
        """A cell's end tag may be left out."""
        if self.open and self.open[-1] == "td":
            self.open.pop()

    def handle_starttag(self, tag, attributes):
        if tag == "td":
            self.close_cell()
        self.tags.add(tag)
        self.scripts += tag == "script"
        if tag in ("meta", "br", "input"):
            return
        if tag == "tr":
            self.rows.append((dict(attributes).get("class"), []))
        if tag in ("td", "th"):
            self.rows[-1][1].append("")
        self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        if tag == "tr":
            self.close_cell()
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.rows[-1][1][-1] += data
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data.strip())
