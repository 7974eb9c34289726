"""What a CustomResourceDefinition says, whether it may, and what follows from it.

The law of this package: pure functions over bodies; nothing given is changed.
"""
