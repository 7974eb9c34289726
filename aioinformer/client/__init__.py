"""HTTP client of the API server: configuration, authentication, verbs, discovery.

Rules of this layer: other layers do not see HTTP or its library. Errors of libraries
are mapped in `error_mapping`. aiohttp is loaded when a client is entered. Code that
lists or watches depends only on `aioinformer.watch.interface.ListerWatcher`.
"""

from aioinformer.client.auth.credentials import Credentials
from aioinformer.client.auth.tls import TLSOptions
from aioinformer.client.client import Client
from aioinformer.client.config import ClientConfig
from aioinformer.client.conflicts import create_or_patch, retry_on_conflict
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
    "create_or_patch",
    "retry_on_conflict",
]
