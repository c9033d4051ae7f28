"""Exports messages to Parquet on one machine: schema, plan, sorted files, commit protocol, watermark.

`export(request)` in `plain` does all of it; `spark` runs the same tasks on a cluster. Docs page: docs/lake.md.
"""
