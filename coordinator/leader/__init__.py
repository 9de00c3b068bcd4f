"""One term of leadership: what is known becomes a map, and the map becomes public."""
