"""Bayesian neural networks that obey known balances."""

import lazy_loader

# __init__.pyi lists the public names. They are imported when they are first used: importing torch takes seconds, and
# the command line must answer --help without it.
_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    return _version() if name == "__version__" else _attribute(name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("equipoise")
    except PackageNotFoundError:  # a source tree that was never installed
        return "unknown"
