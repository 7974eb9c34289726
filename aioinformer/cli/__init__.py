"""The `aioinformer` command.

The law of this layer: it alone prints, sets up logging, listens to signals and ends the
process; the library never does. `main` imports nothing that may not be installed.
Deciding and drawing are pure functions; a coroutine shows what they say.
"""
