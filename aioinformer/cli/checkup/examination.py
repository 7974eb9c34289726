"""`Examination`: does steps, each within its time, and keeps what they have found."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from aioinformer.cli.checkup.findings import Answer, Finding
from aioinformer.cli.explain import CommandError, explain
from aioinformer.cli.fitting import printable
from aioinformer.errors import AioInformerError, InternalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Examination"]

_SILENT = "Check the server, and the firewalls and proxies in between."


class Examination:
    """Steps that follow each other; one that fails or hangs does not end the others.

    Args:
        seconds: How long each step may take.
        tell: Told of each finding, as soon as it is there.

    Attributes:
        findings: So far, in the order of the steps.
        secrets: What no finding may show, whoever says it: a server may answer with what
            it was sent.
    """

    def __init__(
        self, seconds: float, tell: Callable[[Finding], Awaitable[None]]
    ) -> None:
        self.findings: list[Finding] = []
        self.secrets: set[str] = set()
        self.seconds = seconds
        self._tell = tell

    async def step(
        self,
        name: str,
        doing: Awaitable[Answer],
        *,
        resource: str = "",
        late: str = _SILENT,
    ) -> bool:
        """Do a step, and keep its answer; an error, or no end in time, is one too.

        Args:
            name: Of the step.
            doing: What is to be done.
            resource: What it is about; empty for the server as a whole.
            late: What to do where it takes too long.

        Returns:
            False if it has failed.

        Raises:
            InternalError: A bug of ours.

        Cancellation:
            Ends the step, which is not kept.
        """
        loop = asyncio.get_running_loop()
        before = loop.time()
        try:
            async with asyncio.timeout(self.seconds):
                answer = await doing
        except TimeoutError:
            text = f"took longer than {self.seconds:g} s (--timeout). {late}"
            answer = Answer("failed", text)
        except InternalError:
            raise
        except (AioInformerError, CommandError) as exc:
            answer = Answer("failed", explain(exc))

        await self._keep(
            Finding(
                step=name,
                mark=answer.mark,
                text=answer.text,
                resource=resource,
                seconds=loop.time() - before,
            )
        )
        return answer.mark != "failed"

    async def leave_out(self, *names: str, why: str, resource: str = "") -> None:
        """Keep that steps are not done, with a word why.

        Cancellation:
            Safe: what was told is kept.
        """
        for name in names:
            finding = Finding(step=name, mark="not asked", text=why, resource=resource)
            await self._keep(finding)

    async def _keep(self, finding: Finding) -> None:
        text = finding.text
        for secret in self.secrets:
            text = text.replace(secret, "...")

        # Names and reasons come from the server, too.
        finding = replace(finding, text=printable(" ".join(text.split())))
        self.findings.append(finding)
        await self._tell(finding)
