"""EventStore's log of TFChunk files: read, verify, salvage report. See docs/formats/tfchunk.md."""
