"""List what the functions of the family `code` may compute: an expression and the phrases that ask for it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeOperation:
    """What a function computes: an `expression` over the parameters `{a}` and `{b}` and the constant `{n}`.

    The first of `phrases` is also used in the docstring of the function.
    """

    expression: str
    kinds: tuple[str, ...]
    returns: str
    phrases: tuple[str, ...]


INT, STR, LIST = "int", "str", "list[int]"

OPERATIONS = (
    CodeOperation("{a} + {b}", (INT, INT), INT, ("the sum of {a} and {b}", "{a} plus {b}")),
    CodeOperation("{a} - {b}", (INT, INT), INT, ("the difference of {a} and {b}", "{a} minus {b}")),
    CodeOperation("{a} * {b}", (INT, INT), INT, ("the product of {a} and {b}", "{a} times {b}")),
    CodeOperation(
        "{a} // {b}", (INT, INT), INT, ("the whole quotient of {a} and {b}", "{a} divided by {b} without rest")
    ),
    CodeOperation("{a} % {b}", (INT, INT), INT, ("the remainder of {a} by {b}", "{a} modulo {b}")),
    CodeOperation("max({a}, {b})", (INT, INT), INT, ("the larger of {a} and {b}", "the maximum of {a} and {b}")),
    CodeOperation("min({a}, {b})", (INT, INT), INT, ("the smaller of {a} and {b}", "the minimum of {a} and {b}")),
    CodeOperation("{a} ** 2", (INT,), INT, ("the square of {a}", "{a} squared")),
    CodeOperation("{a} + {n}", (INT,), INT, ("{a} plus {n}", "{a} increased by {n}")),
    CodeOperation("{a} - {n}", (INT,), INT, ("{a} minus {n}", "{a} decreased by {n}")),
    CodeOperation("{a} * {n}", (INT,), INT, ("{a} times {n}", "{a} multiplied by {n}")),
    CodeOperation("abs({a})", (INT,), INT, ("the absolute value of {a}", "{a} without its sign")),
    CodeOperation("-{a}", (INT,), INT, ("the negative of {a}", "{a} with its sign changed")),
    CodeOperation("{a} % 2 == 0", (INT,), "bool", ("whether {a} is even", "true if {a} is even")),
    CodeOperation("{a} % 2 == 1", (INT,), "bool", ("whether {a} is odd", "true if {a} is odd")),
    CodeOperation("{a} > {n}", (INT,), "bool", ("whether {a} is greater than {n}", "true if {a} is above {n}")),
    CodeOperation("{a} < {n}", (INT,), "bool", ("whether {a} is less than {n}", "true if {a} is below {n}")),
    CodeOperation("{a} == {b}", (INT, INT), "bool", ("whether {a} equals {b}", "true if {a} and {b} are equal")),
    CodeOperation("str({a})", (INT,), STR, ("{a} as a string", "the number {a} as text")),
    CodeOperation("len({a})", (STR,), INT, ("the length of the string {a}", "how many characters {a} has")),
    CodeOperation("{a}.upper()", (STR,), STR, ("the string {a} in upper case", "{a} in capital letters")),
    CodeOperation("{a}.lower()", (STR,), STR, ("the string {a} in lower case", "{a} in small letters")),
    CodeOperation("{a}[::-1]", (STR,), STR, ("the string {a} reversed", "{a} read backwards")),
    CodeOperation("{a}.strip()", (STR,), STR, ("the string {a} without outer spaces", "{a} stripped of outer spaces")),
    CodeOperation("{a}.split()", (STR,), "list[str]", ("the words of {a}", "the list of words in {a}")),
    CodeOperation("len({a}.split())", (STR,), INT, ("the number of words in {a}", "how many words {a} has")),
    CodeOperation("{a}[:{n}]", (STR,), STR, ("the first {n} characters of {a}", "the leading {n} characters of {a}")),
    CodeOperation("{a}[-{n}:]", (STR,), STR, ("the last {n} characters of {a}", "the final {n} characters of {a}")),
    CodeOperation("{a}.count({b})", (STR, STR), INT, ("the count of {b} in {a}", "how often {b} occurs in {a}")),
    CodeOperation("{a} + {b}", (STR, STR), STR, ("the string {a} followed by {b}", "the strings {a} and {b} joined")),
    CodeOperation(
        "{a}.startswith({b})", (STR, STR), "bool", ("whether {a} starts with {b}", "true if {a} begins with {b}")
    ),
    CodeOperation("{a}.endswith({b})", (STR, STR), "bool", ("whether {a} ends with {b}", "true if {a} ends in {b}")),
    CodeOperation("len({a})", (LIST,), INT, ("the length of the list {a}", "how many items {a} has")),
    CodeOperation("sum({a})", (LIST,), INT, ("the sum of the list {a}", "the total of the items in {a}")),
    CodeOperation("max({a})", (LIST,), INT, ("the largest item of {a}", "the maximum of the list {a}")),
    CodeOperation("min({a})", (LIST,), INT, ("the smallest item of {a}", "the minimum of the list {a}")),
    CodeOperation("sorted({a})", (LIST,), LIST, ("the list {a} sorted", "the items of {a} in order")),
    CodeOperation("{a}[::-1]", (LIST,), LIST, ("the list {a} reversed", "the items of {a} in reverse order")),
    CodeOperation("{a}[0]", (LIST,), INT, ("the first item of {a}", "the item at the start of {a}")),
    CodeOperation("{a}[-1]", (LIST,), INT, ("the last item of {a}", "the item at the end of {a}")),
    CodeOperation("{a}[:{n}]", (LIST,), LIST, ("the first {n} items of {a}", "the leading {n} items of {a}")),
    CodeOperation("{b} in {a}", (LIST, INT), "bool", ("whether {b} is in {a}", "true if {a} contains {b}")),
    CodeOperation("sum({a}) / len({a})", (LIST,), "float", ("the mean of {a}", "the average of the items in {a}")),
    CodeOperation(
        "[x * {n} for x in {a}]", (LIST,), LIST, ("each item of {a} times {n}", "{a} with every item times {n}")
    ),
    CodeOperation(
        "[x + {n} for x in {a}]", (LIST,), LIST, ("each item of {a} plus {n}", "{a} with every item plus {n}")
    ),
    CodeOperation("[x ** 2 for x in {a}]", (LIST,), LIST, ("the squares of {a}", "each item of {a} squared")),
    CodeOperation(
        "[x for x in {a} if x > {n}]",
        (LIST,),
        LIST,
        ("the items of {a} greater than {n}", "the items of {a} above {n}"),
    ),
    CodeOperation(
        "[x for x in {a} if x < {n}]", (LIST,), LIST, ("the items of {a} less than {n}", "the items of {a} below {n}")
    ),
    CodeOperation(
        "[x for x in {a} if x % 2 == 0]", (LIST,), LIST, ("the even items of {a}", "the items of {a} that are even")
    ),
    CodeOperation(
        "[x for x in {a} if x % 2 == 1]", (LIST,), LIST, ("the odd items of {a}", "the items of {a} that are odd")
    ),
)
