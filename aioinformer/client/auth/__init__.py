"""Authentication: credentials, exec plugins, TLS.

Rules of this layer: secrets appear in no `repr`, log line or error. Files are read, SSL
contexts are built and plugins run in threads.
"""

from aioinformer.client.auth.credentials import AuthInfo, AuthSource, Credentials
from aioinformer.client.auth.exec_plugin import ExecPlugin
from aioinformer.client.auth.tls import TLSOptions

__all__ = ["AuthInfo", "AuthSource", "Credentials", "ExecPlugin", "TLSOptions"]
