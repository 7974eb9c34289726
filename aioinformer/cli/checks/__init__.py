"""Checks of `aioinformer doctor`.

`server` and `resource` send requests. `results` and `rbac_rules` derive findings and
rules from the responses. Those two and `findings` are pure.
"""
