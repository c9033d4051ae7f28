# Common jobs; `just --list` lists them. You can also run the commands below without just.

python := ".venv/bin/python"

# Install everything that a fresh clone needs
setup:
    ./setup

# Show the main commands on real stores
demo:
    ./demo

# Run unit and property tests, in two minutes
fast *args:
    ./check --fast {{args}}

# Run the tests that a change needs, in ten minutes; or some tests: `just test tests/house -k import`
test *args:
    ./check {{args}}

# Run all tests
full:
    ./check --full

# Run the linter
lint:
    {{python}} -m ruff check .

# Run the type checker
types:
    {{python}} -m mypy
    {{python}} -m mypy tests/support

# Generate parts of docs/
docs:
    {{python}} docs/generate.py
    {{python}} docs/examples.py
    {{python}} docs/pictures.py

# Build the documentation site in build/site
site:
    {{python}} -m mkdocs build --strict --site-dir build/site

# Write the checksums of the fixtures, after the broker has written a new store
fixtures:
    {{python}} -m tests.support.manifest

# Compile the extension modules in place, after a change of their sources
native:
    {{python}} setup.py build_ext --inplace

# Run parsers and stores under the address and undefined-behaviour sanitizers
sanitize:
    deploy/sanitize

# Build a wheel in dist/
build:
    {{python}} -m pip wheel --no-deps --wheel-dir dist .

# Run everything that CI runs
ci:
    .ci/run
