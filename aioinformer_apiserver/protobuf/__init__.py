"""Reads the binary encoding of Kubernetes, which kubectl sends what it generates in.

It is read and never written: whoever sends it accepts answers in JSON.
"""
