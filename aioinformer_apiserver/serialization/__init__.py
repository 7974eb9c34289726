"""Objects as responses: whole objects, metadata or tables, in JSON or YAML.

Rule of this package: it is pure, and encodes long lists in pieces.
"""
