"""`python -m pyllamacpp` is the command `pyllamacpp`."""

from .cli import main

main()
