"""Report: from a fitted model and a table to one self-contained HTML page of text, tables and figures."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
