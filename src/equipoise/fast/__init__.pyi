from . import layers as layers, training_step as training_step
from .compilation import notify_on_compilation as notify_on_compilation
from .normals import fill_noise as fill_noise
