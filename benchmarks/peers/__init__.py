"""Other libraries for the same work, each in a file of its own; none of them is needed to run the benchmarks."""

import importlib
import warnings
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

PACKAGES = {  # names of the files here, and of the packages on the registry
    "numpyro": "numpyro",
    "pyro": "pyro-ppl",
    "bayesian_torch": "bayesian-torch",
    "torchbnn": "torchbnn",
    "blitz": "blitz-bayesian-pytorch",
    "torch_uncertainty": "torch-uncertainty",
    "posteriors": "posteriors",
    "tyxe": "tyxe",
    "cvxpylayers": "cvxpylayers",
    "qpth": "qpth",
}
LEFT_OUT = {"torch_uncertainty": "brings a torchvision that does not load beside this torch"}  # of the extra `bench`
TITLES = {"numpyro": "NumPyro", "pyro": "Pyro", "torch_uncertainty": "torch-uncertainty", "tyxe": "TyXe"}
TITLES = {name: TITLES.get(name, name.replace("_", "-")) for name in PACKAGES}


def installed(name: str) -> str | None:
    """The version of a peer; None where it is not installed."""
    try:
        return version(PACKAGES[name])
    except PackageNotFoundError:
        return None


def problem(name: str) -> str | None:
    """Why a peer cannot be used; None where it can. Loads it to find out."""
    if (found := installed(name)) is None:
        reason = f" ({LEFT_OUT[name]})" if name in LEFT_OUT else ""
        return f"not installed: pip install {PACKAGES[name]}{reason}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            load(name)
        except Exception as error:  # whatever a package does wrong when it is imported
            return f"{found} is installed, but does not load: {str(error).splitlines()[0]}"
    return None


def load(name: str) -> ModuleType:
    """The file of a peer that is installed."""
    return importlib.import_module(f"benchmarks.peers.{name}")


def versions() -> dict[str, str]:
    """Of the peers that are installed, and of JAX, which NumPyro computes with."""
    found = {PACKAGES[name]: installed(name) for name in PACKAGES}
    if installed("numpyro"):
        found["jax"] = version("jax")
    return {package: number for package, number in found.items() if number is not None}


def absences() -> dict[str, str]:
    """The peers that cannot be used, each with its reason."""
    found = {PACKAGES[name]: problem(name) for name in PACKAGES}
    return {package: why for package, why in found.items() if why is not None}
