"""HTTP client of the API server: configuration, authentication, verbs, discovery.

The law of this layer: HTTP and its library stay inside. Errors of libraries are mapped
in `error_mapping`, aiohttp is loaded when a client is entered, and code that lists or
watches depends only on `aioinformer.watch.interface.ListerWatcher`.
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
