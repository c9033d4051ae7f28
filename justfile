# Daily jobs; `just --list` shows them. Without just: the commands are short enough to type.

python := ".venv/bin/python"

# Everything a fresh clone needs
setup:
    ./setup

# The main job on a real store
demo:
    ./demo

# Unit and property tests, in two minutes
fast *args:
    ./check --fast {{args}}

# What a change needs, in ten minutes; or some tests: `just test tests/house -k import`
test *args:
    ./check {{args}}

# All that CI runs
full:
    ./check --full

# Linter
lint:
    {{python}} -m ruff check .

# Type checker
types:
    {{python}} -m mypy
    {{python}} -m mypy tests/support

# Generated parts of docs/
docs:
    {{python}} docs/generate.py
    {{python}} docs/generate_cli.py
    {{python}} docs/examples.py
    {{python}} docs/generate_runbooks.py
    {{python}} docs/pictures.py

# The documentation site, in build/site
site:
    {{python}} -m mkdocs build --strict --site-dir build/site

# List the fixtures' checksums anew, after a store was made by the broker
fixtures:
    {{python}} -m tests.support.manifest

# Source distribution and wheel in dist/
build:
    {{python}} -m pip wheel --no-deps --wheel-dir dist .

# What CI runs
ci:
    .ci/run
