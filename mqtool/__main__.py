"""`python -m mqtool`."""

from mqtool.cli.app import main

if __name__ == "__main__":
    main()
