"""The `aioinformer` command.

Only this layer prints, sets up logging, handles signals and ends the process. `main`
imports nothing that may not be installed, and this module imports nothing at all.
"""

__all__ = ["FAILED_CHECK", "INTERRUPTED", "TERMINATED", "TROUBLE"]

FAILED_CHECK = 1
"""Exit status after a failed check, or a bug of this package."""

TROUBLE = 2
"""Exit status after an error of the input, the cluster or the network."""

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 and SIGINT, as in shells."""

TERMINATED = 143
"""Exit status after SIGTERM: 128 and SIGTERM, as in shells."""
