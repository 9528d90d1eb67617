"""Cases: synthetic tables to compare methods on, each made by seeded code and described by a job file."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
