"""What ends a command whose informer has died: it would show old news for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.errors import InformerStopped

if TYPE_CHECKING:
    from typing import NoReturn

    from aioinformer.informer import SharedInformerFactory

__all__ = ["keep_vigil"]


async def keep_vigil(factory: SharedInformerFactory) -> NoReturn:
    """Wait for an informer to die; a task that is meant to take its group along.

    Raises:
        InformerStopped: If one has died; `__cause__` is what it died of.

    Cancellation:
        The way to end it, as long as all of them live.
    """
    failure = await factory.failed()
    raise InformerStopped("an informer died") from failure
