"""Checks of `aioinformer doctor`.

`server` and `resource` ask a cluster. `results` and `rbac_rules` say what the answers mean.
Those two and `findings` are pure.
"""
