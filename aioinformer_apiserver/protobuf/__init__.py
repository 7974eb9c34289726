"""Decoder of the Protocol Buffers encoding, in which kubectl sends generated objects.

There is no encoder, because clients that send it accept responses in JSON.
"""
