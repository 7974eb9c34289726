"""From the store to event handlers: the processor and its listeners."""
