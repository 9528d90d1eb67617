from . import layers as layers, training_step as training_step
from .compilation import told as told
from .normals import fill_noise as fill_noise

def enabled() -> bool: ...
