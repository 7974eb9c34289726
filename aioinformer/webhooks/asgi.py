"""`webhook_app`: an ASGI app of webhooks, for any framework."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from aioinformer.web import asgi
from aioinformer.webhooks.reviews import Webhooks, status_response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioinformer.errors import HandlerError
    from aioinformer.metrics import MetricsSink
    from aioinformer.web.asgi import Receive, Scope, Send
    from aioinformer.web.responses import HTTPResponse
    from aioinformer.webhooks.reviews import Hook

__all__ = ["WebhookApp", "webhook_app"]


def webhook_app(
    hooks: Iterable[Hook] | Hook,
    *,
    metrics: MetricsSink | None = None,
    on_error: Callable[[HandlerError], None] | None = None,
) -> WebhookApp:
    """Return an ASGI app of webhooks, to mount or to run.

    ::

        app = FastAPI()
        app.mount("/", webhook_app([check_image, set_defaults]))

    Run it with HTTPS: `uvicorn app:app --ssl-certfile ... --ssl-keyfile ...`. uvicorn does
    not load a new certificate by itself.

    Args:
        hooks: See `WebhookServer`, also for all further arguments.
        metrics: See `WebhookServer`.
        on_error: See `WebhookServer`.

    Raises:
        OptionsError: See `WebhookServer`.
    """
    return WebhookApp(Webhooks(hooks, metrics=metrics, on_error=on_error))


class WebhookApp:
    """ASGI app of webhooks. Made by `webhook_app`.

    Paths are relative to the mount. Other paths get 404, methods other than POST 405.
    Lifespan events are accepted and ignored.

    Args:
        webhooks: Endpoints.
    """

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    def __repr__(self) -> str:
        return f"<WebhookApp {' '.join(self._webhooks.paths)}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if not await asgi.is_request(scope, receive, send):
            return

        answer = await self._answer(scope, receive)
        if answer is not None:
            await asgi.send_response(scope, send, answer)

    async def _answer(self, scope: Scope, receive: Receive) -> HTTPResponse | None:
        if scope["method"] != "POST":
            return status_response(405, "MethodNotAllowed", "a review is sent by POST")

        more = True

        async def receive_body() -> bytes:
            nonlocal more
            chunk = b""
            while more and not chunk:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ConnectionResetError("the caller has left")

                chunk = message.get("body", b"")
                more = message.get("more_body", False)

            return chunk

        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        timeout = query.get("timeout", [""])[0]
        path = asgi.path_below(scope)
        try:
            return await self._webhooks.answer_received(path, receive_body, timeout)
        except ConnectionResetError:
            return None
