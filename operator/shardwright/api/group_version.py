"""How the resource is called on the wire; fixed for the life of the API."""

from typing import Final

GROUP: Final = "shardwright.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "ShardedModel"
PLURAL: Final = "shardedmodels"
SINGULAR: Final = "shardedmodel"
SHORT_NAMES: Final = ("smodel",)
CATEGORIES: Final = ("inference",)
