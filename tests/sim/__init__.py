"""A whole fleet in virtual time: the real code on a model of everything around it."""
