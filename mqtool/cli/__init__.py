"""The command line: arguments in, library calls, rows out. Knows Typer and stdout; knows no bytes of a store."""
