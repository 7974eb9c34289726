"""Endpoints for web apps: health, metrics, and streams of an informer's objects.

This layer reads from informers and never controls them. aiohttp and ASGI stay in it. A
`Manager` serves what is here by `Manager.serve()`.

    aiohttp, asgi       `health_routes`, `metrics_routes` and `event_stream`; import them
                        from the module that fits the app
    streams             `EventStream`, for other frameworks
    health, metrics, debug   responders of the endpoints
    checks              own checks of an app, for health
    responses           responses and server-sent events as bytes
    change_log, selection    state of a stream, and which objects a reader gets

Importing this package loads nothing. Only `aioinformer.web.aiohttp` loads aiohttp.
"""
