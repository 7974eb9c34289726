"""Memory of this process, as the kernel counts it, in KiB."""

from __future__ import annotations

import gc
import re
from pathlib import Path

__all__ = ["forget_peak", "memory", "resident"]


def memory(name: str) -> int:
    """Return a line of this process's status, such as `VmHWM`."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"/proc/self/status has no {name}")

    return int(found[1])


def resident() -> int:
    """Return the resident memory, without garbage."""
    gc.collect()
    return memory("VmRSS")


def forget_peak() -> None:
    """Reset the peak of resident memory to the current value."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
