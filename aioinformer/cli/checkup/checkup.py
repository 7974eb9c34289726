"""`Checkup`: the steps of `aioinformer doctor`, one after the other, and what they need."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioinformer.cli.checkup import judging, resource, server, way
from aioinformer.cli.checkup.findings import Answer
from aioinformer.cli.checkup.resource import Place
from aioinformer.cli.checkup.rules import Need, subject_of
from aioinformer.cli.checkup.server import Identity
from aioinformer.cli.explain import CommandError
from aioinformer.client import Client
from aioinformer.client.authenticator import Authenticator
from aioinformer.errors import Forbidden, NotFound

if TYPE_CHECKING:
    from aioinformer.cli.checkup.examination import Examination
    from aioinformer.cli.checkup.rules import Subject
    from aioinformer.cli.target import Target
    from aioinformer.client import ClientConfig
    from aioinformer.client.authenticator import RequestAuth
    from aioinformer.client.rest_mapper import ServedResource

__all__ = ["Checkup"]

_OF_A_RESOURCE = ("permissions", "list", "watch", "watch list")

# Shorter ones are parts of other words.
_SECRET_CHARACTERS = 8


class Checkup:
    """Looks at a cluster from outside inwards; what cannot be asked any more is left out.

    Args:
        target: Which cluster, and as whom.
        examination: Does the steps, and keeps their findings.
        words: The resources, as `Discovery` takes them.
        namespace: Where; None for the one that the target means.
        all_namespaces: In all of them; then there is no `namespace`.
        group: Whom rules are for, if not for the user alone.

    Attributes:
        needs: What we may not list and watch.
    """

    def __init__(
        self,
        target: Target,
        examination: Examination,
        *,
        words: tuple[str, ...],
        namespace: str | None = None,
        all_namespaces: bool = False,
        group: str = "",
    ) -> None:
        self.needs: list[Need] = []
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
        """Whom rules are for; None if nobody has logged in, or it is not known who."""
        return subject_of(self._identity.user, self._group)

    async def run(self) -> None:
        """Do all steps.

        Raises:
            CommandError: We are not in the group that was named.

        Cancellation:
            Ends the step; connections are closed, and an exec plugin is killed.
        """
        steps, config = self._examination, await self._configuration()
        if config is None:
            later = ("credentials", "connection", "TLS", "version")
            await self._leave_out(*later, why="there is no configuration")
            return

        client = Client(config)
        try:
            late = f"They are to come from {config.credentials}: try that by hand."
            entered = await steps.step("credentials", self._enter(client), late=late)
            reached = await steps.step("connection", way.connection(config))
            if not entered:
                await self._leave_out("TLS", "version", why="there are no credentials")
            elif not reached:
                await self._leave_out("TLS", "version", why="there is no connection")
            else:
                await self._ask(client, self._tickets[0])
        finally:
            await client.close()

    # ------------------------------------------------------------ one by one

    async def _configuration(self) -> ClientConfig | None:
        found: list[ClientConfig] = []

        async def read() -> Answer:
            source = await asyncio.to_thread(self._target.source)
            config = await asyncio.to_thread(self._target.read)
            found.append(config)
            return judging.configuration(config, source)

        await self._examination.step("configuration", read())
        return found[0] if found else None

    async def _enter(self, client: Client) -> Answer:
        await client.start()
        # Of its own: the client keeps the one that it has to itself.
        ticket = await Authenticator(client.config).current()
        _, _, secret = ticket.info.authorization.partition(" ")
        if len(secret) >= _SECRET_CHARACTERS:
            self._examination.secrets.add(secret)

        self._tickets.append(ticket)
        return Answer("ok", "at hand")

    async def _ask(self, client: Client, ticket: RequestAuth) -> None:
        steps = self._examination
        if not await steps.step("TLS", way.tls(client, ticket)):
            await self._leave_out("version", why="there is no TLS with it")
            return

        if way.has_certificate(client.config, ticket):
            own = way.client_certificate(client.config, ticket)
            await steps.step("client certificate", own)

        if not await steps.step("version", server.version(client)):
            await self._leave_out(why="it did not answer as it should")
            return

        await steps.step("identity", self._ask_identity(client))
        self._check_group()
        await steps.step("discovery", self._discover(client))
        for word in self._words:
            await self._resource(word, client)

    async def _ask_identity(self, client: Client) -> Answer:
        answer, self._identity = await server.identity(client)
        return answer

    async def _discover(self, client: Client) -> Answer:
        answer, self._discovered = await server.discovery(client)
        return answer

    async def _resource(self, word: str, client: Client) -> None:
        steps = self._examination
        found: list[Place] = []

        async def find() -> Answer:
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
            why = "no informer can follow it"
            await steps.leave_out(*_OF_A_RESOURCE, why=why, resource=word)

    async def _follow(self, word: str, place: Place, client: Client) -> None:
        """Ask as an informer would; each step only if the one before makes sense of it."""
        steps, denied, versions = self._examination, set[str](), list[str]()

        async def ask() -> Answer:
            try:
                denied.update(await resource.denied(place, client))
            except (Forbidden, NotFound) as exc:
                return Answer("not asked", f"the server does not tell: {exc}")

            return judging.permissions(denied)

        async def list_() -> Answer:
            try:
                answer, version = await resource.listing(place, client)
            except Forbidden as exc:
                self._is_refused("list", denied, exc)
                raise

            versions.append(version)
            return answer

        async def watch() -> Answer:
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
            await steps.leave_out(*later, why="it may not be listed", resource=word)
        elif not await steps.step("list", list_(), resource=word):
            why = "there is no list to begin with"
            await steps.leave_out(*later[1:], why=why, resource=word)
        elif "watch" in denied:
            why = "it may not be watched"
            await steps.leave_out(*later[1:], why=why, resource=word)
        elif not await steps.step("watch", watch(), resource=word):
            why = "it cannot be watched"
            await steps.leave_out(*later[2:], why=why, resource=word)
        else:
            asked = resource.watch_list(place, client, steps.seconds)
            await steps.step("watch list", asked, resource=word)

        if denied & {"list", "watch"}:
            self.needs.append(Need(place.resource, place.namespace))

    # ------------------------------------------------------------ help

    def _is_refused(self, verb: str, denied: set[str], exc: Forbidden) -> None:
        """Take note that rules would help, and of whom the refusal names."""
        denied.add(verb)
        if not self._identity.user:
            self._identity = Identity(judging.name_in(exc.message))

    def _place(self, served: ServedResource, client: Client) -> Place:
        found = served.resource
        if not found.namespaced or self._all_namespaces:
            return Place(found)

        namespace = self._namespace or self._target.namespace(client.config)
        return Place(found, namespace or "")

    def _check_group(self) -> None:
        groups = self._identity.groups
        if self._group and groups and self._group not in groups:
            raise CommandError(
                f"--group {self._group}: the server does not take you for one of this "
                f"group, but of {', '.join(groups)}."
            )

    async def _leave_out(self, *names: str, why: str) -> None:
        """Leave these steps out, and all that follow."""
        later = ("identity", "discovery")
        await self._examination.leave_out(*names, *later, why=why)
        for word in self._words:
            await self._examination.leave_out("found", why=why, resource=word)
