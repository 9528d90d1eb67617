"""The elements of a page, for tests of whatever writes one."""

from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Elements(HTMLParser):
    """Tags with their attributes, and whether they are closed in order."""

    def __init__(self, html: str):
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def values(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.found if name in attributes]
