"""`python -m firsttoken_runtime`: the same command line as `firsttoken`."""

from firsttoken_api import cli

if __name__ == "__main__":
    cli.main()
