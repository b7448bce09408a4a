"""Prepare a test file: take out the values that it expects, and note what its tests must do to pass.

`assert add(2, 3) == 5` becomes a message with the value of `add(2, 3)` to the judging process. Only that process knows
the 5, so the code under test cannot claim the right answer. Expected values in the lists of `pytest.mark.parametrize`
and of `for` loops are hidden too, if a test only compares them. What cannot be hidden stays, and is compared a second
time if it is plain data.
"""

import ast
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orchestrator.run.gates.inside.values import COMPARISONS, Approximate

# The name by which a prepared test calls the judging process. No source can have it, so it clashes with nothing.
GATE = "@gate"

_SKIPS = {
    "skip",
    "skipif",
    "skipIf",
    "skipUnless",
    "skipTest",
    "SkipTest",
    "importorskip",
    "xfail",
    "expectedFailure",
}
_FAILS = {"xfail", "expectedFailure"}
_OPERATORS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}
_EQUALITIES = {"assertEqual", "assertEquals", "assertListEqual", "assertDictEqual", "assertTupleEqual"}
_CATCHES = {"raises", "assertRaises", "assertRaisesRegex", "warns", "suppress", "assertWarns", "assertLogs"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Statement:
    file: str
    line: int
    comparison: str  # such as `==`; empty if reaching the line is enough
    expected: object = None
    hidden: bool = False  # only the judging process knows what is expected
    call: str = ""  # text of the expression if it is a call, for messages


@dataclass(slots=True)
class PreparedTest:
    required: list[int] = field(default_factory=list)  # statements that each run must reach to pass
    may_skip: bool = False  # the file asks for a skip or a failure, perhaps under a condition
    expected_to_fail: bool = False  # the file marks it so


@dataclass(slots=True)
class PreparedFile:
    name: str
    tree: ast.Module
    tests: dict[str, PreparedTest] = field(default_factory=dict)
    skip_lines: set[int] = field(default_factory=set)  # that may skip a test
    module_may_skip: bool = False


@dataclass(slots=True)
class HiddenValues:
    """What only the judging process knows, for all files."""

    statements: dict[int, Statement] = field(default_factory=dict)
    keyed: dict[str, object] = field(default_factory=dict)  # expected values from lists of cases, by key
    labels: dict[str, str] = field(default_factory=dict)  # pytest's text for such a value in a test's name, by key

    def add(self, statement: Statement) -> int:
        """Return the number of a statement."""
        self.statements[len(self.statements)] = statement
        return len(self.statements) - 1

    def hide(self, value: object, label: str) -> str:
        """Return the key that stands for a value."""
        key = f"h{secrets.token_hex(8)}"
        self.keyed[key], self.labels[key] = value, label
        return key


def prepare(name: str, text: str, hidden: HiddenValues) -> PreparedFile:
    """Prepare a test file. Raises SyntaxError, or ValueError for text that cannot be source."""
    tree = ast.parse(text, name)
    prepared = PreparedFile(name, tree)
    prepared.skip_lines = {line for node in ast.walk(tree) if _is_skip(node) for line in _lines(node)}
    prepared.module_may_skip = any(_mentions_skip(node) for node in tree.body if not isinstance(node, _SCOPES))
    marks = [node for node in tree.body if isinstance(node, ast.Assign) and _mentions_skip(node)]
    for qualified, function, holders in _tests(tree):
        marked = [*marks, *_decorators([function, *holders])]
        fails = any(_is_named(node, _FAILS) for node in _walk(marked))
        prepared.tests[qualified] = test = PreparedTest(
            may_skip=any(map(_mentions_skip, [function, *marked])), expected_to_fail=fails
        )
        if not any(map(_mentions_skip, marked)):
            _TestPreparer(name, function, hidden, test).run()
    ast.fix_missing_locations(tree)
    return prepared


# Rewrites the assertions of one test function.
class _TestPreparer:
    def __init__(self, file: str, function: ast.FunctionDef, hidden: HiddenValues, test: PreparedTest) -> None:
        self._file = file
        self._function = function
        self._hidden = hidden
        self._test = test
        self._keys: set[str] = set()  # variables whose values are keys

    def run(self) -> None:
        self._hide_cases()
        ends = not any(isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) for node in _own(self._function))
        self._function.body = self._body(self._function.body, required=True)
        if ends:
            last = self._function.body[-1]
            number = self._hidden.add(Statement(self._file, getattr(last, "end_lineno", 0) or 0, ""))
            self._function.body.append(_located(_call(number, "reached"), last))
            self._test.required.append(number)

    def _body(self, body: Sequence[ast.stmt], *, required: bool) -> list[ast.stmt]:
        # `required`: each statement is sure to be reached.
        statements: list[ast.stmt] = []
        for statement in body:
            leaves = any(isinstance(node, ast.Return | ast.Raise) or _is_skip(node) for node in ast.walk(statement))
            required = required and not leaves
            statements += self._statement(statement, required)
        return statements

    def _statement(self, statement: ast.stmt, required: bool) -> list[ast.stmt]:
        match statement:
            case ast.Assert(test=test):
                return self._assertion(statement, test, required)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name), args=[left, right])):
                if name in _EQUALITIES and not statement.value.keywords:  # type: ignore[attr-defined]
                    compared = ast.copy_location(ast.Compare(left, [ast.Eq()], [right]), statement)
                    return self._assertion(statement, compared, required)
            case ast.With(items=items, body=body):
                if not any(_is_named(node, _CATCHES) for item in items for node in ast.walk(item)):
                    statement.body = self._body(body, required=required)
            case ast.For() | ast.While() | ast.If():
                statement.body = self._body(statement.body, required=False)
                statement.orelse = self._body(statement.orelse, required=False)
        return [statement]

    def _assertion(self, statement: ast.stmt, test: ast.expr, required: bool) -> list[ast.stmt]:
        statements, number = self._rewritten(statement, test)
        if required and number is not None:
            self._test.required.append(number)
        return statements

    def _rewritten(self, statement: ast.stmt, test: ast.expr) -> tuple[list[ast.stmt], int | None]:
        match test:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._comparison(statement, left, _OPERATORS[type(op)], right)
            case ast.Call() | ast.UnaryOp(op=ast.Not(), operand=ast.Call()):
                value = test.operand if isinstance(test, ast.UnaryOp) else test
                number = self._add(statement, "truth", not isinstance(test, ast.UnaryOp), value)
                return [_located(_call(number, "truth", value), statement)], number
        return [statement], None

    def _comparison(
        self, statement: ast.stmt, left: ast.expr, comparison: str, right: ast.expr
    ) -> tuple[list[ast.stmt], int | None]:
        if comparison in ("==", "!=", "is", "is not") and (_is_constant(left) or self._is_key(left)):
            left, right = right, left
        if comparison == "==" and self._is_key(right):
            number = self._add(statement, comparison, None, left)
            return [_located(_call(number, "keyed", left, right), statement)], number
        if _is_constant(left):
            return [statement], None
        if comparison in ("==", "is", "is not") and _is_constant(right):
            expected = _constant(right)
            if comparison == "==" or expected is None or isinstance(expected, bool):
                number = self._add(statement, comparison, expected, left)
                return [_located(_call(number, "value", left), statement)], number
        if comparison not in COMPARISONS:
            return [statement], None
        return self._pair(statement, left, comparison, right)

    def _pair(
        self, statement: ast.stmt, left: ast.expr, comparison: str, right: ast.expr
    ) -> tuple[list[ast.stmt], int]:
        # Keeps the comparison, but evaluates its sides once and sends both.
        number = self._hidden.add(Statement(self._file, statement.lineno, comparison, call=_call_text(left)))
        names = [f"@left{number}", f"@right{number}"]
        stored = [
            ast.Assign([ast.Name(name, ast.Store())], side) for name, side in zip(names, (left, right), strict=True)
        ]
        loads: list[ast.expr] = [ast.Name(name, ast.Load()) for name in names]
        checked = [ast.Constant("" if _is_named(side, {"ANY"}) else comparison) for side in (left, right)]
        message = getattr(statement, "msg", None)
        operator = next(kind for kind, text in _OPERATORS.items() if text == comparison)
        compared = ast.Assert(ast.Compare(loads[0], [operator()], [loads[1]]), message)
        statements: list[ast.stmt] = [*stored, _call(number, "pair", *loads, *checked), compared]
        return [_located(node, statement) for node in statements], number

    def _add(self, statement: ast.stmt, comparison: str, expected: object, value: ast.expr) -> int:
        return self._hidden.add(
            Statement(self._file, statement.lineno, comparison, expected, hidden=True, call=_call_text(value))
        )

    def _is_key(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self._keys

    def _hide_cases(self) -> None:
        for decorator in self._function.decorator_list:
            match decorator:
                case ast.Call(func=ast.Attribute(attr="parametrize"), args=[names, rows], keywords=keywords):
                    if all(keyword.arg == "ids" for keyword in keywords):
                        self._hide_columns(_parameter_names(names), rows)
        for node in _own(self._function):
            if isinstance(node, ast.For) and isinstance(node.target, ast.Tuple | ast.Name):
                targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
                self._hide_columns([part.id if isinstance(part, ast.Name) else "" for part in targets], node.iter)

    def _hide_columns(self, names: Sequence[str], rows: ast.expr) -> None:
        if not isinstance(rows, ast.List | ast.Tuple) or len(names) < 2:
            return
        cells = [_cells(row) for row in rows.elts]
        if not all(len(row) == len(names) for row in cells):
            return
        for column, name in enumerate(names):
            if all(_is_constant(row[column]) for row in cells) and self._only_compared(name):
                self._keys.add(name)
                for number, row in enumerate(cells):
                    value = _constant(row[column])
                    row[column] = ast.copy_location(
                        ast.Constant(self._hidden.hide(value, _label(value, name, number))), row[column]
                    )

    def _only_compared(self, name: str) -> bool:
        # A value can be hidden if its variable is only used in assertions of equality.
        stores = [node for node in _own(self._function) if _is_named(node, {name}) and not _loads(node)]
        if len(stores) > 1:
            return False
        compared = sum(self._compares(node, name) for node in _hideable(self._function.body))
        return 0 < compared == sum(_loads(node, name) for node in ast.walk(self._function))

    def _compares(self, statement: ast.stmt, name: str) -> bool:
        match statement:
            case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
                sides = (left, right)
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attribute), args=[left, right], keywords=[])):
                if attribute not in _EQUALITIES:
                    return False
                sides = (left, right)
            case _:
                return False
        return [_loads(side, name) for side in sides].count(True) == 1 and not all(map(_is_constant, sides))


def _tests(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef, list[ast.ClassDef]]]:
    # The tests that pytest collects: name, function, and the classes that hold it.
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and _is_test(node):
            yield node.name, node, []
        elif isinstance(node, ast.ClassDef) and _holds_tests(node):
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and _is_test(member):
                    yield f"{node.name}::{member.name}", member, [node]


def _is_test(function: ast.FunctionDef) -> bool:
    return function.name.startswith("test") and not any(
        _is_named(node, {"fixture", "property"}) for node in _walk(function.decorator_list)
    )


def _holds_tests(node: ast.ClassDef) -> bool:
    own = {name for member in node.body for name in _names_bound(member)}
    if own & {"__init__", "__new__", "__test__"}:
        return False
    return node.name.startswith("Test") or any(_is_named(base, {"TestCase"}) for base in node.bases)


def _names_bound(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
    return []


def _hideable(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    # The statements that `_TestPreparer` may rewrite.
    for statement in body:
        yield statement
        match statement:
            case ast.With(items=items) if not any(
                _is_named(node, _CATCHES) for item in items for node in ast.walk(item)
            ):
                yield from _hideable(statement.body)
            case ast.For() | ast.While() | ast.If():
                yield from _hideable([*statement.body, *statement.orelse])


def _parameter_names(node: ast.expr) -> list[str]:
    match node:
        case ast.Constant(value=str(text)):
            return [name.strip() for name in text.split(",")]
        case ast.List(elts=names) | ast.Tuple(elts=names):
            return [str(name.value) if isinstance(name, ast.Constant) else "" for name in names]
    return []


def _cells(row: ast.expr) -> list[ast.expr]:
    # The row's own list, so that it can be changed.
    match row:
        case ast.Tuple(elts=cells) | ast.List(elts=cells):
            return cells
        case ast.Call(func=ast.Attribute(attr="param"), args=cells) if not _mentions_skip(row):
            return cells
    return []


def _label(value: object, name: str, number: int) -> str:
    if isinstance(value, str):
        return value
    written = value is None or isinstance(value, float | complex) or (isinstance(value, int) and abs(value) < 1 << 999)
    return str(value) if written else f"{name}{number}"


def _is_constant(node: ast.expr) -> bool:
    try:
        _constant(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return False
    return True


def _constant(node: ast.expr) -> object:
    # The value of a literal, of `float("inf")` and of `pytest.approx` of a literal. Raises ValueError.
    match node:
        case ast.Call(
            func=ast.Name(id="approx") | ast.Attribute(attr="approx"), args=[value, *more], keywords=keywords
        ):
            options = {str(option.arg): ast.literal_eval(option.value) for option in keywords}
            options |= dict(zip(("rel", "abs"), map(ast.literal_eval, more), strict=False))
            expected = ast.literal_eval(value)
            if not set(options) <= {"rel", "abs"} or not _is_numeric(expected):
                raise ValueError("not a plain approx")
            return Approximate(expected, options.get("rel"), options.get("abs"))
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(text))], keywords=[]):
            return float(text)
    return ast.literal_eval(node)


def _is_numeric(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_numeric, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _call(number: int, kind: str, *values: ast.expr) -> ast.Expr:
    gate = ast.Attribute(ast.Name(GATE, ast.Load()), kind, ast.Load())
    return ast.Expr(ast.Call(gate, [ast.Constant(number), *values], []))


def _located(node: ast.stmt, place: ast.AST) -> ast.stmt:
    for part in ast.walk(node):
        if "lineno" in part._attributes and not hasattr(part, "lineno"):
            ast.copy_location(part, place)
    return node


def _call_text(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Call) else ""


def _own(function: ast.FunctionDef) -> Iterator[ast.AST]:
    # Without the nodes of functions and classes inside.
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting += ast.iter_child_nodes(node)


def _walk(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        yield from ast.walk(node)


def _decorators(holders: Sequence[ast.ClassDef | ast.FunctionDef]) -> list[ast.expr]:
    return [decorator for holder in holders for decorator in holder.decorator_list]


def _loads(node: ast.AST, name: str | None = None) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and name in (None, node.id)


def _is_named(node: ast.AST, names: set[str]) -> bool:
    return (isinstance(node, ast.Name) and node.id in names) or (isinstance(node, ast.Attribute) and node.attr in names)


def _is_skip(node: ast.AST) -> bool:
    return _is_named(node, _SKIPS)


def _mentions_skip(node: ast.AST) -> bool:
    return any(map(_is_skip, ast.walk(node)))


def _lines(node: ast.AST) -> range:
    first = getattr(node, "lineno", 0)
    return range(first, (getattr(node, "end_lineno", None) or first) + 1)
