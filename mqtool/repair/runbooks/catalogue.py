"""All runbooks by id."""

from mqtool.repair.runbooks.copy_books import COPY_BOOKS
from mqtool.repair.runbooks.derived_books import DERIVED_BOOKS
from mqtool.repair.runbooks.log_books import LOG_BOOKS
from mqtool.repair.runbooks.model import Runbook
from mqtool.repair.runbooks.start_books import START_BOOKS

RUNBOOKS: dict[str, Runbook] = {
    book.id: book for book in sorted((*LOG_BOOKS, *DERIVED_BOOKS, *START_BOOKS, *COPY_BOOKS), key=lambda book: book.id)
}
