"""Every optimizer that a model holds, wherever its author put it.

Keras knows one optimizer of a model. A model whose ``train_step`` is its own, such as a GAN, keeps others in
attributes, lists, dictionaries, nested models and objects; each of them must average its gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING

import keras

if TYPE_CHECKING:
    from typing import TypeAlias

    #: A value and the path of attributes that leads to it.
    Place: TypeAlias = tuple[str, object]

#: Packages whose objects hold no optimizer of the user's, except Keras's layers and models.
_FOREIGN = {
    "keras",
    "tensorflow",
    "torch",
    "numpy",
    "horovod",
    "builtins",
    "threading",
    "weakref",
    "_thread",
    "logging",
}


def optimizers_of(model: keras.Model) -> dict[str, keras.optimizers.Optimizer]:
    """Returns the optimizers of a model by the path of their attributes, such as ``"critic.optimizer"``.

    An optimizer with loss scaling is one optimizer, not two. Its order is the same on all ranks.
    """
    found: dict[str, keras.optimizers.Optimizer] = {}
    seen = {id(model)}
    waiting: list[Place] = list(_inside("", model))
    while waiting:
        path, value = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, keras.optimizers.Optimizer):
            found[path] = value
            seen.add(id(getattr(value, "inner_optimizer", None)))
        else:
            waiting.extend(_inside(path, value))
    return found


def _inside(path: str, value: object) -> Iterator[Place]:
    """Yields what a value contains; nothing if it cannot contain an optimizer."""
    if isinstance(value, Mapping):
        yield from ((f"{path}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"{path}[{number}]", part) for number, part in enumerate(value))
    elif isinstance(value, keras.layers.Layer) or _of_user(value):
        # Public names first, so that a list which Keras keeps of the same objects does not name them.
        parts = sorted(vars(value).items(), key=lambda part: part[0].startswith("_"))
        yield from ((f"{path}.{name}".lstrip("."), part) for name, part in parts)


def _of_user(value: object) -> bool:
    if isinstance(value, (type, ModuleType, Callable)) or not hasattr(value, "__dict__"):  # type: ignore[arg-type]
        return False
    return (type(value).__module__ or "").partition(".")[0] not in _FOREIGN
