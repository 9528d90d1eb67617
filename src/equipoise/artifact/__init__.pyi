from . import model_file as model_file
from .header import (
    ArtifactError as ArtifactError,
    Description as Description,
    describe as describe,
    validated as validated,
)
from .model_file import (
    check_fitted as check_fitted,
    description_of as description_of,
    load as load,
    save as save,
    write as write,
)
