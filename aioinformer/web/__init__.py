"""What a web app mounts to show how its informers are doing. Empty so far.

The law of this layer: it reads from informers and never steers them; aiohttp and ASGI
come in here and go no further down.
"""
