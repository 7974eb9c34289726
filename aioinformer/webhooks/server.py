"""`WebhookServer`, and routes for aiohttp apps."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiohttp import web

from aioinformer._runnables import wait_until_cancelled
from aioinformer._tasks import finish
from aioinformer._user_code import guarded_logger
from aioinformer.errors import OptionsError
from aioinformer.web.aiohttp import check_port, runner_of
from aioinformer.webhooks.certificates import Certificate
from aioinformer.webhooks.reviews import Webhooks, status_response

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable
    from typing import NoReturn

    from aioinformer.errors import HandlerError
    from aioinformer.metrics import MetricsSink
    from aioinformer.web.responses import HTTPResponse
    from aioinformer.webhooks.reviews import Hook

__all__ = ["WebhookServer", "webhook_routes"]

logger: Final = guarded_logger(__name__)

DRAIN_SECONDS = 5.0
"""Time for reviews in progress when the server ends."""


class WebhookServer:
    """HTTPS server of webhooks, which runs in a manager.

    ::

        server = WebhookServer([check_image, set_defaults], cert_dir="/certs")
        manager.add(server, leader_only=False)
        manager.serve(checks={"webhooks": server.why_not_serving})

    It runs on every replica, as the API server calls any of them. It loads the
    certificate again when its files change. Connections stay open, and handshakes in
    progress get either the old pair or the new one.

    Failures of the functions are logged, counted and passed to `on_error`. The API server
    gets an HTTP error that names the webhook, and applies the failure policy.

    Args:
        hooks: Functions that are decorated by `validating`, `mutating` or `conversion`.
        port: Port to listen on; 0 for any free one. Then pass a host: IPv4 and IPv6
            would have different ports.
        host: Address to listen on. None for all addresses.
        cert_dir: Folder with `tls.crt` and `tls.key`, as of a Secret of the type
            `kubernetes.io/tls`. Without it and `certfile`, the server speaks plain HTTP,
            which a kube-apiserver does not.
        certfile: File of the certificate chain, instead of the folder.
        keyfile: File of the private key, instead of the folder.
        metrics: Sink that counts calls and measures their durations.
        on_error: Function called with each failure of a function.

    Raises:
        OptionsError: If there are no webhooks, two have the same name, the files are
            named incompletely, or the port is invalid.
    """

    def __init__(
        self,
        hooks: Iterable[Hook] | Hook,
        *,
        port: int = 9443,
        host: str | None = None,
        cert_dir: str | Path | None = None,
        certfile: str | Path | None = None,
        keyfile: str | Path | None = None,
        metrics: MetricsSink | None = None,
        on_error: Callable[[HandlerError], None] | None = None,
    ) -> None:
        if (certfile is None) != (keyfile is None):
            raise OptionsError("a certificate has two files: pass certfile and keyfile")

        if cert_dir is not None and certfile is not None:
            raise OptionsError("pass either cert_dir, or certfile and keyfile")

        if cert_dir is not None:
            certfile, keyfile = Path(cert_dir, "tls.crt"), Path(cert_dir, "tls.key")

        check_port(port)
        self._webhooks = Webhooks(hooks, metrics=metrics, on_error=on_error)
        self._host = host
        self._port = port
        self._certificate: Certificate | None = None
        if certfile is not None and keyfile is not None:
            self._certificate = Certificate(Path(certfile), Path(keyfile))

        self._serving = False

    def __repr__(self) -> str:
        state = "serving" if self._serving else "idle"
        return f"<WebhookServer {state} port={self._port}>"

    def set_metrics(self, sink: MetricsSink) -> None:
        """Set the sink of metrics, unless the server has one.

        A `Manager` with a sink calls it.
        """
        self._webhooks.set_metrics(sink)

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """Webhooks that it serves."""
        return self._webhooks.hooks

    @property
    def port(self) -> int:
        """Port that it listens on: 0 for any free one, until it runs."""
        return self._port

    def why_not_serving(self) -> str:
        """Return why it does not serve, or an empty string. A check for `/readyz`."""
        return "" if self._serving else "the webhook server does not listen yet"

    async def run(self) -> NoReturn:
        """Serve until cancelled.

        Raises:
            OptionsError: If the certificate cannot be loaded.
            OSError: If the port is in use.

        Cancellation:
            Stops listening, and waits up to 5 s for reviews in progress. Threads of plain
            functions that take longer are left to themselves, with a warning.
        """
        app = web.Application()
        app.add_routes(_routes(self._webhooks))
        runner = runner_of(app, shutdown_timeout=DRAIN_SECONDS / 2)
        given = self._port
        try:
            context = await self._context()
            await runner.setup()
            try:
                site = web.TCPSite(runner, self._host, given, ssl_context=context)
                await site.start()
            except OSError as exc:
                where = f"{self._host or 'all addresses'}, port {given}"
                reason = exc.strerror or exc
                raise OSError(
                    exc.errno, f"webhook server cannot listen on {where}: {reason}"
                ) from None

            self._port = runner.addresses[0][1]
            self._serving = True
            logger.info("webhook server: listening (port=%d)", self._port)
            if self._certificate is None:
                await wait_until_cancelled()
            else:
                await self._certificate.follow()
        finally:
            self._serving = False
            self._port = given
            await finish(self._end(runner), within_seconds=DRAIN_SECONDS + 1)

        raise AssertionError("unreachable")

    async def _context(self) -> ssl.SSLContext | None:
        if self._certificate is None:
            logger.warning(
                "webhook server: serves plain HTTP, but a kube-apiserver requires HTTPS "
                "(pass cert_dir=)"
            )
            return None

        return await self._certificate.load()

    async def _end(self, runner: web.AppRunner) -> None:
        deadline = asyncio.get_running_loop().time() + DRAIN_SECONDS
        await runner.cleanup()  # takes up to twice its timeout
        try:
            async with asyncio.timeout_at(deadline):
                await self._webhooks.calls.ended()
        except TimeoutError:
            logger.warning(
                "webhook server: a plain function still runs after the end of the server"
            )


def webhook_routes(
    hooks: Iterable[Hook] | Hook,
    *,
    metrics: MetricsSink | None = None,
    on_error: Callable[[HandlerError], None] | None = None,
) -> list[web.RouteDef]:
    """Return the routes of webhooks, for an aiohttp app.

    The app may require no authentication for them, as API servers send none by default.
    They must be reachable by HTTPS.

    Args:
        hooks: See `WebhookServer`, also for all further arguments.
        metrics: See `WebhookServer`.
        on_error: See `WebhookServer`.

    Raises:
        OptionsError: See `WebhookServer`.
    """
    return _routes(Webhooks(hooks, metrics=metrics, on_error=on_error))


def _routes(webhooks: Webhooks) -> list[web.RouteDef]:
    return [web.post(path, partial(_answer, webhooks, path)) for path in webhooks.paths]


async def _answer(webhooks: Webhooks, path: str, request: web.Request) -> web.Response:
    # Not `request.read()`: the limit of an app is one megabyte by default.
    receive = request.content.readany
    timeout = request.query.get("timeout", "")
    try:
        return _response(await webhooks.answer_received(path, receive, timeout))
    except (ConnectionError, TimeoutError):  # the caller has left, and gets nothing
        return web.Response(status=400)
    except web.RequestPayloadError:  # such as a wrong Content-Encoding
        request.content.feed_eof()  # aiohttp would read on, and log the error again
        text = "malformed review: its body cannot be decoded"
        answer = _response(status_response(400, "BadRequest", text))
        answer.force_close()
        return answer


def _response(answer: HTTPResponse) -> web.Response:
    headers = {"Content-Type": answer.content_type}
    return web.Response(status=answer.status, body=answer.body, headers=headers)
