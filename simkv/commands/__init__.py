"""One module a command: ``add(commands)`` declares it, ``run(args)`` does it. Heavy imports stand inside ``run``."""
