"""The command line: arguments in, library calls, rows out. Knows Typer and stdout; knows no bytes of a store."""

import gc

# New objects after which cycles are looked for. With the interpreter's 700, 150 searches took an eighth of a short
# command, many of them while Typer loads: so this comes before.
gc.set_threshold(200_000)
