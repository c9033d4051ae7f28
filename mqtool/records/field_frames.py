"""Frames of which only the fixed fields and the topic are known; their bytes are not there."""

import numpy as np

from mqtool.records.frames import INTS, LONGS, Frames

ROWS = INTS + LONGS
"""Fields that are known."""


class FieldFrames(Frames):
    """Valid records with right CRCs, as `native.logs.field_records` reads them; it takes no other records.

    Only `column` of a field in `ROWS`, `coded_topics`, `positions` and `sizes` have a meaning. The arrays are not used
    again by who made them.
    """

    def __init__(
        self, base: int, positions: np.ndarray, columns: dict[str, np.ndarray], topics: tuple[np.ndarray, list[str]]
    ) -> None:
        """Takes the results of the pass.

        Args:
            base: physical offset of the file's first byte.
            positions: int64, in the file.
            columns: of `ROWS`, by name.
            topics: `Frames.coded_topics`.
        """
        super().__init__(memoryview(b""), base, positions, columns["total_size"])
        self._columns.update(columns)
        self.coded_topics = topics

    def select(self, which: np.ndarray | slice) -> "FieldFrames":
        """Returns the frames that a mask, an index array or a slice chooses."""
        codes, names = self.coded_topics
        columns = {name: values[which] for name, values in self._columns.items()}
        return FieldFrames(self.base, self.positions[which], columns, (codes[which], names))
