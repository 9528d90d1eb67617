from . import model_file as model_file
from .header import (
    ArtifactError as ArtifactError,
    Description as Description,
    describe as describe,
    parse_description as parse_description,
)
from .model_file import (
    check_fitted as check_fitted,
    describe_model as describe_model,
    load as load,
    save as save,
    write as write,
)
