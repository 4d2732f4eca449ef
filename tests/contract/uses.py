"""Every use that a plugin makes of a vendor's package, found in the plugin's syntax trees.

A small abstract interpreter. The value of an expression is the set of things of a
vendor's that it may be, each written as a path: `torch.cuda`, or
`torch_npu.npu.npurt()` for the result of that call. Paths flow through
assignments, `or`, `getattr`, arguments and results of the plugin's own functions.
Nothing is imported or executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

Paths = frozenset[str]
NOTHING: Paths = frozenset()
_SAME = {"torch.npu": "torch_npu.npu", "torch.musa": "torch_musa"}
_LONGEST = 8  # steps of a path: a recursive function cannot make it grow for ever


@dataclass(frozen=True, order=True)
class Use:
    """One attribute that is read, or one call that is made (then `call` is its shape)."""

    file: str
    line: int
    path: str
    """What is used: `torch.cuda.device_count`."""
    call: tuple[int, tuple[str, ...], bool] | None = None
    """Positional arguments, keywords, and whether there is a `*` among them."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.path}" + ("" if self.call is None else "(...)")


@dataclass
class Scope:
    """The names of a module or function, and what they may stand for."""

    names: dict[str, Paths] = field(default_factory=dict)
    outer: Scope | None = None

    def find(self, name: str) -> Paths:
        """Look the name up here and outside."""
        if name in self.names or self.outer is None:
            return self.names.get(name, NOTHING)
        return self.outer.find(name)

    def add(self, name: str, paths: Paths) -> None:
        """Let the name also stand for `paths`."""
        self.names[name] = self.names.get(name, NOTHING) | paths


class Plugin:
    """One plugin's modules, by name, and what was found in them."""

    def __init__(self, modules: Mapping[str, ast.Module], roots: Iterable[str]) -> None:
        self.modules = modules
        self.roots = tuple(roots)
        """The packages whose use is looked for."""
        self.scopes = {name: Scope() for name in modules}
        self.functions: dict[str, ast.FunctionDef] = {}
        self.inner: dict[tuple[str, int], Scope] = {}
        self.results: dict[str, Paths] = {}
        self.uses: set[Use] = set()
        self.dynamic: set[str] = set()
        """Places where the name of an attribute is not a constant."""
        self.untraced: dict[str, set[str]] = {}
        """By module: parameters of type `Any` whose attributes are used, of unknown origin."""
        for module, tree in modules.items():
            for node in tree.body:
                if isinstance(node, ast.FunctionDef):
                    self.functions[f"{module}.{node.name}"] = node
        found = -1
        while found < (found := self._size()):
            for module, tree in modules.items():
                _Walk(self, module, self.scopes[module]).run(tree.body)

    def _size(self) -> int:
        """Count what is known; it only grows, and when it does not any more, all is found."""
        scopes = [*self.scopes.values(), *self.inner.values()]
        names = sum(len(paths) for scope in scopes for paths in scope.names.values())
        return names + sum(map(len, self.results.values())) + len(self.uses) + len(scopes)

    def is_vendors(self, path: str) -> bool:
        """Whether a path begins in one of the packages that are looked for."""
        return any(path == root or path.startswith(f"{root}.") for root in self.roots)

    def known(self, paths: Iterable[str]) -> Paths:
        """Keep what matters, under one name each, with the plugin's own variables replaced."""
        found: set[str] = set()
        for path in paths:
            for alias, name in _SAME.items():
                if path == alias or path.startswith(f"{alias}."):
                    path = name + path[len(alias) :]
            module, _, variable = path.rpartition(".")
            if path in self.functions:
                found.add(path)
            elif module in self.modules and variable in self.scopes[module].names:
                found |= self.scopes[module].names[variable]
            elif self._matters(path) and path.count(".") < _LONGEST:
                found.add(path)
        return frozenset(found)

    def _matters(self, path: str) -> bool:
        own = any(name == path or name.startswith(f"{path}.") for name in self.modules)
        return self.is_vendors(path) or own


class _Walk:
    """Walks one body of statements: of a module, a class or a function."""

    def __init__(self, plugin: Plugin, module: str, scope: Scope, function: str = "") -> None:
        self.plugin = plugin
        self.module = module
        self.scope = scope
        self.function = function

    def run(self, body: Iterable[ast.stmt]) -> None:
        for node in body:
            self.statement(node)

    # Statements ---------------------------------------------------------------

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef):
            self.define(node)
        elif isinstance(node, ast.ClassDef):
            _Walk(self.plugin, self.module, Scope(outer=self.scope), "").run(node.body)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self.imports(node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self.bind(target, self.value(node.value))
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.bind(node.target, self.value(node.value))
        elif isinstance(node, ast.Return):
            found = NOTHING if node.value is None else self.value(node.value)
            if self.function:
                self.plugin.results[self.function] = self.result() | found
        else:
            self.children(node)

    def result(self) -> Paths:
        return self.plugin.results.get(self.function, NOTHING)

    def define(self, node: ast.FunctionDef) -> None:
        """Walk a function's body, with what its callers were seen to give it."""
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.value(default)
        for decorator in node.decorator_list:
            self.value(decorator)
        top = f"{self.module}.{node.name}"
        name = top if self.plugin.functions.get(top) is node else ""
        if name:
            self.scope.add(node.name, frozenset([top]))
        scope = self.plugin.inner.setdefault((self.module, node.lineno), Scope())
        scope.outer = self.scope
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            scope.add(argument.arg, NOTHING)  # it hides a name of the module
        _Walk(self.plugin, self.module, scope, name).run(node.body)
        self.note_untraced(node, scope)

    def note_untraced(self, node: ast.FunctionDef, scope: Scope) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        loose = {a.arg for a in arguments if a.annotation and ast.unparse(a.annotation) == "Any"}
        used = {
            each.value.id
            for each in ast.walk(node)
            if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)
        }
        found = self.plugin.untraced.setdefault(self.module, set())
        for name in loose & used:
            label = f"{node.name}({name})"
            (found.discard if scope.names[name] else found.add)(label)

    def imports(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                path = f"{node.module}.{alias.name}"
                self.note(node, self.plugin.known([path]))
            else:
                path = alias.name if alias.asname else alias.name.split(".")[0]
            self.scope.add(alias.asname or path.rpartition(".")[2], self.plugin.known([path]))

    def bind(self, target: ast.expr, paths: Paths) -> None:
        if isinstance(target, ast.Name):
            self.scope.add(target.id, paths)
        else:
            self.value(target)

    def children(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self.statement(child)
            elif isinstance(child, ast.expr):
                self.value(child)
            elif isinstance(child, ast.withitem) and child.optional_vars is not None:
                self.bind(child.optional_vars, self.value(child.context_expr))
            else:
                self.children(child)

    # Expressions --------------------------------------------------------------

    def value(self, node: ast.expr) -> Paths:
        if isinstance(node, ast.Name):
            return self.plugin.known(self.scope.find(node.id))
        if isinstance(node, ast.Attribute):
            return self.attribute(node, self.value(node.value), node.attr)
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.BoolOp):
            return NOTHING.union(*map(self.value, node.values))
        if isinstance(node, ast.IfExp):
            self.value(node.test)
            return self.value(node.body) | self.value(node.orelse)
        if isinstance(node, ast.NamedExpr):
            found = self.value(node.value)
            self.bind(node.target, found)
            return found
        self.children(node)
        return NOTHING

    def attribute(self, node: ast.AST, bases: Paths, name: str) -> Paths:
        found = self.plugin.known(f"{base}.{name}" for base in bases)
        self.note(node, found)
        return found

    def note(self, node: ast.AST, paths: Paths, call: ast.Call | None = None) -> None:
        shape = None if call is None else _shape(call)
        for path in filter(self.plugin.is_vendors, paths):
            self.plugin.uses.add(Use(self.module, getattr(node, "lineno", 0), path, shape))

    def call(self, node: ast.Call) -> Paths:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ("getattr", "hasattr") and len(node.args) > 1:
            return self.looked_for(node, name)
        functions = self.value(node.func)
        given = [self.value(argument) for argument in node.args]
        named = {each.arg: self.value(each.value) for each in node.keywords}
        self.note(node, functions, node)
        found: set[str] = set()
        for path in functions:
            if path in self.plugin.functions:
                self.give(self.plugin.functions[path], path, given, named)
                found |= self.plugin.results.get(path, NOTHING)
            elif self.plugin.is_vendors(path):
                found.add(f"{path}()")
        return self.plugin.known(found)

    def looked_for(self, node: ast.Call, function: str) -> Paths:
        """`getattr` and `hasattr`: a name that must be one of the vendor's all the same."""
        bases = self.value(node.args[0])
        default = self.value(node.args[2]) if len(node.args) > 2 else NOTHING
        name = node.args[1]
        if isinstance(name, ast.Constant):
            found = self.attribute(node, bases, str(name.value))
            return found | default if function == "getattr" else NOTHING
        if any(map(self.plugin.is_vendors, bases)):
            self.plugin.dynamic.add(f"{self.module}:{node.lineno}: {ast.unparse(node)}")
        return default

    def give(
        self,
        function: ast.FunctionDef,
        path: str,
        given: list[Paths],
        named: Mapping[str | None, Paths],
    ) -> None:
        """Let a function of the plugin's own see what it is called with."""
        module = path.rpartition(".")[0]
        scope = self.plugin.inner.setdefault((module, function.lineno), Scope())
        names = [each.arg for each in function.args.posonlyargs + function.args.args]
        pairs: Iterator[tuple[str | None, Paths]] = zip(names, given, strict=False)
        for name, paths in (*pairs, *named.items()):
            if name is not None:
                scope.add(name, paths)


def _shape(call: ast.Call) -> tuple[int, tuple[str, ...], bool]:
    plain = [each for each in call.args if not isinstance(each, ast.Starred)]
    keywords = tuple(each.arg for each in call.keywords if each.arg is not None)
    starred = len(plain) < len(call.args) or len(keywords) < len(call.keywords)
    return len(plain), keywords, starred
