"""`aioinformer doctor`: checks that informers work with a cluster."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import orjson

from aioinformer.cli import FAILED_CHECK
from aioinformer.cli.checks import resource, server
from aioinformer.cli.checks import results as judging
from aioinformer.cli.checks import server as way
from aioinformer.cli.checks.findings import (
    Finding,
    StepResult,
    has_failed,
    summary,
)
from aioinformer.cli.checks.rbac_rules import (
    MissingPermission,
    as_yaml,
    manifests,
    subject_of,
)
from aioinformer.cli.checks.resource import ResourceScope
from aioinformer.cli.checks.server import Identity
from aioinformer.cli.columns import printable
from aioinformer.cli.error_messages import CommandError, message_of
from aioinformer.cli.output import Control, complain, write
from aioinformer.cli.terminal import has_colours
from aioinformer.client import Client
from aioinformer.client.authenticator import Authenticator
from aioinformer.errors import AioInformerError, Forbidden, InternalError, NotFound
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioinformer.cli.checks.findings import StepStatus
    from aioinformer.cli.checks.rbac_rules import Subject
    from aioinformer.cli.connection import ConnectionOptions
    from aioinformer.client import ClientConfig
    from aioinformer.client.authenticator import RequestAuth
    from aioinformer.client.rest_mapper import ServedResource

__all__ = ["ClusterChecks", "DoctorOptions", "Report", "StepRunner", "doctor"]


Report = Literal["lines", "json", "rules"]
"""Output formats. `lines` is the default."""


# SGR parameters of ECMA-48: green, yellow, red, bright black.
_COLOURS: dict[StepStatus, Control] = {
    "ok": Control("\x1b[32m"),
    "warning": Control("\x1b[33m"),
    "failed": Control("\x1b[31m"),
    "skipped": Control("\x1b[90m"),
}


_NO_COLOUR = Control("\x1b[0m")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """Options of the command."""

    resources: tuple[str, ...] = ("pods",)
    """Names of resources, as for `Discovery`."""

    namespace: str | None = None
    """Namespace. None for the default of the connection."""

    all_namespaces: bool = False
    """True for all namespaces, without a `namespace`."""

    group: str = ""
    """Group to bind rules to. Empty for the user."""

    report: Report = "lines"

    seconds: float = 10.0
    """Timeout of each step."""


async def doctor(options: DoctorOptions, target: ConnectionOptions) -> int:
    """Check a cluster, and print the findings on stdout.

    Returns:
        Exit status: 0 if informers will work, else 1.

    Raises:
        CommandError: If options contradict each other, or the user is not in the group.
        OptionsError: If the URL, the token or the namespace is invalid.

    Cancellation:
        Ends the step; connections are closed, and an exec plugin is killed.
    """
    if options.namespace is not None and options.all_namespaces:
        raise CommandError("-n and -A cannot be combined: omit one of them.")

    # These check the options before anything is read.
    PODS.path(options.namespace)
    target.client()

    examination = StepRunner(options.seconds, _teller(options))
    checkup = ClusterChecks(
        target,
        examination,
        words=tuple(dict.fromkeys(options.resources)),
        namespace=options.namespace,
        all_namespaces=options.all_namespaces,
        group=options.group,
    )
    await checkup.run()
    await _conclude(options.report, examination.findings, checkup)
    return FAILED_CHECK if has_failed(examination.findings) else 0


async def _conclude(
    report: Report, findings: list[Finding], checkup: ClusterChecks
) -> None:
    subject = checkup.subject
    rules = manifests(checkup.needs, subject) if subject is not None else []
    nobody = bool(checkup.needs) and subject is None
    match report:
        case "json":
            await write(_document(findings, rules))
        case "rules":
            await write(as_yaml(rules))
            if not rules:
                complain(_NOBODY if nobody else "no missing rules found.")
        case "lines":
            await write(f"\n{summary(findings)}\n")
            if rules:
                await write(f"\n{_APPLY}\n{as_yaml(rules)}")
            elif nobody:
                await write(f"{_NOBODY}\n")


_APPLY = "# For an administrator (`-o rules` prints only this, for kubectl apply -f -):"


_NOBODY = (
    "Cannot generate rules, as the server does not know your identity: log in first."
)


def _document(findings: list[Finding], rules: list[dict[str, Any]]) -> bytes:
    document = {
        "ok": not has_failed(findings),
        "summary": summary(findings),
        "findings": [it.document() for it in findings],
        "rules": rules,
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"


class _Lines:
    """Output of findings as lines, in colors on terminals."""

    def __init__(self, words: tuple[str, ...]) -> None:
        longest = max(map(len, words), default=0) + len(": permissions")
        self._width = max(longest, len("client certificate"))
        self._coloured = sys.stdout.isatty() and has_colours(os.environ)

    async def tell(self, finding: Finding) -> None:
        line = finding.line(self._width)
        if self._coloured:
            mark = finding.mark
            text = line.removeprefix(mark)
            await write(_COLOURS[mark], mark, _NO_COLOUR, f"{text}\n")
        else:
            await write(f"{line}\n")


def _teller(options: DoctorOptions) -> Callable[[Finding], Awaitable[None]]:
    match options.report:
        case "lines":
            return _Lines(options.resources).tell
        case "rules":
            return _tell_failure
        case "json":
            return _tell_nothing


async def _tell_failure(finding: Finding) -> None:
    """Print a failure on stderr, as stdout is for rules."""
    if finding.mark == "failed":
        complain(finding.line())


async def _tell_nothing(finding: Finding) -> None:
    pass


_OF_A_RESOURCE = ("permissions", "list", "watch", "watch list")


# Shorter ones are parts of other words.
_SECRET_CHARACTERS = 8


class ClusterChecks:
    """Checks of a cluster, in order. Steps that depend on a failed one are skipped.

    Args:
        target: Cluster and credentials.
        examination: Does the steps, and keeps their findings.
        words: The resources, as `Discovery` takes them.
        namespace: Namespace. None for the default of the connection.
        all_namespaces: In all of them; then there is no `namespace`.
        group: Whom rules are for, if not for the user alone.

    Attributes:
        needs: Missing permissions.
    """

    def __init__(
        self,
        target: ConnectionOptions,
        examination: StepRunner,
        *,
        words: tuple[str, ...],
        namespace: str | None = None,
        all_namespaces: bool = False,
        group: str = "",
    ) -> None:
        self.needs: list[MissingPermission] = []
        self._target = target
        self._examination = examination
        self._words = words
        self._namespace = namespace
        self._all_namespaces = all_namespaces
        self._group = group
        self._identity = Identity()
        self._discovered = False
        self._tickets: list[RequestAuth] = []

    @property
    def subject(self) -> Subject | None:
        """Subject to bind rules to. None if the identity is unknown or anonymous."""
        return subject_of(self._identity.user, self._group)

    async def run(self) -> None:
        """Run all checks.

        Raises:
            CommandError: If the user is not in the given group.

        Cancellation:
            Ends the step; connections are closed, and an exec plugin is killed.
        """
        steps, config = self._examination, await self._configuration()
        if config is None:
            later = ("credentials", "connection", "TLS", "version")
            await self._leave_out(*later, why="no configuration")
            return

        client = Client(config)
        try:
            late = f"Run {config.credentials} by hand."
            entered = await steps.step("credentials", self._enter(client), late=late)
            reached = await steps.step("connection", way.connection(config))
            if not entered:
                await self._leave_out("TLS", "version", why="no credentials")
            elif not reached:
                await self._leave_out("TLS", "version", why="no connection")
            else:
                await self._ask(client, self._tickets[0])
        finally:
            await client.close()

    # ------------------------------------------------------------ one by one

    async def _configuration(self) -> ClientConfig | None:
        found: list[ClientConfig] = []

        async def read() -> StepResult:
            source = await asyncio.to_thread(self._target.source)
            config = await asyncio.to_thread(self._target.read)
            found.append(config)
            return judging.configuration(config, source)

        await self._examination.step("configuration", read())
        return found[0] if found else None

    async def _enter(self, client: Client) -> StepResult:
        await client.start()
        # A second one, as that of the client is private.
        ticket = await Authenticator(client.config).current()
        _, _, secret = ticket.info.authorization.partition(" ")
        if len(secret) >= _SECRET_CHARACTERS:
            self._examination.secrets.add(secret)

        self._tickets.append(ticket)
        return StepResult("ok", "loaded")

    async def _ask(self, client: Client, ticket: RequestAuth) -> None:
        steps = self._examination
        if not await steps.step("TLS", way.tls(client, ticket)):
            await self._leave_out("version", why="TLS failed")
            return

        if way.has_certificate(client.config, ticket):
            own = way.client_certificate(client.config, ticket)
            await steps.step("client certificate", own)

        if not await steps.step("version", server.version(client)):
            await self._leave_out(why="unexpected response")
            return

        await steps.step("identity", self._ask_identity(client))
        self._check_group()
        await steps.step("discovery", self._discover(client))
        for word in self._words:
            await self._resource(word, client)

    async def _ask_identity(self, client: Client) -> StepResult:
        answer, self._identity = await server.identity(client)
        return answer

    async def _discover(self, client: Client) -> StepResult:
        answer, self._discovered = await server.discovery(client)
        return answer

    async def _resource(self, word: str, client: Client) -> None:
        steps = self._examination
        found: list[ResourceScope] = []

        async def find() -> StepResult:
            served = await resource.find(word, client, discovered=self._discovered)
            place = self._place(served, client)
            answer = judging.served(served, place.words)
            if answer.mark != "failed":
                found.append(place)

            return answer

        await steps.step("found", find(), resource=word)
        if found:
            await self._follow(word, found[0], client)
        else:
            why = "informers cannot use it"
            await steps.leave_out(*_OF_A_RESOURCE, why=why, resource=word)

    async def _follow(self, word: str, place: ResourceScope, client: Client) -> None:
        """Check a resource as an informer uses it, until a step fails."""
        steps, denied, versions = self._examination, set[str](), list[str]()

        async def ask() -> StepResult:
            try:
                denied.update(await resource.denied(place, client))
            except (Forbidden, NotFound) as exc:
                return StepResult("skipped", f"the server refused the review: {exc}")

            return judging.permissions(denied)

        async def list_() -> StepResult:
            try:
                answer, version = await resource.listing(place, client)
            except Forbidden as exc:
                self._is_refused("list", denied, exc)
                raise

            versions.append(version)
            return answer

        async def watch() -> StepResult:
            try:
                return await resource.watching(
                    place, client, versions[0], steps.seconds
                )
            except Forbidden as exc:
                self._is_refused("watch", denied, exc)
                raise

        await steps.step("permissions", ask(), resource=word)
        later = ("list", "watch", "watch list")
        if "list" in denied:
            await steps.leave_out(*later, why="list is not permitted", resource=word)
        elif not await steps.step("list", list_(), resource=word):
            why = "list failed"
            await steps.leave_out(*later[1:], why=why, resource=word)
        elif "watch" in denied:
            why = "watch is not permitted"
            await steps.leave_out(*later[1:], why=why, resource=word)
        elif not await steps.step("watch", watch(), resource=word):
            why = "watch failed"
            await steps.leave_out(*later[2:], why=why, resource=word)
        else:
            asked = resource.watch_list(place, client, steps.seconds)
            await steps.step("watch list", asked, resource=word)

        if denied & {"list", "watch"}:
            self.needs.append(MissingPermission(place.resource, place.namespace))

    # ------------------------------------------------------------ help

    def _is_refused(self, verb: str, denied: set[str], exc: Forbidden) -> None:
        """Note a missing permission, and the user that the refusal names."""
        denied.add(verb)
        if not self._identity.user:
            self._identity = Identity(judging.name_in(exc.message))

    def _place(self, served: ServedResource, client: Client) -> ResourceScope:
        found = served.resource
        if not found.namespaced or self._all_namespaces:
            return ResourceScope(found)

        namespace = self._namespace or self._target.namespace(client.config)
        return ResourceScope(found, namespace or "")

    def _check_group(self) -> None:
        groups = self._identity.groups
        if self._group and groups and self._group not in groups:
            raise CommandError(
                f"--group {self._group}: you are not in this group, but in "
                f"{', '.join(groups)}."
            )

    async def _leave_out(self, *names: str, why: str) -> None:
        """Skip these steps and all further ones."""
        later = ("identity", "discovery")
        await self._examination.leave_out(*names, *later, why=why)
        for word in self._words:
            await self._examination.leave_out("found", why=why, resource=word)


_CHECK_SERVER = "Check the server, firewalls and proxies."


class StepRunner:
    """Runner of steps with a timeout. A failed step does not end the others.

    Args:
        seconds: Timeout of each step.
        tell: Callback for each finding.

    Attributes:
        findings: Findings so far, in order.
        secrets: Texts to remove from findings. A server may repeat what it was sent.
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
        doing: Awaitable[StepResult],
        *,
        resource: str = "",
        late: str = _CHECK_SERVER,
    ) -> bool:
        """Run a step, and record its finding. Errors and timeouts are findings, too.

        Args:
            name: Name of the step.
            doing: Awaitable that does the step.
            resource: Resource of the step, or empty for the server.
            late: Advice after a timeout.

        Returns:
            False if the step failed.

        Raises:
            InternalError: After a bug of this package.

        Cancellation:
            Ends the step, which is not kept.
        """
        loop = asyncio.get_running_loop()
        before = loop.time()
        try:
            async with asyncio.timeout(self.seconds):
                answer = await doing
        except TimeoutError:
            text = f"timed out after {self.seconds:g} s (--timeout). {late}"
            answer = StepResult("failed", text)
        except InternalError:
            raise
        except (AioInformerError, CommandError) as exc:
            answer = StepResult("failed", message_of(exc))

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
        """Record skipped steps, with the reason.

        Cancellation:
            Safe: what was told is kept.
        """
        for name in names:
            finding = Finding(step=name, mark="skipped", text=why, resource=resource)
            await self._keep(finding)

    async def _keep(self, finding: Finding) -> None:
        text = finding.text
        for secret in self.secrets:
            text = text.replace(secret, "...")

        # Names and reasons come from the server, too.
        finding = replace(finding, text=printable(" ".join(text.split())))
        self.findings.append(finding)
        await self._tell(finding)
