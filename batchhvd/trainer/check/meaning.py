"""What the objects of a script are: a model or an optimizer of Keras, an optimizer of PyTorch, data, Horovod.

An object is known by what has made it: ``made`` returns the dotted names of the constructors and functions from which
the value of an expression may come.
"""

from __future__ import annotations

import ast
from functools import cached_property

from batchhvd.trainer.check.parsed_script import OURS, Script, key, last, results

OPTIMIZERS = ("SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Nadam", "Ftrl", "Lion", "Muon")
_LOWER = {name.lower() for name in OPTIMIZERS}
_MODELS = ("keras.Sequential", "keras.Model", "keras.models.", "keras.applications.", "keras.saving.load_model")
_FIT = ("fit", "fit_generator", "train_on_batch")
#: What else has a method named ``fit``.
_OTHER_FITS = (
    "sklearn",
    "lightning",
    "pytorch_lightning",
    "keras.preprocessing",
    "xgboost",
    "lightgbm",
    "scipy",
    "torch",
)
#: Arguments that only the ``fit`` of Keras has.
_FIT_OPTIONS = frozenset({"epochs", "batch_size", "callbacks", "validation_data", "steps_per_epoch", "verbose"})
_WRAPPERS = ("DistributedOptimizer", "LossScaleOptimizer")
#: Methods of numpy and PyTorch that give the same data in another form.
WRAPPED = "DistributedOptimizer"


def plain(dotted: str) -> str:
    """Returns the name in Keras of something that TensorFlow also offers."""
    for front in ("tensorflow.compat.v2.keras.", "tensorflow.python.keras.", "tensorflow.keras.", "tensorflow.keras"):
        if dotted.startswith(front) and (front.endswith(".") or dotted == front):
            return f"keras.{dotted[len(front) :]}".rstrip(".")
    for part in ("optimizers", "losses", "metrics"):
        if dotted.startswith(f"tensorflow.{part}."):
            return f"keras.{dotted.removeprefix('tensorflow.')}"
    return dotted


class Meaning:
    """What the objects of one script are.

    Attributes:
        script: the script.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self._made: dict[ast.AST, frozenset[str]] = {}

    def name(self, node: ast.AST) -> str:
        """Returns what a name stands for, in Keras's own words."""
        return plain(self.script.dotted(node))

    def made(self, node: ast.AST | None) -> frozenset[str]:
        """Returns what may have made a value; `WRAPPED` is among it if Horovod's wrapper is around it."""
        if node is None:
            return frozenset()
        if node not in self._made:
            self._made[node] = frozenset()  # a name that is made of itself
            self._made[node] = self._of_value(node)
        return self._made[node]

    def _of_value(self, node: ast.AST) -> frozenset[str]:
        if isinstance(node, ast.Call):
            return self._of_call(node)
        if isinstance(node, (ast.IfExp, ast.BoolOp)):
            return self._all(node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse])
        if isinstance(node, (ast.Subscript, ast.Await, ast.Starred)):
            return self.made(node.value)
        values = self.script.values.get(key(node), [])
        if not values and isinstance(node, ast.Attribute):
            return frozenset(
                {"keras.optimizers.compiled"} if node.attr == "optimizer" and self.model(node.value) else ()
            )
        return self._all(values)

    def _all(self, nodes: list[ast.expr]) -> frozenset[str]:
        return frozenset().union(*map(self.made, nodes))

    def _of_call(self, call: ast.Call) -> frozenset[str]:
        name, function = self.name(call.func), self.script.function(call)
        if last(call.func) in _WRAPPERS:
            inner = self._all(call.args[:1] or [part.value for part in call.keywords][:1])
            return inner | {WRAPPED} if last(call.func) == WRAPPED else inner
        if isinstance(call.func, ast.Name) and call.func.id in self.script.classes:
            return self._of_class(self.script.classes[call.func.id], frozenset())
        if function is not None:
            return self._all(results(function))
        if name:
            return frozenset({name})
        if isinstance(call.func, ast.Attribute):
            return frozenset({f"{one}.{call.func.attr}" for one in self.made(call.func.value)})
        return frozenset()

    def _of_class(self, node: ast.ClassDef, seen: frozenset[str]) -> frozenset[str]:
        found = frozenset({f"own.{node.name}"})
        for base in node.bases:
            name = last(base)
            if isinstance(base, ast.Name) and name in self.script.classes and name not in seen:
                found |= self._of_class(self.script.classes[name], seen | {node.name})
            elif self.name(base):
                found |= {self.name(base)}
        return found

    # --- kinds --------------------------------------------------------------------------------------------------------

    def model(self, node: ast.AST | None) -> bool:
        """Returns whether an expression is a Keras model."""
        if isinstance(node, ast.Name) and node.id == "self":
            return self.inside(node, "keras.Model", "keras.Sequential", "keras.models.Model")
        if isinstance(node, ast.Attribute) and key(node) == "self.model" and self.inside(node, "keras.callbacks."):
            return True
        return any(f"{name}.".startswith(tuple(f"{one.rstrip('.')}." for one in _MODELS)) for name in self.made(node))

    def inside(self, node: ast.AST, *bases: str) -> bool:
        """Returns whether a node lies in a class of the script that is derived from one of these."""
        while node in self.script.parents:
            node = self.script.parents[node]
            if isinstance(node, ast.ClassDef):
                return any(name.startswith(bases) for name in self._of_class(node, frozenset()))
        return False

    def optimizer(self, node: ast.AST | None) -> bool:
        """Returns whether an expression is an optimizer of Keras."""
        return any(name.startswith("keras.optimizers.") and ".schedules." not in name for name in self.made(node))

    def torch_optimizer(self, node: ast.AST | None) -> bool:
        """Returns whether an expression is an optimizer of PyTorch."""
        return any(name.startswith("torch.optim.") and ".lr_scheduler." not in name for name in self.made(node))

    def session_optimizer(self, node: ast.AST | None) -> bool:
        """Returns whether an expression is an optimizer of TensorFlow 1."""
        fronts = ("tensorflow.train.", "tensorflow.compat.v1.train.")
        return any(name.startswith(fronts) and "Optimizer" in name for name in self.made(node))

    def wrapped(self, node: ast.AST | None) -> bool:
        """Returns whether Horovod's wrapper is around an optimizer."""
        return WRAPPED in self.made(node)

    @cached_property
    def optimizers(self) -> list[ast.Call]:
        """The calls that make an optimizer of Keras or PyTorch."""
        return [call for call in self.script.calls if self.is_optimizer_name(self.name(call.func))]

    @staticmethod
    def is_optimizer_name(name: str) -> bool:
        """Returns whether a dotted name is a class of optimizers."""
        keras = name.startswith("keras.optimizers.") and name.rpartition(".")[2].lower() in _LOWER
        return keras or (name.startswith("torch.optim.") and name.count(".") == 2 and name[12:13].isupper())

    def trains(self, call: ast.Call) -> bool:
        """Returns whether a call is the ``fit`` of a Keras model, not that of anything else."""
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _FIT:
            return False
        if self.script.dotted(call.func).startswith(OURS):
            return False
        receiver = call.func.value
        made = self.made(receiver)
        if self.model(receiver) or last(call.func) == "fit_generator":
            return True
        if any(name.startswith(_OTHER_FITS) or "Generator" in name for name in made):
            return False
        named = any(word in last(receiver).lower() for word in ("model", "net", "gan", "encoder", "classifier"))
        options = any(part.arg in _FIT_OPTIONS for part in call.keywords)
        return self.keras and (options or named)

    @cached_property
    def fits(self) -> list[ast.Call]:
        """The calls that train a Keras model."""
        return [call for call in self.script.calls if self.trains(call)]

    @cached_property
    def steps(self) -> list[ast.Call]:
        """The calls that apply gradients in a training loop of the script."""
        return [call for call in self.calls("apply_gradients", "apply", "minimize", "step") if self._steps(call)]

    def _steps(self, call: ast.Call) -> bool:
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        if last(call.func) == "minimize":
            return self.session_optimizer(receiver)
        if last(call.func) == "step":
            return self.torch_optimizer(receiver) and bool(self.calls("backward"))
        return self.optimizer(receiver) and bool(self.calls("GradientTape", "backward"))

    def calls(self, *names: str) -> list[ast.Call]:
        """Returns the calls of functions with these last names."""
        return [call for call in self.script.calls if last(call.func) in names]

    # --- what the script uses -----------------------------------------------------------------------------------------

    @cached_property
    def modules(self) -> list[str]:
        """The modules and names that the script imports, also by ``importlib``."""
        origins = self.script.origins.items()
        return [*(origin or name for name, origin in origins), *map(self.script.module, self.script.values)]

    def uses(self, *fronts: str) -> bool:
        """Returns whether the script imports one of these modules."""
        return any(f"{module}.".startswith(tuple(f"{front}." for front in fronts)) for module in self.modules)

    @cached_property
    def old_keras(self) -> bool:
        """Whether the script asks for Keras 2."""
        return self.uses("tf_keras") or "TF_USE_LEGACY_KERAS" in self.script.strings

    @cached_property
    def keras(self) -> bool:
        """Whether the script uses Keras."""
        if self.uses("keras", "tf_keras", "tensorflow.keras"):
            return True
        nodes = (node for node in ast.walk(self.script.tree) if isinstance(node, ast.Attribute))
        return any(self.name(node).startswith("keras.") for node in nodes)

    @cached_property
    def keras_3(self) -> bool:
        """Whether the script uses Keras, and does not ask for Keras 2."""
        return self.keras and not self.old_keras

    @cached_property
    def torch(self) -> bool:
        """Whether the script uses PyTorch or Lightning, and no Keras."""
        return self.uses("torch", "lightning", "pytorch_lightning") and not self.keras

    @cached_property
    def horovod(self) -> set[str]:
        """The bindings of Horovod that the script uses: ``horovod.torch``, ``batchhvd.trainer.hvd`` and others."""
        fronts = ("batchhvd.trainer.hvd", "horovod.tensorflow.keras", "horovod.tensorflow", "horovod.keras")
        found = set()
        for module in self.modules:
            front = next((one for one in (*fronts, "horovod.torch") if f"{module}.".startswith(f"{one}.")), "")
            if front or module.startswith("horovod") or module.endswith("hvd"):
                found.add(front or "horovod")
        return found

    def uses_ours(self, *names: str) -> bool:
        """Returns whether the script calls one of these functions of our trainer."""
        return any(self.script.dotted(call.func).startswith(OURS) for call in self.calls(*names))

    @property
    def alias(self) -> str:
        """The name of Horovod in the script."""
        for call in self.calls("init", "rank", "size", "local_rank"):
            if isinstance(call.func, ast.Attribute) and self.is_horovod(call.func):
                return ast.unparse(call.func.value)
        for name, origin in self.script.origins.items():
            whole = origin or name
            if whole.startswith("horovod.") or whole == "batchhvd.trainer.hvd":
                return name
        return "hvd"

    @cached_property
    def elastic(self) -> bool:
        """Whether the script is written for Horovod's elastic mode."""
        nodes = (node for node in ast.walk(self.script.tree) if isinstance(node, ast.Attribute))
        return any(module.endswith("elastic") for module in self.modules) or any(
            node.attr == "elastic" and self.is_horovod(node) for node in nodes
        )

    def is_horovod(self, node: ast.AST) -> bool:
        """Returns whether a name is one of Horovod's."""
        name = self.script.dotted(node)
        return name.startswith(("horovod", "batchhvd.trainer.hvd"))

    def communicates(self, node: ast.AST) -> bool:
        """Returns whether a node contains a call in which ranks work together, or a training."""
        plain_names = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
        for part in ast.walk(node):
            if isinstance(part, ast.Call):
                theirs = self.is_horovod(part.func) and last(part.func) not in plain_names
                own = (
                    self.script.function(part) is not None
                    or isinstance(part.func, ast.Name)
                    and self._own(part.func.id)
                )
                if theirs or own or self.trains(part):
                    return True
        return False

    def _own(self, name: str) -> bool:
        return name in self.script.functions or name in self.script.classes
