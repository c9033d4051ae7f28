"""Rules for all HTML pages of mqtool: values are escaped, invisible characters are shown as their codes."""

from functools import cache
from typing import TYPE_CHECKING

from mqtool import words

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def templates(package: str) -> "Environment":
    """Returns the templates in a package's directory `templates`.

    A variable that a template uses and the caller does not pass is an error. The filters `size` and `number` and the
    function `counted` come from `words`; a package may add others.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - only who makes a page needs it

    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    environment.filters.update(size=words.size, number=words.number)
    environment.globals.update(counted=words.counted)
    return environment


def _shown(value: object) -> object:
    """Returns a value with characters that are invisible or change the text direction replaced by their codes.

    Names come from clients and damaged files and are not trusted. Markup of the templates is returned unchanged.
    """
    return value if hasattr(value, "__html__") or not isinstance(value, str) else words.visible(value)
