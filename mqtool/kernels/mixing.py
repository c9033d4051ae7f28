"""The odd numbers by which fields are multiplied where a unit or an entry becomes one 64-bit number."""

import numpy as np

_U64 = np.uint64
OFFSET, PLACE, SIZE = _U64(0x9E3779B97F4A7C15), _U64(0xC2B2AE3D27D4EB4F), _U64(0xFF51AFD7ED558CCD)
TAGS, TIME, BATCH = _U64(0xD6E8FEB86659FD93), _U64(0xE7037ED1A0B428DB), _U64(0x8EBC6AF09C88C6E3)
FINAL, FOLD = _U64(0x94D049BB133111EB), _U64(32)
