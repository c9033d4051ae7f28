"""What holds for every page of HTML, whoever makes it: values are escaped, and names cannot hide what they are."""

from functools import cache
from typing import TYPE_CHECKING

from mqtool import words

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def templates(package: str) -> "Environment":
    """Returns the templates in a package's directory `templates`.

    A value that a template names and nobody gives is an error. Filters `size`, `number` and the function `counted` are
    those of `words`; a package adds its own.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - only who makes a page needs it

    found = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    found.filters.update(size=words.size, number=words.number)
    found.globals.update(counted=words.counted)
    return found


def _shown(value: object) -> object:
    """Names come from clients and damaged files: what has no shape of its own is shown as its code.

    Markup is the templates' own, and stays.
    """
    return value if hasattr(value, "__html__") or not isinstance(value, str) else words.visible(value)
