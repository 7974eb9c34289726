"""Delivery to event handlers: the processor and its listeners."""
