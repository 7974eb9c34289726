"""Authentication: credentials, exec plugins, TLS.

The law of this layer: secrets show in no `repr`, log line or error. Files are read, SSL
contexts built and plugins run in threads.
"""

from aioinformer.client.auth.credentials import AuthInfo, AuthSource, Credentials
from aioinformer.client.auth.exec_plugin import ExecPlugin
from aioinformer.client.auth.tls import TLSOptions

__all__ = ["AuthInfo", "AuthSource", "Credentials", "ExecPlugin", "TLSOptions"]
