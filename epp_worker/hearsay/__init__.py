"""What peers know, for a worker that starts while nobody else tells it anything.

All coordinators and the store may be away for long: the workers serve on, and one that restarts in
place takes its groups up again by what the others remember of it. A word of a leader or of the
store always counts for more.
"""
