"""Bodies that do not repeat: what is compressed must be as hard to compress wherever it comes to lie in a file."""

import random
from pathlib import Path

import numpy as np

from mqtool.formats.commit_log import field_offset
from mqtool.records.frame_scan import scan_frames
from mqtool.records.frames import Frames

_WORDS = 4_000_000


def vary_bodies(store: Path) -> Path:
    """Gives each record of a store a body of its own, of the same length: a piece of one long text."""
    rnd = random.Random(1)
    words = [bytes(rnd.choices(b"abcdefghijklmnopqrstuvwxyz", k=rnd.randint(3, 9))) for _ in range(2000)]
    text = np.frombuffer(b" ".join(rnd.choices(words, k=_WORDS)), np.uint8)
    where = np.random.default_rng(1)
    for file in sorted((store / "commitlog").iterdir()):
        data = np.fromfile(file, np.uint8)
        view = memoryview(data)
        chain = scan_frames(view, 0)
        frames = Frames(view, int(file.name), chain.positions, chain.sizes)
        for length in np.unique(frames.body_length).tolist():
            starts = frames.body_start[frames.body_length == length]
            _windows(data, length)[starts] = _windows(text, length)[where.integers(0, len(text) - length, len(starts))]
        crc = np.ndarray((len(data) - 3,), ">i4", data, strides=(1,))
        crc[frames.positions + field_offset("body_crc")] = frames.computed_crc
        data.tofile(file)
    return store


def _windows(data: np.ndarray, length: int) -> np.ndarray:
    """The bytes at each position, as opaque values."""
    return np.ndarray((len(data) - length + 1,), f"V{length}", data, strides=(1,))
