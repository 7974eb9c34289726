"""What a web app mounts: how its informers are doing, and their objects as they change.

The law of this layer: it reads from informers and never steers them; aiohttp and ASGI
come in here and go no further down.

    aiohttp, asgi       the same three for each: `health_routes`, `metrics_routes`,
                        `event_stream`; import from the one that fits the app
    streams             `EventStream`, for whoever has neither
    health, metrics     what is answered, on answers
    journal, frames, selection    what is streamed: plain state and bytes

Importing this package loads nothing; only `aioinformer.web.aiohttp` loads aiohttp.
"""
