"""A page as a reader without a screen gets it."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """A page taken apart; every tag is closed in its place.

    Attributes:
        texts: what stands between the tags, style sheets left out.
        tags: names and attributes, in order.
        open: tags that wait for their end: none when all is read.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag, and what it has to be closed with."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag that ends itself, as in drawings."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """The end of the last open tag, and of no other."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text, unless it is a style."""
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All texts, in one line."""
        return " ".join(" ".join(self.texts).split())

    def links(self) -> list[str]:
        """Where links lead to."""
        return [attributes["href"] or "" for tag, attributes in self.tags if tag == "a"]
