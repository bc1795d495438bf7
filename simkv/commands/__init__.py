"""One module a command: ``add(commands)`` declares it, ``run(args)`` does it. Heavy imports stand inside ``run``."""

OK, CHECK_FAILED, BAD_INPUT, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141
"""Exit codes. 130 and 141 are the shell's own for an interrupt and a closed pipe."""
