"""The internal port: messages and how they are coded."""
