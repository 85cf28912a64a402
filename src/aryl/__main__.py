"""`python -m aryl` is the command `aryl`."""

from aryl.cli.main import main

main()
