"""`Client`: the API server's verbs as coroutines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.client import verbs
from aioinformer.client.reading import Reading

if TYPE_CHECKING:
    from aioinformer.client.verbs import Body, PatchType, Propagation
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource

__all__ = ["Client"]


class Client(Reading):
    """Speaks to one API server.

    Enter it before use: `async with client:`, or `await client.start()` and
    `await client.close()`, which may happen in different tasks of one loop. Only then
    are files read and aiohttp imported. It can be entered again after it was closed.

    Requests are not limited in number, nor in rate unless told, and not repeated, except
    once after a 401 if the credentials could be renewed, and those that only read once
    more if a kept-alive connection turned out dead.

    Guarantees:
        After `close()` no connection, task or timer of it is left.
        Tokens and keys show in no `repr`, log line or error.

    Errors of every verb:
        ApiError: If the server refused; its subclasses say why.
        TransportError: If the network failed, or the client was closed. A write may
            have been done.
        DecodeError: If the answer cannot be read.
        OptionsError: If the client was never entered, or the arguments cannot work.
        WrongLoop: If it was entered in another event loop.

    Bodies are dicts, `KubeObject`, `msgspec.Struct`, Pydantic models (written by alias
    and without None) or kubernetes_asyncio models, also inside of dicts. `apiVersion` and
    `kind` may be missing from what is created, updated or applied if the `Resource` knows
    them. `dry_run=True` lets the server do everything but keep it; `field_manager` is the
    name under which it remembers who set a field.

    Args:
        source: The configuration, or a function that reads it, in a thread, each time
            when the client is entered.
        qps: How many requests are sent each second; None for any number. The others
            wait, in the order of asking. A watch counts when it is opened, and the
            requests of a `LeaseLock` neither wait nor count.
        burst: How many are sent at once after a pause; None for two seconds' worth,
            which is what client-go has.
        metrics: Takes the metrics of client-go's requests; see `RequestMeter`.

    Raises:
        OptionsError: If `qps` and `burst` cannot work.
    """

    # ------------------------------------------------------------ writing

    async def create(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> KubeObject:
        """Create an object.

        Args:
            resource: What it is.
            body: The object.
            namespace: Where; None for what the body says.
            dry_run: See the class.
            field_manager: See the class.

        Returns:
            The object as the server keeps it.

        Raises:
            AlreadyExists: If the name is taken; for other errors see the class.

        Cancellation:
            The connection is closed; the object may have been created.
        """
        request = verbs.create(
            resource,
            body,
            namespace=namespace,
            dry_run=dry_run,
            field_manager=field_manager,
        )
        return await self._object(request)

    async def update(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> KubeObject:
        """Replace the object that the body names (not its status).

        Args:
            resource: What it is.
            body: The whole object. With a `resourceVersion` it is replaced only if
                nobody changed it since.
            namespace: Where; None for what the body says.
            dry_run: See the class.
            field_manager: See the class.

        Returns:
            The object as the server keeps it.

        Raises:
            Conflict: If it was changed meanwhile; for other errors see the class.

        Cancellation:
            The connection is closed; the object may have been replaced.
        """
        request = verbs.update(
            resource,
            body,
            namespace=namespace,
            dry_run=dry_run,
            field_manager=field_manager,
        )
        return await self._object(request)

    async def update_status(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> KubeObject:
        """Replace the status of the object that the body names, and nothing else of it.

        Arguments, answer and errors are those of `update()`.

        Raises:
            Conflict: If it was changed meanwhile; for other errors see the class.

        Cancellation:
            The connection is closed; the status may have been replaced.
        """
        request = verbs.update(
            resource,
            body,
            namespace=namespace,
            subresource="status",
            dry_run=dry_run,
            field_manager=field_manager,
        )
        return await self._object(request)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Body,
        *,
        namespace: str | None = None,
        type: PatchType = "merge",  # noqa: A002 - the API's own word
        subresource: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
        force: bool = False,
    ) -> KubeObject:
        """Change parts of an object.

        Args:
            resource: What it is.
            name: Which one.
            body: For `"json"` a list of operations, else the parts to change.
            namespace: Where; needed for namespaced resources.
            type: `"merge"` (None deletes), `"json"`, `"strategic"` (built-in kinds
                only), or `"apply"` (creates it if needed; needs `field_manager`).
            subresource: Such as `"status"` or `"scale"`.
            dry_run: See the class.
            field_manager: See the class.
            force: For `"apply"`: take fields from other managers.

        Returns:
            The object as the server keeps it.

        Raises:
            NotFound: If there is none; for other errors see the class.

        Cancellation:
            The connection is closed; the object may have been changed.
        """
        request = verbs.patch(
            resource,
            name,
            body,
            namespace=namespace,
            type=type,
            subresource=subresource,
            dry_run=dry_run,
            field_manager=field_manager,
            force=force,
        )
        return await self._object(request)

    async def patch_status(
        self,
        resource: Resource,
        name: str,
        body: Body,
        *,
        namespace: str | None = None,
        type: PatchType = "merge",  # noqa: A002 - the API's own word
        dry_run: bool = False,
        field_manager: str | None = None,
        force: bool = False,
    ) -> KubeObject:
        """Change parts of an object's status: `patch(subresource="status")`.

        Raises:
            NotFound: If there is none; for other errors see the class.

        Cancellation:
            The connection is closed; the status may have been changed.
        """
        return await self.patch(
            resource,
            name,
            body,
            namespace=namespace,
            type=type,
            subresource="status",
            dry_run=dry_run,
            field_manager=field_manager,
            force=force,
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
        dry_run: bool = False,
    ) -> KubeObject | None:
        """Delete an object, or ask for it where finalizers or a grace period say wait.

        Args:
            resource: What it is.
            name: Which one.
            namespace: Where; needed for namespaced resources.
            uid: Only if it still is the one with this uid.
            propagation: What becomes of the objects that it owns; None for the kind's
                default.
            grace_seconds: How long it may take to end; None for its own.
            dry_run: See the class.

        Returns:
            The object, if it is still there or the server shows its last state; else
            None.

        Raises:
            NotFound: If there is none.
            Conflict: If it has another uid; for other errors see the class.

        Cancellation:
            The connection is closed; the object may have been deleted.
        """
        request = verbs.delete(
            resource,
            verbs.named(resource, name),
            namespace=namespace,
            uid=uid,
            propagation=propagation,
            grace_seconds=grace_seconds,
            dry_run=dry_run,
        )
        answer = await self._object(request)
        return None if answer.kind == "Status" else answer

    async def delete_collection(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete all objects that are selected: without selectors and namespace, all.

        Args:
            resource: What they are.
            namespace: Only those of this one; None for all, where the server allows it.
            label_selector: As kubectl accepts it.
            field_selector: As kubectl accepts it.
            propagation: What becomes of the objects that they own.
            grace_seconds: How long they may take to end.
            dry_run: See the class.

        Raises:
            SelectorSyntaxError: If a selector cannot be parsed; for other errors see
                the class.

        Cancellation:
            The connection is closed; any of them may have been deleted.
        """
        request = verbs.delete(
            resource,
            namespace=namespace,
            propagation=propagation,
            grace_seconds=grace_seconds,
            dry_run=dry_run,
            params=verbs.selection(label_selector, field_selector),
        )
        await self._fetch(request, discard=True)
