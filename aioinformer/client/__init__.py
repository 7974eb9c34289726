"""HTTP: where the API server is, who we are, and what can be asked of it.

The law of this layer: HTTP and its library stay inside. Foreign errors end in
`error_mapping`, aiohttp is loaded when a client is entered, and whoever lists or watches
sees `aioinformer.watch.interface.ListerWatcher` alone.
"""

from aioinformer.client.auth.credentials import Credentials
from aioinformer.client.auth.tls import TLSOptions
from aioinformer.client.client import Client
from aioinformer.client.config import ClientConfig
from aioinformer.client.discovery import Discovery
from aioinformer.client.list_watch import ListWatch
from aioinformer.client.pager import PagedList, Pager
from aioinformer.client.rest_mapper import ServedResource

__all__ = [
    "Client",
    "ClientConfig",
    "Credentials",
    "Discovery",
    "ListWatch",
    "PagedList",
    "Pager",
    "ServedResource",
    "TLSOptions",
]
