"""The paper's battery study. It uses the public face of `equipoise` only, and is not part of the installed package."""
