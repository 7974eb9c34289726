"""The parts of `aioinformer doctor`: what is looked at, and what that means.

`findings`, `judging` and `rules` are pure: they say what facts mean. `way`, `server` and
`resource` get the facts; `examination` gives each step its time.
"""
