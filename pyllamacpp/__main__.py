"""The command `pyllamacpp`, and `python -m pyllamacpp`."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line of this process and exit.

    Until it is imported Ctrl-C just ends the process, as it does with any command: no traceback.
    """
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else a background job ignores it
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .cli import main as command_line

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command_line()


if __name__ == "__main__":
    main()
