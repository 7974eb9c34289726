"""`aioinformer doctor`: checks that informers work with a cluster."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from aioinformer import json_codec
from aioinformer.cli import FAILED_CHECK
from aioinformer.cli.checks import resource, results, server
from aioinformer.cli.checks.findings import (
    Finding,
    StepResult,
    has_failed,
    summary,
)
from aioinformer.cli.checks.rbac_rules import (
    SHARDS_VERBS,
    MissingPermission,
    as_yaml,
    manifests,
    subject_of,
)
from aioinformer.cli.checks.resource import ResourceScope
from aioinformer.cli.checks.server import Identity
from aioinformer.cli.error_messages import CommandError, message_of
from aioinformer.cli.output import Control, has_colors, print_error, write
from aioinformer.client import Client
from aioinformer.client.authenticator import Authenticator
from aioinformer.errors import AioInformerError, Forbidden, InternalError, NotFound
from aioinformer.model.resources import PODS
from aioinformer.tables.columns import printable

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
_COLORS: dict[StepStatus, Control] = {
    "ok": Control("\x1b[32m"),
    "warning": Control("\x1b[33m"),
    "failed": Control("\x1b[31m"),
    "skipped": Control("\x1b[90m"),
}


_NO_COLOR = Control("\x1b[0m")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """Options of the command."""

    resources: tuple[str, ...] = ("pods",)
    """Names of resources, as for `Discovery`."""

    namespaces: tuple[str, ...] = ()
    """Namespaces. Empty for the default of the connection."""

    all_namespaces: bool = False
    """True for all namespaces, without `namespaces`."""

    group: str = ""
    """Group to bind rules to. Empty for the user."""

    shards: bool = False
    """True to check the permissions of `Shards` on Leases and Events, too."""

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
    if options.namespaces and options.all_namespaces:
        raise CommandError("-n and -A cannot be combined: omit one of them.")

    # These fail on invalid options before anything is read.
    for namespace in options.namespaces:
        PODS.path(namespace)

    target.client()

    steps = StepRunner(options.seconds, _output_of(options))
    checks = ClusterChecks(
        target,
        steps,
        names=tuple(dict.fromkeys(options.resources)),
        namespaces=options.namespaces,
        all_namespaces=options.all_namespaces,
        group=options.group,
        shards=options.shards,
    )
    await checks.run()
    await _conclude(options.report, steps.findings, checks)
    return FAILED_CHECK if has_failed(steps.findings) else 0


async def _conclude(
    report: Report, findings: list[Finding], checks: ClusterChecks
) -> None:
    subject = checks.subject
    rules = manifests(checks.needs, subject) if subject is not None else []
    unknown = bool(checks.needs) and subject is None
    match report:
        case "json":
            await write(_document(findings, rules))
        case "rules":
            await write(as_yaml(rules))
            if not rules:
                print_error(_UNKNOWN_USER if unknown else "no missing rules found.")
        case "lines":
            await write(f"\n{summary(findings)}\n")
            if rules:
                await write(f"\n{_APPLY}\n{as_yaml(rules)}")
            elif unknown:
                await write(f"{_UNKNOWN_USER}\n")


_APPLY = "# For an administrator (`-o rules` prints only this, for kubectl apply -f -):"


_UNKNOWN_USER = (
    "Cannot generate rules, as the server does not know your identity: log in first."
)


def _document(findings: list[Finding], rules: list[dict[str, Any]]) -> bytes:
    document = {
        "ok": not has_failed(findings),
        "summary": summary(findings),
        "findings": [it.document() for it in findings],
        "rules": rules,
    }
    return json_codec.dumps(document, option=json_codec.OPT_INDENT_2) + b"\n"


class _Lines:
    """Output of findings as lines, in colors on terminals."""

    def __init__(self, names: tuple[str, ...], namespaces: tuple[str, ...]) -> None:
        longest = max(map(len, names), default=0) + len(": permissions")
        if len(namespaces) > 1:
            longest += len(" in ") + max(map(len, namespaces))

        self._width = max(longest, len("client certificate"))
        self._colored = sys.stdout.isatty() and has_colors(os.environ)

    async def report(self, finding: Finding) -> None:
        line = finding.line(self._width)
        if self._colored:
            mark = finding.mark
            text = line.removeprefix(mark)
            await write(_COLORS[mark], mark, _NO_COLOR, f"{text}\n")
        else:
            await write(f"{line}\n")


def _output_of(options: DoctorOptions) -> Callable[[Finding], Awaitable[None]]:
    match options.report:
        case "lines":
            return _Lines(options.resources, options.namespaces).report
        case "rules":
            return _print_failure
        case "json":
            return _print_nothing


async def _print_failure(finding: Finding) -> None:
    """Print a failure on stderr, as stdout is for rules."""
    if finding.mark == "failed":
        print_error(finding.line())


async def _print_nothing(finding: Finding) -> None:
    pass


_RESOURCE_STEPS = ("permissions", "list", "watch", "watch list")


# Shorter ones may be parts of words.
_SECRET_CHARACTERS = 8


class ClusterChecks:
    """Checks of a cluster, in order. Steps that depend on a failed one are skipped.

    Args:
        target: Cluster and credentials.
        steps: Runner of the steps, which keeps their findings.
        names: Names of resources, as for `Discovery`.
        namespaces: Namespaces. Empty for the default of the connection.
        all_namespaces: True for all namespaces, without `namespaces`.
        group: Group to bind rules to. Empty for the user.
        shards: True to check the permissions of `Shards`, too.

    Attributes:
        needs: Missing permissions.
    """

    def __init__(
        self,
        target: ConnectionOptions,
        steps: StepRunner,
        *,
        names: tuple[str, ...],
        namespaces: tuple[str, ...] = (),
        all_namespaces: bool = False,
        group: str = "",
        shards: bool = False,
    ) -> None:
        self.needs: list[MissingPermission] = []
        self._target = target
        self._steps = steps
        self._names = names
        self._namespaces = namespaces
        self._all_namespaces = all_namespaces
        self._group = group
        self._shards = shards
        self._identity = Identity()
        self._discovered = False
        self._auths: list[RequestAuth] = []

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
        steps, config = self._steps, await self._configuration()
        if config is None:
            later = ("credentials", "connection", "TLS", "version")
            await self._skip(*later, why="no configuration")
            return

        client = Client(config)
        try:
            advice = f"Run {config.credentials} by hand."
            entered = await steps.step(
                "credentials", self._enter(client), advice=advice
            )
            reached = await steps.step("connection", server.connection(config))
            if not entered:
                await self._skip("TLS", "version", why="no credentials")
            elif not reached:
                await self._skip("TLS", "version", why="no connection")
            else:
                await self._check_server(client, self._auths[0])
        finally:
            await client.close()

    # ------------------------------------------------------------ steps

    async def _configuration(self) -> ClientConfig | None:
        found: list[ClientConfig] = []

        async def read() -> StepResult:
            source = await asyncio.to_thread(self._target.source)
            config = await asyncio.to_thread(self._target.read)
            found.append(config)
            return results.configuration(config, source)

        await self._steps.step("configuration", read())
        return found[0] if found else None

    async def _enter(self, client: Client) -> StepResult:
        await client.start()
        # A second authenticator, as that of the client is private.
        auth = await Authenticator(client.config).current()
        _, _, secret = auth.info.authorization.partition(" ")
        if len(secret) >= _SECRET_CHARACTERS:
            self._steps.secrets.add(secret)

        self._auths.append(auth)
        return StepResult("ok", "loaded")

    async def _check_server(self, client: Client, auth: RequestAuth) -> None:
        steps = self._steps
        if not await steps.step("TLS", server.tls(client, auth)):
            await self._skip("version", why="TLS failed")
            return

        if server.has_certificate(client.config, auth):
            own = server.client_certificate(client.config, auth)
            await steps.step("client certificate", own)

        if not await steps.step("version", server.version(client)):
            await self._skip(why="unexpected response")
            return

        await steps.step("identity", self._check_identity(client))
        self._check_group()
        await steps.step("discovery", self._discover(client))
        for name in self._names:
            await self._resource(name, client)

        if self._shards:
            for namespace in self._namespaces or (client.namespace,):
                for needed in SHARDS_VERBS:
                    await self._needs_of_shards(
                        ResourceScope(needed, namespace), client
                    )

    async def _check_identity(self, client: Client) -> StepResult:
        result, self._identity = await server.identity(client)
        return result

    async def _discover(self, client: Client) -> StepResult:
        result, self._discovered = await server.discovery(client)
        return result

    async def _resource(self, name: str, client: Client) -> None:
        steps = self._steps
        found: list[ResourceScope] = []

        async def find() -> StepResult:
            served = await resource.find(name, client, discovered=self._discovered)
            scopes = self._scopes(served, client)
            where = " and ".join(it.description for it in scopes)
            result = results.served(served, where)
            if result.mark != "failed":
                found.extend(scopes)

            return result

        await steps.step("found", find(), resource=name)
        for scope in found:
            # With one namespace, "found" shows it.
            label = scope.namespace if len(found) > 1 else ""
            await self._follow(name, scope, client, label)

        if not found:
            why = "informers cannot use it"
            await steps.skip(*_RESOURCE_STEPS, why=why, resource=name)

    async def _needs_of_shards(self, scope: ResourceScope, client: Client) -> None:
        """Check the permissions of `Shards` on Leases or Events of a namespace."""
        verbs = SHARDS_VERBS[scope.resource]

        async def review() -> StepResult:
            try:
                denied = await resource.denied(scope, client, verbs)
            except (Forbidden, NotFound) as exc:
                return StepResult("skipped", f"the server refused the review: {exc}")

            if denied:
                self.needs.append(
                    MissingPermission(scope.resource, scope.namespace, verbs)
                )

            return results.shards_permissions(verbs, denied)

        label = scope.namespace if len(self._namespaces) > 1 else ""
        await self._steps.step(
            "shards", review(), resource=scope.resource.plural, namespace=label
        )

    async def _follow(
        self, name: str, scope: ResourceScope, client: Client, namespace: str
    ) -> None:
        """Check a resource as an informer uses it, until a step fails.

        Args:
            name: Resource as given by the user.
            scope: Resource and namespace.
            client: Entered client.
            namespace: Namespace for the findings, or empty.
        """
        steps, denied, versions = self._steps, set[str](), list[str]()

        async def review() -> StepResult:
            try:
                denied.update(await resource.denied(scope, client))
            except (Forbidden, NotFound) as exc:
                return StepResult("skipped", f"the server refused the review: {exc}")

            return results.permissions(denied)

        async def list_() -> StepResult:
            try:
                result, version = await resource.listing(scope, client)
            except Forbidden as exc:
                self._is_refused("list", denied, exc)
                raise

            versions.append(version)
            return result

        async def watch() -> StepResult:
            try:
                return await resource.watching(
                    scope, client, versions[0], steps.seconds
                )
            except Forbidden as exc:
                self._is_refused("watch", denied, exc)
                raise

        of = {"resource": name, "namespace": namespace}
        await steps.step("permissions", review(), **of)
        later = ("list", "watch", "watch list")
        if "list" in denied:
            await steps.skip(*later, why="list is not permitted", **of)
        elif not await steps.step("list", list_(), **of):
            why = "list failed"
            await steps.skip(*later[1:], why=why, **of)
        elif "watch" in denied:
            why = "watch is not permitted"
            await steps.skip(*later[1:], why=why, **of)
        elif not await steps.step("watch", watch(), **of):
            why = "watch failed"
            await steps.skip(*later[2:], why=why, **of)
        else:
            check = resource.watch_list(scope, client, steps.seconds)
            await steps.step("watch list", check, **of)

        if denied & {"list", "watch"}:
            self.needs.append(MissingPermission(scope.resource, scope.namespace))

    # ------------------------------------------------------------ helpers

    def _is_refused(self, verb: str, denied: set[str], exc: Forbidden) -> None:
        """Record a missing permission, and the user that the refusal names."""
        denied.add(verb)
        if not self._identity.user:
            self._identity = Identity(results.name_in(exc.message))

    def _scopes(self, served: ServedResource, client: Client) -> list[ResourceScope]:
        found = served.resource
        if not found.namespaced or self._all_namespaces:
            return [ResourceScope(found)]

        default = self._target.namespace(client.config) or ""
        return [ResourceScope(found, it) for it in self._namespaces or (default,)]

    def _check_group(self) -> None:
        groups = self._identity.groups
        if self._group and groups and self._group not in groups:
            raise CommandError(
                f"--group {self._group}: you are not in this group, but in "
                f"{', '.join(groups)}."
            )

    async def _skip(self, *names: str, why: str) -> None:
        """Skip these steps and all further ones."""
        later = ("identity", "discovery")
        await self._steps.skip(*names, *later, why=why)
        for name in self._names:
            await self._steps.skip("found", why=why, resource=name)

        for needed in SHARDS_VERBS if self._shards else ():
            await self._steps.skip("shards", why=why, resource=needed.plural)


_CHECK_SERVER = "Check the server, firewalls and proxies."


class StepRunner:
    """Runner of steps with a timeout. A failed step does not end the others.

    Args:
        seconds: Timeout of each step.
        report: Callback for each finding.

    Attributes:
        findings: Findings so far, in order.
        secrets: Texts to remove from findings. A server may repeat what it was sent.
    """

    def __init__(
        self, seconds: float, report: Callable[[Finding], Awaitable[None]]
    ) -> None:
        self.findings: list[Finding] = []
        self.secrets: set[str] = set()
        self.seconds = seconds
        self._report = report

    async def step(
        self,
        name: str,
        check: Awaitable[StepResult],
        *,
        resource: str = "",
        namespace: str = "",
        advice: str = _CHECK_SERVER,
    ) -> bool:
        """Run a step, and record its finding. Errors and timeouts are findings, too.

        Args:
            name: Name of the step.
            check: Awaitable that does the step.
            resource: Resource of the step, or empty for the server.
            namespace: Namespace of the step, if several were given.
            advice: Advice after a timeout.

        Returns:
            False if the step failed.

        Raises:
            InternalError: After a bug of this package.

        Cancellation:
            Ends the step, which is not recorded.
        """
        loop = asyncio.get_running_loop()
        before = loop.time()
        try:
            async with asyncio.timeout(self.seconds):
                result = await check
        except TimeoutError:
            text = f"timed out after {self.seconds:g} s (--timeout). {advice}"
            result = StepResult("failed", text)
        except InternalError:
            raise
        except (AioInformerError, CommandError) as exc:
            result = StepResult("failed", message_of(exc))

        await self._keep(
            Finding(
                step=name,
                mark=result.mark,
                text=result.text,
                resource=resource,
                namespace=namespace,
                seconds=loop.time() - before,
            )
        )
        return result.mark != "failed"

    async def skip(
        self, *names: str, why: str, resource: str = "", namespace: str = ""
    ) -> None:
        """Record skipped steps, with the reason.

        Cancellation:
            Safe: recorded steps are kept.
        """
        for name in names:
            await self._keep(
                Finding(
                    step=name,
                    mark="skipped",
                    text=why,
                    resource=resource,
                    namespace=namespace,
                )
            )

    async def _keep(self, finding: Finding) -> None:
        text = finding.text
        for secret in self.secrets:
            text = text.replace(secret, "...")

        # Names and reasons come from the server, too.
        finding = replace(finding, text=printable(" ".join(text.split())))
        self.findings.append(finding)
        await self._report(finding)
