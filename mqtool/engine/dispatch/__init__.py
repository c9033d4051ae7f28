"""Dispatch: the ConsumeQueue units, index entries and filter bit maps that follow from each record of the log."""
