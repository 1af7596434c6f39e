"""Calls of TRL and of Stable-Baselines3 in a Python file, read and never run."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator
from typing import Any

from anypo.core.errors import UsageError
from anypo.translate.given import Given, Source, Unread

CONFIGS = {"GRPOConfig": "grpo", "RLOOConfig": "rloo", "DPOConfig": "dpo", "SFTConfig": "sft"}
TRAINERS = {f"{k.removesuffix('Config')}Trainer": v for k, v in CONFIGS.items()}
AGENTS = {"PPO": "ppo", "A2C": "a2c"}
POSITIONS = {
    "PPO": ("policy", "env"),
    "A2C": ("policy", "env"),
    "learn": ("total_timesteps",),
    "GRPOTrainer": ("model", "reward_funcs", "args", "train_dataset"),
    "RLOOTrainer": ("model", "reward_funcs", "args", "train_dataset"),
    "DPOTrainer": ("model", "ref_model", "args"),
    "SFTTrainer": ("model", "args"),
    "GRPOConfig": ("output_dir",),
    "RLOOConfig": ("output_dir",),
    "DPOConfig": ("output_dir",),
    "SFTConfig": ("output_dir",),
}
"""Call → the names of its first arguments."""
LORA = "LoraConfig"

ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def read(text: str, name: str, line: int = 0) -> Source:
    """The one configuration in a Python file, or the one at a line.

    Raises `UsageError` for what is no Python, for none, and for several.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{name} is no Python file: {error}") from None
    module = Module(tree, text)
    found = [c for c in module.calls() if called(c) in {**CONFIGS, **TRAINERS}]
    if found:
        return _trl(module, found, name, line)
    agents = [c for c in module.calls() if called(c) in AGENTS and module.of_sb3(called(c))]
    if agents:
        return _sb3(module, _one(agents, name, line))
    known = ", ".join([*CONFIGS, *AGENTS])
    raise UsageError(f"{name} holds no call that can be translated (there is {known})")


def called(call: ast.Call) -> str:
    """The name of what is called: `GRPOConfig` of `trl.GRPOConfig(…)`."""
    f = call.func
    return f.id if isinstance(f, ast.Name) else f.attr if isinstance(f, ast.Attribute) else ""


class Module:
    """A parsed file, with the names that are given one constant value and never another."""

    def __init__(self, tree: ast.Module, text: str) -> None:
        self.tree, self.text = tree, text
        self.nodes = list(ast.walk(tree))
        self.names = self._names()

    def calls(self) -> Iterator[ast.Call]:
        """Every call, in the order of the lines."""
        calls = [n for n in self.nodes if isinstance(n, ast.Call)]
        return iter(sorted(calls, key=lambda c: (c.lineno, c.col_offset)))

    def of_sb3(self, name: str) -> bool:
        """Whether a name comes from Stable-Baselines3."""
        imports = [n for n in self.nodes if isinstance(n, ast.ImportFrom)]
        origins = [i.module or "" for i in imports for a in i.names if name in (a.name, a.asname)]
        plain = [a.name for n in self.nodes if isinstance(n, ast.Import) for a in n.names]
        return any(o.startswith("stable_baselines3") for o in origins or plain)

    def _names(self) -> dict[str, ast.expr]:
        found: dict[str, list[ast.expr | None]] = {}
        for node in self.nodes:
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            for t in targets:
                if isinstance(t, ast.Name):
                    found.setdefault(t.id, []).append(node.value)  # pyright: ignore
            if isinstance(node, (ast.AugAssign, ast.For)) and isinstance(node.target, ast.Name):
                found.setdefault(node.target.id, []).append(None)
            if isinstance(node, ast.arg):  # a parameter's value is the caller's
                found.setdefault(node.arg, []).append(None)
        return {k: v[0] for k, v in found.items() if len(v) == 1 and v[0] is not None}

    def resolve(self, node: ast.expr, depth: int = 8) -> ast.expr:
        """What a name stands for, where it is assigned once."""
        if depth and isinstance(node, ast.Name) and node.id in self.names:
            return self.resolve(self.names[node.id], depth - 1)
        return node

    def value(self, node: ast.expr) -> Any:
        """The value of an expression of constants, else `Unread`."""
        try:
            return self._constant(node, 16)
        except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
            return Unread(" ".join(ast.unparse(node).split()))

    def _constant(self, node: ast.expr, depth: int) -> Any:
        node = self.resolve(node)
        if depth == 0:
            raise ValueError
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._constant(e, depth - 1) for e in node.elts]
        if isinstance(node, ast.Dict) and None not in node.keys:
            keys = [self._constant(k, depth - 1) for k in node.keys if k is not None]
            return dict(zip(keys, [self._constant(v, depth - 1) for v in node.values]))
        if isinstance(node, ast.Call) and called(node) == "dict" and not node.args:
            return {str(k.arg): self._constant(k.value, depth - 1) for k in node.keywords if k.arg}
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._constant(node.operand, depth - 1)
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node, depth)
        raise ValueError

    def _arithmetic(self, node: ast.BinOp, depth: int) -> Any:
        a, b = self._constant(node.left, depth - 1), self._constant(node.right, depth - 1)
        if not all(type(x) in (int, float) for x in (a, b)):
            raise ValueError
        if isinstance(node.op, ast.Pow) and abs(a) <= 1e3 and abs(b) <= 64:
            return a**b
        return ARITHMETIC[type(node.op)](a, b)

    def keywords(self, call: ast.Call, prefix: str = "") -> list[Given]:
        """Keywords of a call, with positions under their names; `**mapping` is opened."""
        names = POSITIONS.get(called(call), ())
        found = [self.given(prefix + n, a, call) for n, a in zip(names, call.args)]
        for word in call.keywords:
            if word.arg:
                found.append(self.given(prefix + word.arg, word.value, word))
                continue
            opened = self.value(word.value)
            line, text = word.value.lineno, self.line(word.value.lineno)
            if isinstance(opened, dict):
                found += [Given(prefix + str(k), v, line, text) for k, v in opened.items()]
            else:
                found.append(Given(f"**{ast.unparse(word.value)}", opened, line, text))
        return found

    def given(self, key: str, node: ast.expr, at: Any) -> Given:
        """One key."""
        line = at.lineno if isinstance(at, ast.keyword) else node.lineno
        return Given(key, self.value(node), line, self.line(line))

    def line(self, number: int) -> str:
        """A line of the file, without its indentation."""
        return self.text.splitlines()[number - 1].strip()


def _one(calls: list[ast.Call], name: str, line: int) -> ast.Call:
    chosen = [c for c in calls if not line or c.lineno <= line <= (c.end_lineno or c.lineno)]
    if len(chosen) == 1:
        return chosen[0]
    there = ", ".join(f"{called(c)} in line {c.lineno}" for c in calls)
    raise UsageError(f"{name} holds {there}: choose one with --line")


def _trl(module: Module, found: list[ast.Call], name: str, line: int) -> Source:
    configs = [c for c in found if called(c) in CONFIGS]
    trainers = [c for c in found if called(c) in TRAINERS]
    kinds = {**CONFIGS, **TRAINERS}
    main = _one(configs or trainers, name, line)
    trainer = kinds[called(main)]
    given = module.keywords(main) if main in configs else []
    beside = [c for c in trainers if kinds[called(c)] == trainer]
    for call in beside[:1]:
        placed = dict(zip(POSITIONS[called(call)], call.args))
        nodes = {**placed, **{k.arg: k.value for k in call.keywords}}
        for g in module.keywords(call):
            given += _of_trainer(module, g, nodes.get(g.key))
    return Source("trl", trainer, tuple(given))


def _of_trainer(module: Module, g: Given, node: ast.expr | None) -> list[Given]:
    """An argument of a trainer: its configuration is read already, an adapter's is opened."""
    target = module.resolve(node) if node is not None else None
    if g.key == "args":
        return []
    if isinstance(target, ast.Call) and called(target) == LORA:
        return module.keywords(target, "peft_config.")
    if g.key in ("train_dataset", "eval_dataset") and isinstance(target, ast.expr):
        return [Given(g.key, _dataset(module, target), g.line, g.text)]
    if g.key == "reward_funcs" and isinstance(target, ast.expr):
        return [Given(g.key, _functions(module, target), g.line, g.text)]
    return [g]


def _functions(module: Module, node: ast.expr) -> Any:
    """Names of reward functions: this file's with a leading colon, others as dotted paths."""
    here = {n.name for n in module.nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
    parts = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
    origin = {
        a.asname or a.name: f"{n.module}.{a.name}"
        for n in module.nodes
        if isinstance(n, ast.ImportFrom)
        for a in n.names
    }
    found = []
    for part in parts:
        if isinstance(part, ast.Name):
            found.append(f":{part.id}" if part.id in here else origin.get(part.id, part.id))
        else:
            value = module.value(part)
            found.append(str(value) if isinstance(value, Unread) else value)
    return found


def _dataset(module: Module, node: ast.expr) -> Any:
    """The file of `load_dataset("json", data_files="x.jsonl")`, or the name on a hub."""
    if not (isinstance(node, ast.Call) and called(node) == "load_dataset" and node.args):
        return Unread(ast.unparse(node))
    kind = module.value(node.args[0])
    files = [module.value(k.value) for k in node.keywords if k.arg == "data_files"]
    if kind in ("json", "parquet") and files and isinstance(files[0], str):
        return files[0]
    return f"hub:{kind}"


def _sb3(module: Module, call: ast.Call) -> Source:
    given = module.keywords(call)
    named = next((g for g in given if g.key == "env"), None)
    where = [k.value for k in call.keywords if k.arg == "env"]
    where = where or (call.args[1:2] if len(call.args) > 1 else [])
    if named and where:
        given = [g for g in given if g is not named] + _environment(module, where[0], named)
    for other in module.calls():
        if called(other) == "learn":
            given += module.keywords(other)
        if called(other) == "VecNormalize":
            line = other.lineno
            given.append(Given("VecNormalize", True, line, module.line(line)))
    return Source("sb3", AGENTS[called(call)], tuple(given))


def _environment(module: Module, node: ast.expr, g: Given) -> list[Given]:
    """`make("CartPole-v1")`, `make_vec_env("CartPole-v1", n_envs=4)`, a list of makers."""
    node = module.resolve(node)
    if isinstance(node, ast.Call) and called(node) in ("VecNormalize", "Monitor", "VecMonitor"):
        return _environment(module, node.args[0], g) if node.args else [g]
    if not isinstance(node, ast.Call):
        return [Given("env", module.value(node), g.line, g.text)]
    line, text = node.lineno, module.line(node.lineno)
    if called(node) in ("DummyVecEnv", "SubprocVecEnv") and node.args:
        return _several(module, module.resolve(node.args[0]), line, text)
    first = module.value(node.args[0]) if node.args else Unread(ast.unparse(node))
    rest = [Given(k.key, k.value, k.line, k.text) for k in module.keywords(node)]
    if called(node) == "make_vec_env" and len(node.args) > 1:
        rest.append(Given("n_envs", module.value(node.args[1]), line, text))
    return [Given("env", first, line, text), *(r for r in rest if r.key in KEPT)]


KEPT = ("n_envs", "seed", "vec_env_cls", "env_kwargs")
"""Keywords of `make_vec_env` that say something of a run."""


def _several(module: Module, node: ast.expr, line: int, text: str) -> list[Given]:
    makers = [n for n in ast.walk(node) if isinstance(n, ast.Call) and called(n) == "make"]
    name = module.value(makers[0].args[0]) if makers and makers[0].args else Unread(text)
    count: Any = Unread(text)
    if isinstance(node, ast.List):
        count = len(node.elts)
    elif isinstance(node, ast.ListComp):
        over = node.generators[0].iter
        if isinstance(over, ast.Call) and called(over) == "range" and len(over.args) == 1:
            count = module.value(over.args[0])
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        count = module.value(node.right)
    return [Given("env", name, line, text), Given("n_envs", count, line, text)]
