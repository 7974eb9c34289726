"""The exit statuses of the command; it imports nothing, as `main` needs it first."""

__all__ = ["FAILED_CHECK", "INTERRUPTED", "TROUBLE"]

FAILED_CHECK = 1
"""The command found that something is not as it should be, with us."""

TROUBLE = 2
"""The input, the cluster, or the way to it; one line on stderr has said what."""

INTERRUPTED = 130
"""Ctrl-C, or SIGTERM: the number is what shells give to the former, 128 and SIGINT."""
